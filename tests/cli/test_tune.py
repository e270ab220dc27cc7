import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tunesmith as ts
from tunesmith.cli.options import Duration

SHAPE = "m=8,n=16,k=4"
QUICK = ("--trials", "2", "--min-repeat-ms", "1", "--strategy", "random")


def test_the_row_says_what_was_found(tuned):
    path, outcome = tuned
    (row,) = outcome.rows
    assert row["operator"] == "matmul" and row["shape"] == {"m": 8, "n": 16, "k": 4}
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
    outcome = run("tune", onnx_file, "--tasks", "1", *QUICK, "--json")
    assert [row["operator"] for row in outcome.rows] == [rows[1]["function"]]


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
        (["matmul", "--shape", SHAPE, "--space", "matmull"], "unknown space 'matmull'; did you mean matmul?"),
        (["matmul", "--shape", SHAPE, "--strategy", "xbg"], "unknown strategy 'xbg'; did you mean xgb?"),
        (["matmul", "--shape", SHAPE, "--cost-model", "mlp"], "'mlp' is not one of 'xgb', 'random'"),
        (["matmul", "--shape", SHAPE, "--time-budget", "10x"], "'10x' is no time above 0"),
        (["matmul", "--shape", SHAPE, "--time-budget", "0s"], "'0s' is no time above 0"),
        (["matmul", "--shape", SHAPE, "--tasks", "0"], "--tasks is not for an operator"),
        (["matmul", "--tasks", "list"], "--tasks is for models: 'matmul' is no ONNX file"),
        (["matmul", "--shape", SHAPE, "--db", "none/x.db"], "the folder none does not exist"),
        (["matmul", "--shape", SHAPE, "--target", "raspberry-pi/4b-aarch64"], "cannot run on this machine"),
        (["none.onnx"], "no such model file: none.onnx"),
    ],
)
def test_bad_input_is_one_line(refused, words, message):
    assert message in refused("tune", *words)


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
