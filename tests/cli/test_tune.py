import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tunesmith as ts
from tunesmith.cli.options import Duration
from tunesmith.cli.tune import tune
from tunesmith.cli.tune_options import TIMING, Share
from tunesmith.integrate.running.comparison import Comparison
from tunesmith.integrate.running.contenders import Contender
from tunesmith.integrate.running.outputs import OutputCheck
from tunesmith.integrate.tuning.tuner import ModelTuning
from tunesmith.tuning.reporting.progress import PROGRESS, ProgressBar
from tunesmith.tuning.strategies.sketch_context import WARNINGS
from tunesmith.tuning.tuner import TRIALS

SHAPE = "m=8,n=16,k=4"
QUICK = ("--trials", "2", "--min-repeat-ms", "1", "--strategy", "random")


def test_the_row_says_what_was_found(tuned):
    path, outcome = tuned
    (row,) = outcome.rows
    assert row["operator"] == "matmul" and row["shape"] == {"m": 8, "n": 16, "k": 4, "transpose": "NN"}
    assert row["trials"] == 2 and row["stopped_by"] == "trials"
    assert row["best_s"] <= row["default_s"] and row["gflops"] > 0
    with ts.Database(path, create=False) as database:
        assert database.get(row["record"]).usable


def test_the_same_command_again_repeats_nothing(run, tuned):
    path, first = tuned
    outcome = run("tune", "matmul", "--shape", SHAPE, *QUICK, "--db", path, "--json")
    assert outcome.status == 0 and "resumed: 2 of 2" in outcome.stderr
    assert outcome.rows[0]["counts"] == {} and outcome.rows[0]["record"] == first.rows[0]["record"]


def test_progress_goes_to_stderr_and_the_table_to_stdout(run):
    outcome = run("tune", "matmul", "--shape", SHAPE, *QUICK)
    assert "1/2" in outcome.stderr and "vs default" in outcome.stdout and "1/2" not in outcome.stdout
    assert Path("tunesmith.db").is_file()


def test_nothing_right_ends_with_status_1(run, user_file):
    outcome = run("tune", f"{user_file}:TREBLE", "--shape", "n=9", *QUICK)
    assert outcome.status == 1 and "wrong_result" in outcome.stderr


def test_tasks_of_a_model_are_listed_and_chosen(run, onnx_file):
    rows = run("tune", onnx_file, "--tasks", "list", "--json").rows
    assert [row["task"] for row in rows] == [0, 1] and sum(row["share"] for row in rows) == pytest.approx(1)
    assert [(row["timing"], row["record"], row["trials"]) for row in rows] == [("predicted", None, 0)] * 2
    outcome = run("tune", onnx_file, "--tasks", "1", *QUICK, "--no-confirm", "--json")
    function, model = outcome.rows
    assert (function["task"], function["operator"]) == (1, rows[1]["function"]) and function["trials"] == 2
    assert model["model"] == "two" and model["confirmed"] is None
    assert model["default_s"] == function["calls"] * function["default_s"] >= model["best_s"] > 0
    listed = run("tune", onnx_file, "--tasks", "list", "--functions", "*matmul1*", "--json").rows
    assert [(row["task"], row["timing"], row["trials"]) for row in listed] == [(1, "measured", 2)]
    again = run("tune", onnx_file, "--tasks", "1", *QUICK, "--no-confirm")
    assert again.status == 0 and "nothing new was measured" in again.stderr
    assert "these functions: " in again.stderr and "each measured alone" in again.stderr


def comparison(outputs_equal):
    sides = [Contender("two", (seconds, seconds), 0.1, 1) for seconds in (0.012, 0.010)]
    return Comparison((OutputCheck("output_0", outputs_equal, 1e-7, "off by 1"),), *sides)


@pytest.mark.parametrize(("equal", "status"), [(True, 0), (False, 1)])
def test_the_gain_on_the_whole_model_is_told(run, onnx_file, monkeypatch, equal, status):
    def tuned(model, **options):
        assert options["min_flops"] == 10.0 and options["confirm"] and "space" not in options
        return ModelTuning((), (), comparison(equal))

    monkeypatch.setattr("tunesmith.integrate.tuning.tuner.tune_model", tuned)
    outcome = run("tune", onnx_file, "--min-flops", "10")
    assert outcome.status == status
    assert "two: 12.00 ms -> 10.00 ms (1.20x, 1.20 to 1.20 with 95 % confidence; confirmed" in outcome.stderr
    assert ("outputs equal" in outcome.stderr) == equal
    assert ("output_0 DIFFERENT: off by 1" in outcome.stderr) != equal
    row = run("tune", onnx_file, "--min-flops", "10", "--json").rows[-1]
    assert row["confirmed"]["ok"] == equal and row["confirmed"]["speedup"] == pytest.approx(1.2)


def test_a_dry_run_prints_the_plan_and_leaves_nothing(run):
    words = ["--shape", SHAPE, "--shape", "m=16,n=16,k=16", "--trials", "30", "--early-stopping", "40"]
    outcome = run("tune", "matmul", *words, "--dry-run")
    assert outcome.status == 0 and list(Path().iterdir()) == []
    assert "points of" in outcome.stdout and "new trials" in outcome.stdout
    assert "checks + " in outcome.stderr and "30 new trials, about 0:" in outcome.stderr
    assert "warning: early_stopping=40 cannot have an effect: 30 trials follow at most" in outcome.stderr


def test_a_dry_run_counts_what_the_database_holds(run, tuned):
    path, _ = tuned
    before = path.read_bytes()
    (row,) = run(
        "tune", "matmul", "--shape", SHAPE, "--trials", "9", "--db", path, "--dry-run", "--json"
    ).rows
    assert (row["recorded"], row["trials"], row["strategy"]) == (2, 7, "xgb")
    assert 0 < row["points"] <= row["combinations"] and row["calls_least"] <= row["calls_most"]
    assert row["call_s"] > 0 and row["trial_s"] > 0 and row["basis"]
    assert path.read_bytes() == before


def test_a_dry_run_of_a_model_needs_no_database(run, onnx_file):
    rows = run("tune", onnx_file, "--tasks", "0", "--space", "sketch", "--dry-run", "--json").rows
    assert [row["points"] for row in rows] == [None] and rows[0]["designs"] >= 1


def test_an_option_without_effect_is_warned_about_before_the_trials(run, tuned):
    path, _ = tuned
    outcome = run("tune", "matmul", "--shape", SHAPE, *QUICK, "--db", path, "--seed", "0")
    lines = outcome.stderr.splitlines()
    assert lines[0].startswith("warning: all trials are in the database") and lines[1].startswith("tuning")


def test_quiet_says_nothing_but_the_result(run, tmp_path):
    outcome = run("tune", "matmul", "--shape", SHAPE, *QUICK, "--quiet")
    assert outcome.stderr == "" and "vs default" in outcome.stdout


def test_what_is_asked_for_reaches_the_search(run, monkeypatch):
    asked = {}

    def search(workloads, **options):
        asked.update(options, workloads=workloads)
        return []

    monkeypatch.setattr("tunesmith.tuning.tuner.tune", search)
    words = ["--roofline", "95%", "--noise", "1%", "--trial-budget-ms", "50", "--cold-cache", "--no-transfer"]
    more = ["--cooldown-ms", "2", "--number", "3", "--repeat", "4", "--min-repeat-ms", "0", "--timeout", "1m"]
    outcome = run(
        "tune", "matmul", "--shape", SHAPE, *words, *more, "--give-up-factor", "3", "--progress", "bar"
    )
    assert outcome.status == 0, outcome.stderr
    assert asked["timing"] == ts.Timing(3, 4, 0.0, 0.05, 0.01, True, 2.0)
    assert (asked["roofline"], asked["transfer"], asked["give_up_factor"]) == (0.95, False, 3.0)
    assert asked["timeout"] == 60.0
    assert isinstance(asked["progress"], ProgressBar)


@pytest.mark.parametrize("words", [[], ["--verbose"]])
def test_what_tvm_says_is_let_through_where_it_is_asked_for(run, monkeypatch, words):
    heard = []
    monkeypatch.setattr(
        "tunesmith.tuning.tuner.tune", lambda *_, **__: heard.append(WARNINGS in os.environ) or []
    )
    # Set and taken away again: put back as it was at the end.
    monkeypatch.setenv(WARNINGS, "")
    monkeypatch.delenv(WARNINGS)
    run("tune", "matmul", "--shape", SHAPE, *words)
    assert heard == [bool(words)]


def test_calls_in_a_model_are_its_weights(run, onnx_file, monkeypatch):
    weights = []
    monkeypatch.setattr(
        "tunesmith.integrate.tuning.tuner.tune", lambda w, **options: weights.append(options["weights"]) or []
    )
    run("tune", onnx_file)
    rows = run("tune", onnx_file, "--tasks", "list", "--json").rows
    assert weights == [[row["calls"] for row in rows]]


def test_the_defaults_are_those_of_the_functions():
    defaults = tune.make_context("tune", ["matmul"]).params
    timing = ts.Timing()
    for name in set(TIMING) - {"trial_budget_ms"}:
        assert defaults[name] == getattr(timing, name), name
    assert defaults["trial_budget_ms"] == timing.budget_s * 1000
    for name in ("timeout", "give_up_factor", "seed", "transfer"):
        assert defaults[name] == inspect.signature(ts.tune).parameters[name].default, name
    (trials,) = [option.help for option in tune.params if option.name == "trials"]
    assert f"{TRIALS} a workload" in trials
    (progress,) = [option.type for option in tune.params if option.opts == ["--progress"]]
    assert list(progress.choices) == list(PROGRESS)


def test_an_interrupt_keeps_the_best_so_far(tmp_path):
    tunesmith = Path(sys.executable).with_name("tunesmith")
    words = ["--debug", "tune", "matmul", "--shape", SHAPE, "--trials", "5000", "--min-repeat-ms", "1"]
    child = subprocess.Popen(
        [tunesmith, *words],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    for line in child.stderr:
        if line.strip().startswith("3/"):
            break
    # As a terminal does: to every process of the group.
    os.killpg(child.pid, signal.SIGINT)
    stdout, stderr = child.communicate(timeout=60)
    assert child.returncode == 0, stderr
    assert "interrupted" in stderr and "interrupted" in stdout and "Traceback" not in stderr
    with ts.Database(tmp_path / "tunesmith.db", create=False) as database:
        assert len(database.records()) >= 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["matmul", "--shape", SHAPE, "--trials", "0"], "trials must be at least 1: trials=0"),
        (
            ["matmul", "--shape", SHAPE, "--space", "matmull"],
            "unknown space 'matmull'; did you mean matmul or widened",
        ),
        (["matmul", "--shape", SHAPE, "--strategy", "xbg"], "unknown strategy 'xbg'; did you mean xgb?"),
        (
            ["matmul", "--shape", SHAPE, "--cost-model", "mlp"],
            "unknown cost model 'mlp'; there are: random, xgb",
        ),
        (["matmul", "--shape", SHAPE, "--cost-model", "xgb"], "'xgb' has no cost model to choose"),
        (["matmul", "--shape", SHAPE, "--roofline", "most"], "'most' is no share such as 0.95 or 95%"),
        (["matmul", "--shape", SHAPE, "--roofline", "95"], "a share, more than 0 and at most 1: roofline=95"),
        (["matmul", "--shape", SHAPE, "--noise", "-1%"], "noise must be a fraction of at least 0"),
        (["matmul", "--shape", SHAPE, "--repeat", "0"], "repeat must be an integer of at least 1: repeat=0"),
        (["matmul", "--shape", SHAPE, "--min-repeat-ms", "20000"], "every trial would time out"),
        (["matmul", "--shape", SHAPE, "--shape", "m=9,n=9,k=9", "--trials", "1"], "shared by 2 workloads"),
        (["matmul", "--shape", SHAPE, "--strategy", "grid", "--space", "sketch"], "cannot search the space"),
        (["matmul", "--shape", SHAPE, "--progress", "bars"], "'bars' is not one of 'auto', 'lines'"),
        (["matmul", "--shape", SHAPE, "--time-budget", "10x"], "'10x' is no time above 0"),
        (["matmul", "--shape", SHAPE, "--time-budget", "0s"], "'0s' is no time above 0"),
        (["matmul", "--shape", SHAPE, "--tasks", "0"], "--tasks is not for an operator"),
        (["matmul", "--tasks", "list"], "--tasks is not for an operator"),
        (["matmul", "--functions", "conv2d*"], "--functions is not for an operator"),
        (["matmul", "--min-flops", "1e6"], "--min-flops is not for an operator"),
        (["matmul", "--no-confirm"], "--no-confirm is not for an operator"),
        (["matmul", "--shape", SHAPE, "--db", "none/x.db"], "the folder none does not exist"),
        (["matmul", "--shape", SHAPE, "--target", "raspberry-pi/4b-aarch64"], "cannot run on this machine"),
        (["none.onnx"], "no such model file: none.onnx"),
    ],
)
def test_bad_input_is_one_line(refused, words, message):
    assert message in refused("tune", *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tasks", "9"], "tasks must lie within 0-1: '9'"),
        (["--tasks", "foo"], "tasks takes list, all, or numbers"),
        (["--tasks", "list", "--functions", "nothing*"], "fits functions=nothing*"),
        (["--functions", "nothing*", "--dry-run"], "fits functions=nothing*"),
        (["--min-flops", "-1"], "min_flops=-1"),
        (["--min-flops", "many"], "'many' is not a valid float"),
        (["--trials", "0"], "trials must be at least 1: trials=0"),
        (["--space", "conv2d"], "the space 'conv2d' does not apply to"),
        (["--shape", "m=1"], "--shape is not for a model"),
        (["--dtype", "float16"], "--dtype is not for a model"),
    ],
)
def test_bad_input_for_a_model_is_one_line(refused, onnx_file, words, message):
    assert message in refused("tune", onnx_file, *words)


def test_a_model_of_copies_has_nothing_to_tune(refused, write_model):
    message = "the model has no function that can be tuned"
    assert message in refused("tune", write_model("Transpose", [3, 4]), "--tasks", "list")


def test_a_file_that_is_no_database_is_left_as_it_is(refused):
    Path("notes.txt").write_text("hello")
    assert "notes.txt is not a tunesmith database" in refused("tune", "matmul", "--db", "notes.txt")
    assert Path("notes.txt").read_text() == "hello"


def test_an_output_that_cannot_be_written_is_found_before_the_model_is_read(refused):
    Path("model.onnx").write_text("no model at all")
    assert "cannot open the database" in refused("tune", "model.onnx", "--db", "none/x.db")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("0.5m", 30)]
)
def test_times_have_units(text, seconds):

    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize(("text", "share"), [("0.95", 0.95), ("95%", 0.95), ("2 %", 0.02), ("1", 1.0)])
def test_shares_are_numbers_or_percent(text, share):
    assert Share().convert(text, None, None) == pytest.approx(share)
