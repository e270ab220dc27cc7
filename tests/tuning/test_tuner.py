import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tunesmith as ts
from tunesmith.machine.facts import has_feature
from tunesmith.machine.target import host_target, target_text
from tunesmith.tuning.records.record import Status
from tunesmith.tuning.reporting.progress import ProgressLines, Started, TrialEnded, TuneResult, quiet
from tvm import tirx
from tvm_ffi import structural_walk

# The processes are looked for by their commands.
pytestmark = pytest.mark.usefixtures("real_workers")
# Short trials: tests look at what happens, not at how fast.
BRIEF = {"timing": ts.Timing(repeat=1, min_repeat_ms=0.1, budget_s=0.01), "progress": quiet}


def own_folders(pid=None):
    import tempfile

    return list(Path(tempfile.gettempdir()).glob(f"tunesmith-{pid or os.getpid()}-*"))


def own_workers(pid=None):
    import psutil

    return [
        p
        for p in psutil.process_iter(["cmdline"])
        if f" {pid or os.getpid()} " in " ".join(p.info["cmdline"] or [])
    ]


def remaining_workers(pid=None):
    """Return the workers that are left after those that were killed have had time to end."""
    deadline = time.monotonic() + 10
    while own_workers(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return own_workers(pid)


@pytest.fixture(scope="module")
def tuned(small, tiles, tmp_path_factory):
    path = tmp_path_factory.mktemp("tuned") / "t.db"
    events = []
    result = ts.tune(
        small, space=tiles, database=path, strategy="random", trials=6, **{**BRIEF, "progress": events.append}
    )
    return result, path, events


def test_trials_are_recorded_and_the_default_comes_first(tuned, tiles):
    result, path, _ = tuned
    records = ts.Database(path).records()
    assert (len(records), result.trials, result.stopped_by) == (6, 6, "trials")
    assert records[0].knobs == {"rows": 4, "columns": 8} == result.default.knobs
    assert result.counts == {Status.OK: 6}
    assert all(
        r.verified and r.trace and r.build_s > 0 and r.target == target_text(host_target()) for r in records
    )
    assert len({str(r.knobs) for r in records}) == 6


def test_every_space_of_a_workload_is_checked_on_the_same_cases(tmp_path):
    """Cases that were made anew under who had read them: right candidates had changed their inputs."""
    image = {"n": 1, "h": 56, "w": 56, "ci": 32, "co": 32, "kh": 3, "kw": 3, "padding": 1}
    workload = ts.workload("conv2d", **image)
    result = ts.tune(workload, space="all", database=tmp_path / "t.db", strategy="random", trials=8, **BRIEF)
    spaces = {"winograd", "conv2d"}
    if has_feature(host_target(), "amx-bf16"):
        spaces.add("float32_matrix_unit")
    assert {record.space for record in ts.Database(tmp_path / "t.db").records()} == spaces
    assert result.counts == {Status.OK: 8}


def test_the_answer_is_what_the_database_gives(tuned, small):
    result, path, _ = tuned
    best = ts.Database(path).best(small.hash, target_text(host_target()))
    assert best.id == result.best.id
    assert best.confirmed_secs and best.median_s <= result.default.median_s


def test_events_tell_the_whole_story(tuned):
    _, _, events = tuned
    assert isinstance(events[0], Started) and events[0].points == 15 and events[0].resumed == 0
    trials = [e for e in events if isinstance(e, TrialEnded)]
    assert [e.number for e in trials] == list(range(1, 7))
    assert all(e.gflops > 0 and e.roofline_fraction > 0 and e.best_s > 0 for e in trials)
    assert isinstance(events[-1], TuneResult) and set(events[-1].seconds) == {
        "search",
        "build",
        "verify",
        "run",
        "confirm",
        "other",
    }


def test_progress_lines_are_aligned(tuned):
    _, _, events = tuned
    stream = io.StringIO()
    show = ProgressLines(stream)
    for event in events:
        show(event)
    lines = stream.getvalue().splitlines()
    assert "15 points" in lines[0] and lines[1].split() == [
        "trial",
        "status",
        "time",
        "GFLOP/s",
        "roofline",
        "best",
        "elapsed",
        "ETA",
    ]
    assert len({len(line) for line in lines[1:8]}) == 1
    assert lines[-1].startswith("ended by the number of trials; 6 ok; search ")


def test_nothing_is_left_behind(tuned):
    assert own_folders() == [] and remaining_workers() == []


def test_same_call_again_measures_nothing(tuned, small, tiles):
    _, path, _ = tuned
    events = []
    before = ts.Database(path).records()
    result = ts.tune(
        small, space=tiles, database=path, strategy="random", trials=6, **{**BRIEF, "progress": events.append}
    )
    assert events[0].resumed == 6 and result.counts == {}
    assert ts.Database(path).records() == before


@pytest.mark.parametrize("strategy", ["grid", "xgb"])
def test_resumed_tuning_repeats_nothing_and_ends_when_the_space_is_exhausted(
    small, tiles, tmp_path, strategy
):
    options = {"space": tiles, "database": tmp_path / "t.db", "strategy": strategy, **BRIEF}
    assert ts.tune(small, trials=5, **options).trials == 5
    result = ts.tune(small, trials=100, **options)
    assert (result.stopped_by, result.trials, sum(result.counts.values())) == ("exhausted", 15, 10)
    records = ts.Database(tmp_path / "t.db").records()
    assert len({str(sorted(r.knobs.items())) for r in records}) == len(records) == 15


def test_every_fault_costs_one_trial_and_is_named(small, faulty, tmp_path):
    result = ts.tune(small, space=faulty, database=tmp_path / "t.db", strategy="grid", timeout=2.0, **BRIEF)
    records = {r.knobs["fault"]: r for r in ts.Database(tmp_path / "t.db").records()}
    assert [records[i].status.value for i in range(9)] == [
        "ok",
        "run_timeout",
        "crashed",
        "crashed",
        "run_error",
        "wrong_result",
        "wrong_result",
        "wrong_result",
        "schedule_error",
    ]
    assert result.stopped_by == "exhausted" and result.best.knobs == {"fault": 0}
    assert [i for i, r in records.items() if r.verified] == [0]
    for fault, words in {
        1: "stopped after 0.5 s, ",
        2: "SIGABRT",
        3: "SIGSEGV",
        4: "the kernel says no",
        5: "4096 are NaN (perhaps never written)",
        6: "2048 are NaN",
        7: "changed its input B",
        8: "no_such_block",
    }.items():
        assert words in records[fault].message
    assert own_folders() == [] and remaining_workers() == []


def test_early_stopping_counts_trials_without_gain(small, tiles, tmp_path):
    result = ts.tune(
        small, space=tiles, database=tmp_path / "t.db", strategy="grid", early_stopping=1, trials=15, **BRIEF
    )
    assert result.stopped_by == "early_stopping" and result.trials < 15


def test_time_budget_stops(small, tiles, tmp_path):
    result = ts.tune(small, space=tiles, database=tmp_path / "t.db", time_budget=1e-3, **BRIEF)
    # The default is measured all the same: there is always an answer.
    assert (result.stopped_by, result.trials) == ("time_budget", 1)
    assert result.best.id == result.default.id


def test_interrupt_inside_tvm_is_one(small, tiles, tmp_path):
    """TVM makes an error of its own of an interrupt in a function that it calls back."""

    def interrupt_at_third(event):
        if isinstance(event, TrialEnded) and event.number == 3:
            structural_walk(small.func.body, [(tirx.For, lambda _: signal.raise_signal(signal.SIGINT))])

    path = tmp_path / "t.db"
    result = ts.tune(small, space=tiles, database=path, **{**BRIEF, "progress": interrupt_at_third})
    assert result.stopped_by == "interrupted" and result.best is not None and result.trials == 3


def test_interrupt_returns_the_best_so_far(small, tiles, tmp_path):
    def interrupt_at_third(event):
        if isinstance(event, TrialEnded) and event.number == 3:
            os.kill(os.getpid(), signal.SIGINT)

    result = ts.tune(
        small,
        space=tiles,
        database=tmp_path / "t.db",
        strategy="grid",
        **{**BRIEF, "progress": interrupt_at_third},
    )
    assert result.stopped_by == "interrupted" and result.best is not None
    assert result.trials == 3 == len(ts.Database(tmp_path / "t.db").records())
    assert own_folders() == [] and remaining_workers() == []


def test_several_workloads_share_a_call(tiles, tmp_path):
    workloads = [ts.workload("matmul", m=32, n=32, k=k) for k in (16, 32)]
    results = ts.tune(workloads, space=tiles, database=tmp_path / "t.db", trials=4, **BRIEF)
    assert [r.workload for r in results] == workloads and [r.trials for r in results] == [2, 2]


def test_kill_9_loses_nothing_that_was_reported_and_the_rest_is_resumed(tmp_path):
    database, script = tmp_path / "t.db", tmp_path / "script.py"
    script.write_text(
        "import sys, tunesmith as ts\n"
        "from tunesmith.tuning.reporting.progress import TrialEnded\n"
        "def say(event):\n"
        "    if isinstance(event, TrialEnded): print(event.record.id, flush=True)\n"
        "w = ts.workload('matmul', m=64, n=64, k=64)\n"
        "brief = {'timing': ts.Timing(repeat=1, min_repeat_ms=1), 'progress': say}\n"
        "ts.tune(w, database=sys.argv[1], strategy='random', trials=12, **brief)\n"
    )
    command = [sys.executable, str(script), str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        told = [process.stdout.readline().strip() for _ in range(3)]
        process.kill()
    assert {r.id for r in ts.Database(database).records()} >= set(told)
    assert remaining_workers(process.pid) == []
    subprocess.run(command, check=True, capture_output=True)
    records = ts.Database(database).records()
    assert len(records) == 12 == len({str(r.knobs) for r in records})
    # The folder of the killed process is gone too: the next tuning removes it.
    assert own_folders(process.pid) == []


def test_sketch_space_is_searched_and_measured_against_the_default(small, tmp_path):
    result = ts.tune(small, space="ansor", database=tmp_path / "t.db", trials=4, **BRIEF)
    database = ts.Database(tmp_path / "t.db")
    records = database.records(space="sketch")
    assert len(records) == 4 == result.trials and all(r.knobs is None and r.trace for r in records)
    assert len({r.trace for r in records}) == 4
    assert result.default.space != "sketch" and result.best.median_s <= result.default.median_s
    again = ts.tune(small, space="sketch", database=tmp_path / "t.db", trials=6, **BRIEF)
    assert sum(again.counts.values()) == 2
    assert len({r.trace for r in database.records(space="sketch")}) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials must be at least 1: trials=0"),
        ({"timeout": 0}, "timeout must be more than 0 seconds: timeout=0"),
        ({"space": "matmull"}, "unknown space 'matmull'; did you mean matmul"),
        (
            {"space": "conv2d"},
            "the space 'conv2d' does not apply to matmul m=64,n=64,k=64,transpose=NN; those that do: matmul",
        ),
        ({"strategy": "xbg"}, "unknown strategy 'xbg'; did you mean xgb"),
        ({"strategy": "evolutionary"}, "'evolutionary' cannot search the space 'matmul'"),
        (
            {"strategy": "grid", "space": "sketch"},
            "'grid' cannot search the space 'sketch'; those that can: evolutionary",
        ),
        ({"cost_model": "xgb"}, "'xgb' has no cost model to choose"),
        ({"cost_model": "mlp", "space": "sketch"}, "unknown cost model 'mlp'"),
        ({"database": "/no/such/folder/t.db"}, "the folder /no/such/folder does not exist"),
    ],
)
def test_bad_input_is_one_line(small, tmp_path, options, message):
    with pytest.raises(ts.InputError, match=r"^[^\n]*$") as caught:
        ts.tune(small, **{"database": tmp_path / "t.db", **BRIEF, **options})
    assert message in str(caught.value)
    assert own_folders() == [] and remaining_workers() == []
