import os
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import count

import pytest
import tunesmith as ts
from tunesmith.machine.facts import machine_fingerprint
from tunesmith.machine.target import as_target, host_target, target_text
from tunesmith.tuning.budget import TURN
from tunesmith.tuning.measuring.arithmetic import seconds_of_trial
from tunesmith.tuning.measuring.measurement import Timing
from tunesmith.tuning.planning.plan import plan
from tunesmith.tuning.records.record import Record, Status
from tunesmith.tuning.remote.tracker import Remote
from tunesmith.tuning.reporting.pace import recorded_seconds
from tunesmith.tuning.running.device import Device
from tunesmith.tuning.tuner import TRIALS

IDS = count()
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def trial(workload, second, knobs, space="tiles", device="local", **fields):
    """A record of a trial that ended so many seconds after the start."""
    record = Record(
        id=str(next(IDS)),
        created=(START + timedelta(seconds=second)).isoformat(timespec="milliseconds"),
        operator=workload.name,
        shape=dict(workload.shape),
        dtype=workload.dtype,
        workload_hash=workload.hash,
        workload_ir="{}",
        target=target_text(host_target()),
        machine_fingerprint=machine_fingerprint(),
        space=space,
        strategy="grid",
        seed=0,
        knobs=knobs,
        trace=None,
        status=Status.OK,
        verified=True,
        max_error=0.0,
        run_secs=(0.004,),
        build_s=0.1,
        message="",
        tvm_version="",
        tunesmith_version="",
        device=device,
        key=str((knobs, device)),
    )
    return replace(record, **fields)


@pytest.fixture
def database(tmp_path):
    with ts.Database(tmp_path / "t.db") as opened:
        yield opened


def add_trials(database, workload, count, every_s=2.0, **fields):
    for n in range(count):
        database.add(trial(workload, n * every_s, {"rows": n, "columns": 0}, **fields))


def test_a_plan_creates_nothing(small, tiles, tmp_path):
    found = plan(small, space=tiles, database=tmp_path / "none.db")
    assert os.listdir(tmp_path) == []
    (one,) = found.workloads
    assert (one.space, one.strategy, one.points, one.designs) == ("tiles", "xgb", 15, None)
    assert one.combinations >= 15 and one.recorded == 0
    assert found.trials == TRIALS and one.trials == 15


def test_recorded_trials_of_this_space_are_not_done_again(small, tiles, database):
    add_trials(database, small, 5)
    add_trials(database, small, 2, space="another")
    add_trials(database, small, 2, target=target_text(as_target("raspberry-pi/4b-aarch64")))
    found = plan(small, space=tiles, database=database, trials=8)
    assert (found.workloads[0].recorded, found.workloads[0].trials, found.trials) == (5, 3, 3)
    assert plan(small, space=tiles, database=database, trials=4).trials == 0
    # Times with cold caches do not compare with these.
    assert plan(small, space=tiles, database=database, trials=4, timing=Timing(cold_cache=True)).trials == 4


def test_workloads_share_the_trials(tiles, tmp_path):
    workloads = [ts.workload("matmul", m=32, n=32, k=k) for k in (16, 32)]
    found = plan(workloads, space=tiles, database=tmp_path / "t.db", trials=100)
    assert found.trials == 100 and [one.trials for one in found.workloads] == [TURN, TURN]
    assert [
        one.trials for one in plan(workloads, space=tiles, database=tmp_path / "t.db", trials=5).workloads
    ] == [2, 2]


def test_sketches_are_not_counted_but_their_designs_are(small, tmp_path):
    (one,) = plan(small, space="sketch", database=tmp_path / "t.db").workloads
    assert one.points is None and one.combinations is None and one.designs >= 1
    assert one.strategy == "evolutionary"


def test_time_is_estimated_from_trials_of_the_workload(small, tiles, database):
    add_trials(database, small, 6)
    found = plan(small, space=tiles, database=database, trials=10)
    estimate = found.workloads[0].estimate
    assert (estimate.call_s, estimate.trial_s, estimate.basis) == (0.004, 2.0, "5 trials of this workload")
    assert found.seconds == 4 * 2.0
    # No more than the space has.
    assert plan(small, space=tiles, database=database, trials=100).seconds == 9 * 2.0
    assert plan(small, space=tiles, database=database, trials=10, time_budget=5.0).seconds == 5.0


def test_else_from_trials_of_other_shapes(small, tiles, database):
    other = ts.workload("matmul", m=32, n=32, k=32)
    add_trials(database, other, 6, every_s=3.0)
    # After a break, and too few of the workload itself to tell; those of another space do not count.
    database.add(trial(small, 200.0, {"rows": 1}))
    database.add(trial(small, 203.0, {"rows": 2}))
    for n in range(6):
        database.add(trial(other, 210.0 + n, {"rows": n}, space="another"))
    estimate = plan(small, space=tiles, database=database).workloads[0].estimate
    assert (estimate.trial_s, estimate.basis) == (3.0, "6 trials of this operator")


def test_a_call_takes_as_long_as_the_fastest_of_this_workload(small, tiles, database):
    add_trials(database, ts.workload("matmul", m=32, n=32, k=32), 6, run_secs=(1e-9,))
    add_trials(database, small, 6)
    assert plan(small, space=tiles, database=database).workloads[0].estimate.call_s == 0.004


def test_else_from_a_build_and_the_roofline(small, tiles, database):
    # Trials of another machine say nothing about this one.
    add_trials(database, small, 6, machine_fingerprint="another")
    timing = Timing(repeat=5)
    found = plan(small, space=tiles, database=database, trials=7, timing=timing)
    estimate = found.workloads[0].estimate
    assert estimate.call_s == ts.roofline_seconds(small.flops, small.bytes_moved, "float32")
    assert estimate.trial_s > seconds_of_trial(estimate.call_s, timing) > 0.05
    assert "builds of" in estimate.basis and "calls at the roofline" in estimate.basis


def test_with_cold_caches_a_call_is_as_long_as_emptying_them(small, tiles, tmp_path, monkeypatch):
    monkeypatch.setattr("tunesmith.tuning.planning.estimate.flush_seconds", lambda: 0.004)
    timing = Timing(cold_cache=True)
    (cold,) = plan(small, space=tiles, database=tmp_path / "t.db", timing=timing).workloads
    assert cold.estimate.flush_s == 0.004 and cold.calls.number == 3
    assert cold.estimate.trial_s > seconds_of_trial(cold.estimate.call_s, timing, 0.004) > 0.03
    (warm,) = plan(small, space=tiles, database=tmp_path / "t.db").workloads
    assert warm.estimate.flush_s == 0.0 and warm.calls.number > 100


def test_nothing_is_built_where_no_estimate_is_wanted(small, tiles, tmp_path, monkeypatch):
    monkeypatch.setattr("tunesmith.tuning.planning.estimate.export_kernel", None)
    found = plan(small, space=tiles, database=tmp_path / "t.db", estimate=False)
    assert found.seconds is None and found.workloads[0].estimate.trial_s is None


def test_of_a_device_without_trials_nothing_is_known(small, tiles, database, monkeypatch):
    class Board:
        device = "rpc:board"

    far = Device("far", 4, host_target(), name="rpc:board")
    monkeypatch.setattr("tunesmith.tuning.planning.plan._device", lambda remote, timeout: far)
    add_trials(database, small, 6)
    found = plan(small, space=tiles, database=database, remote=Board())
    assert found.seconds is None and found.workloads[0].calls is None
    add_trials(database, small, 6, every_s=4.0, device="rpc:board", machine_fingerprint="far")
    found = plan(small, space=tiles, database=database, remote=Board())
    assert found.workloads[0].estimate.trial_s == 4.0


def test_the_calls_of_a_trial_are_spelled_out(small, tiles, database):
    add_trials(database, small, 6)
    (one,) = plan(small, space=tiles, database=database, timing=Timing(repeat=4)).workloads
    assert str(one.calls).startswith("6 checks + 2 to estimate + 4 to 25 x 3 timed = ")


def test_breaks_between_sessions_are_no_trials(small):
    seconds = (0, 1, 3, 100, 102)
    records = [trial(small, second, {"rows": second}) for second in seconds]
    assert list(recorded_seconds(reversed(records), 30.0).values()) == [1, 2, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials must be at least 1: trials=0"),
        ({"early_stopping": 0}, "early_stopping must be at least 1: early_stopping=0"),
        ({"give_up_factor": 0.5}, "give_up_factor must be at least 1: give_up_factor=0.5"),
        ({"timeout": 0}, "timeout must be more than 0 seconds: timeout=0"),
        ({"time_budget": float("nan")}, "time_budget must be more than 0 seconds: time_budget=nan"),
        ({"roofline": 95}, "roofline is a share, more than 0 and at most 1: roofline=95"),
        ({"weights": [1, 2]}, "weights must be a number above 0 for each of 1 workloads: weights=[1, 2]"),
        ({"weights": [-1]}, "weights must be a number above 0 for each of 1 workloads: weights=[-1]"),
        (
            {"timing": Timing(min_repeat_ms=5000.0), "timeout": 4.0},
            "timing a candidate takes 5 s at least, but timeout=4: every trial would time out",
        ),
        (
            {"timing": Timing(cooldown_ms=2000.0), "timeout": 4.0},
            "timing a candidate takes 6.03 s at least, but timeout=4",
        ),
        (
            {"strategy": "evolutionary"},
            "'evolutionary' cannot search the space 'matmul'; those that can: grid",
        ),
        ({"strategy": "grid", "space": "sketch"}, "'grid' cannot search the space 'sketch'"),
        ({"cost_model": "random"}, "'xgb' has no cost model to choose"),
    ],
)
@pytest.mark.parametrize("do", [plan, ts.tune])
def test_a_wrong_call_is_refused_alike_before_anything_runs(small, tmp_path, do, options, message):
    with pytest.raises(ts.InputError, match=r"^[^\n]*$") as caught:
        do(small, **{"database": tmp_path / "t.db", **options})
    assert message in str(caught.value)


def test_fewer_trials_than_workloads_contradict_each_other(tmp_path):
    workloads = [ts.workload("relu", m=8, n=n) for n in (8, 16, 24)]
    with pytest.raises(ts.InputError, match="trials=2 cannot be shared by 3 workloads: give at least 3"):
        plan(workloads, trials=2, database=tmp_path / "t.db")


def test_a_space_that_its_rules_leave_empty_is_refused(small, tmp_path):
    def open_space(func, target):
        never = ts.Constraint("rows is odd", lambda knobs: knobs["rows"] % 2 == 1)
        return ts.KnobSpace((ts.Knob("rows", (2, 4), "rows"),), (never,), {"rows": 2})

    empty = ts.ScheduleRule("empty", "nothing", lambda sch, *, rows: None, open_space)
    with pytest.raises(ts.InputError, match="Of 2, 'rows is odd' excludes 2"):
        plan(small, space=empty, database=tmp_path / "t.db")


def test_a_tracker_that_is_not_there_is_named(small, tmp_path):
    with pytest.raises(ts.InputError, match=r"^[^\n]*127.0.0.1:1\b[^\n]*$"):
        plan(small, remote=Remote("127.0.0.1:1", "board"), database=tmp_path / "t.db")
