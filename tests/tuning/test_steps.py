import subprocess
from dataclasses import replace

import pytest
import tunesmith as ts
from tunesmith.machine.process import usable_cpus
from tunesmith.schedules.loop_nest import loop_nest
from tunesmith.tuning import steps as timed
from tunesmith.tuning.steps import time_steps
from tvm import s_tir


@pytest.fixture(scope="module")
def workload():
    return ts.workload("matmul", m=32, n=64, k=32)


def reordered(workload):
    """A schedule of two steps."""
    sch = s_tir.Schedule(workload.func)
    i, j, _ = sch.get_loops(sch.get_sblock("matmul"))
    sch.reorder(j, i)
    sch.parallel(j)
    return sch


def test_each_step_is_right_and_timed():
    workload = ts.workload("matmul", m=128, n=128, k=128)
    schedule, _ = ts.apply_default(workload.func, ts.host_target())
    found = time_steps(workload, schedule)
    assert [step.step for step in found] == list(range(len(found)))
    assert len(found) > 5
    assert [(step.step, step.status, step.message) for step in found if step.status != "ok"] == []
    assert all(step.verified and step.median_s > 0 for step in found)
    assert found[0].loop_nest == loop_nest(workload.func) and found[0].gain is None
    assert all(step.gain > 0 and step.gain_in_all > 0 and step.changes for step in found[1:])
    # Vectors and registers: on any machine several times as fast.
    assert found[-1].gain_in_all > 2
    assert found[1].gain == pytest.approx(found[1].gain_in_all)


def test_a_step_that_cannot_be_built_has_no_time_and_no_gain(workload, monkeypatch):
    real = timed.build_all

    def second_fails(builders, jobs):
        return real(builders, [replace(j, trace="{}") if n == 1 else j for n, j in enumerate(jobs)])

    monkeypatch.setattr(timed, "build_all", second_fails)
    found = time_steps(workload, reordered(workload))
    assert [step.status for step in found] == ["ok", "schedule_error", "ok"]
    assert found[1].median_s is None and found[1].message and not found[1].verified
    assert found[2].gain is None and found[2].gain_in_all > 0


def test_steps_after_one_that_crashes_are_checked_and_timed(workload, monkeypatch):
    real = timed.build_all

    def second_crashes(builders, jobs):
        built = real(builders, jobs)
        code = "void __attribute__((constructor)) crash(void) { __builtin_trap(); }"
        subprocess.run(
            ["g++", "-xc++", "-shared", "-o", built[1].library, "-"], input=code, text=True, check=True
        )
        return built

    monkeypatch.setattr(timed, "build_all", second_crashes)
    found = time_steps(workload, reordered(workload))
    assert [step.status for step in found] == ["ok", "crashed", "ok"]
    assert [step.median_s is None for step in found] == [False, True, False]


def test_arrays_exist_once_whatever_the_number_of_steps(workload, monkeypatch):
    groups = []
    real = timed.WorkerGroup
    monkeypatch.setattr(
        timed, "WorkerGroup", lambda size, **options: groups.append(size) or real(size, **options)
    )
    time_steps(workload, reordered(workload))
    assert groups == [usable_cpus()]


def test_a_step_that_is_wrong_or_slow_is_told_as_such(workload, monkeypatch):
    slow = replace(workload, reference=lambda a, b, **dims: a @ b + 1)
    found = time_steps(slow, reordered(workload))
    assert {step.status for step in found} == {"wrong_result"}
    assert {step.median_s for step in found} == {None}
    monkeypatch.setattr(timed, "_LIMIT_S", 1e-4)
    assert {step.status for step in time_steps(workload, reordered(workload))} <= {
        "build_timeout",
        "run_timeout",
    }
