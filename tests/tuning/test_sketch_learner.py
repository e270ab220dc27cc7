"""A cost model of sketches: what a report on it says, and saving it."""

import dataclasses
import re
from math import log2

import pytest
import tunesmith as ts
import tvm
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import host_target, target_text
from tunesmith.tuning.learning.learner import learner_for
from tunesmith.tuning.learning.model_report import report
from tunesmith.tuning.records.record import Record, Status
from tunesmith.tuning.strategies.evolutionary import Evolutionary
from tunesmith.tuning.strategies.sketch import SketchSpace


def seconds(schedule):
    """Stand in for the time: the nearer the vectorized loops to 16 elements, the faster."""
    found = re.findall(r"T\.vectorized\((?:T\.int64\()?(\d+)", schedule.mod.script()) or [1]
    return 1 + sum(abs(log2(int(extent) / 16)) for extent in found) / len(found)


def records(workload, count, seed):
    space = SketchSpace(workload.func, host_target(), seed)
    sketches = [space.new(space.draw) for _ in range(count)]
    return [
        Record(
            id=f"{workload.shape['m']} {i}", created="", operator="matmul", shape=workload.shape,
            dtype="float32", workload_hash=workload.hash, workload_ir=tvm.ir.save_json(workload.func),
            target=target_text(host_target()), machine_fingerprint="", space="sketch", strategy="", seed=0,
            knobs=None, trace=sketch.candidate().trace, status=Status.OK, verified=True, max_error=None,
            run_secs=(seconds(sketch.schedule),), build_s=None, message="", tvm_version="",
            tunesmith_version="",
        )
        for i, sketch in enumerate(sketches)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def trials(small):
    return records(small, 32, 1) + records(ts.workload("matmul", m=96, n=64, k=32), 24, 2)


def test_a_report_tells_a_model_of_stores_from_chance(trials):
    found = report(trials)
    assert (found.space, found.trials, found.workloads) == ("sketch", 56, 2)
    assert found.rank_correlation > 0.5 > 0.3 > abs(found.random_correlation)
    assert found.transfer_correlation > 0.5
    assert any(name.startswith("vectorized") for name in list(found.importance)[:5])
    best = max(found.predictions, key=lambda p: p.measured)
    assert {p.record_id for p in found.predictions} == {r.id for r in trials} and best.knobs == {}
    assert found == report(trials)


def test_a_sketch_that_cannot_be_made_any_more_is_left_out(trials):
    damaged = dataclasses.replace(trials[0], trace="[[],[]")
    assert report([damaged, *trials[1:]]).trials == 55


def test_a_model_of_stores_is_saved_and_starts_a_search(trials, small, tmp_path):
    path = tmp_path / "model.npz"
    learner_for(trials).save(path)
    model = Evolutionary(small.func, host_target(), 1, str(path)).model
    assert len(model) == 56 and model.ready
    with pytest.raises(InputError, match=r"must end in \.npz"):
        learner_for(trials).save(tmp_path / "model.json")


def test_what_sketches_have_no_model_of_is_told(trials, tmp_path):
    with pytest.raises(InputError, match="has no loss 'rank'"):
        report(trials, loss="rank")
    with pytest.raises(InputError, match=r"at least 10 trials .*: there are 4; tune more"):
        report(trials[:4])
    failed = [dataclasses.replace(r, status=Status.CRASHED, verified=False, run_secs=()) for r in trials]
    with pytest.raises(InputError, match="at least one trial"):
        learner_for(failed).save(tmp_path / "model.npz")
