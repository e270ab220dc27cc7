"""What other workloads teach."""

from dataclasses import replace
from itertools import count

import pytest
import tunesmith as ts
import tvm
from tunesmith.machine.target import host_target, target_text
from tunesmith.tuning.learning.experience import dims_of, experiences
from tunesmith.tuning.records.record import Record, Status

IDS = count()


@pytest.fixture
def database(tmp_path):
    with ts.Database(tmp_path / "t.db") as opened:
        yield opened


def add(database, workload, knob, seconds, **fields):
    record = Record(
        id=f"{next(IDS):012}",
        created="2026-01-01T00:00:00+00:00",
        operator=workload.name,
        shape=dict(workload.shape),
        dtype=workload.dtype,
        workload_hash=workload.hash,
        workload_ir=f"text of {workload.label}",
        target=target_text(host_target()),
        machine_fingerprint="m",
        space="tiles",
        strategy="grid",
        seed=0,
        knobs={"rows": knob},
        trace=f"trace {knob}",
        status=Status.OK if seconds else Status.CRASHED,
        verified=bool(seconds),
        max_error=None,
        run_secs=(seconds,) if seconds else (),
        build_s=0.1,
        message="",
        tvm_version="",
        tunesmith_version="",
    )
    database.add(replace(record, **fields))


def learned(database, workload, space="tiles"):
    return experiences(database, workload, target_text(host_target()), space)


@pytest.fixture
def shapes():
    return [ts.workload("matmul", m=m, n=16, k=16) for m in (16, 32, 64)]


def test_throughputs_are_shares_of_the_best_of_their_workload(database, shapes):
    mine, other, third = shapes
    for knob, seconds in ((1, 4.0), (2, 1.0), (4, None)):
        add(database, other, knob, seconds)
    for knob, seconds in ((1, 40.0), (2, 80.0)):
        add(database, third, knob, seconds)
    found = learned(database, mine)
    assert [(e.shape["m"], e.knobs["rows"], e.share) for e in found] == [
        *((32, 1, 0.25), (32, 2, 1.0), (32, 4, 0.0)),
        *((64, 1, 1.0), (64, 2, 0.5)),
    ]
    assert {e.workload_hash for e in found} == {other.hash, third.hash}
    assert found[0].trace == "trace 1" and found[0].workload_ir == f"text of {other.label}"


def test_a_confirmed_time_counts_before_that_of_the_trial(database, shapes):
    add(database, shapes[1], 1, 1.0)
    add(database, shapes[1], 2, 1.0, confirmed_secs=(2.0, 2.0, 9.0))
    assert [e.share for e in learned(database, shapes[0])] == [1.0, 0.5]


def test_warm_and_cold_trials_are_shares_of_their_own_best(database, shapes):
    for cache, times in (("warm", (1.0, 2.0)), ("cold", (5.0, 10.0))):
        for knob, seconds in zip((1, 2), times, strict=True):
            add(database, shapes[1], knob, seconds, cache=cache, key=str(knob))
    assert [e.share for e in learned(database, shapes[0])] == [1.0, 0.5, 1.0, 0.5]


def test_own_trials_are_no_experience(database, shapes):
    for knob in (1, 2):
        add(database, shapes[0], knob, 1.0)
    assert learned(database, shapes[0]) == []


def test_one_right_trial_alone_says_nothing(database, shapes):
    add(database, shapes[1], 1, 1.0)
    add(database, shapes[1], 2, None)
    assert learned(database, shapes[0]) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"operator": "linear_relu"},
        {"dtype": "float16"},
        {"space": "sketch"},
        {"target": '{"kind": "cuda"}'},
        {"verified": False},
    ],
)
def test_what_is_not_alike_says_nothing(database, shapes, fields):
    for knob in (1, 2):
        add(database, shapes[1], knob, 1.0, **fields)
    assert learned(database, shapes[0]) == []


def of_a_model(workload, name="fused_matmul_add"):
    return replace(workload, name=name, shape={})


@pytest.mark.parametrize("shaped", [True, False])
def test_a_function_of_a_model_learns_from_all_by_the_extents_of_loops(database, shapes, shaped):
    other = shapes[1] if shaped else of_a_model(shapes[1], "fused_matmul_relu")
    for knob in (1, 2):
        add(database, other, knob, knob, workload_ir=tvm.ir.save_json(other.func))
    mine = of_a_model(shapes[0])
    assert [(e.shape, e.share) for e in learned(database, mine)] == [
        ({"outer": 1, "row": 32, "column": 16, "sums": 16}, share) for share in (1.0, 0.5)
    ]
    assert dims_of(mine) == {"outer": 1, "row": 16, "column": 16, "sums": 16}
    assert dims_of(shapes[0]) == shapes[0].shape


def test_a_function_that_cannot_be_read_teaches_others_nothing(database, shapes):
    for knob in (1, 2):
        add(database, shapes[1], knob, knob, workload_ir="{}")
    assert learned(database, of_a_model(shapes[0])) == []


@pytest.mark.parametrize(
    "fields", [{"dtype": "float16"}, {"space": "sketch"}, {"target": '{"kind": "cuda"}'}]
)
def test_a_function_learns_nothing_from_what_is_not_alike(database, shapes, fields):
    for knob in (1, 2):
        add(database, shapes[1], knob, knob, workload_ir=tvm.ir.save_json(shapes[1].func), **fields)
    assert learned(database, of_a_model(shapes[0])) == []


def test_machines_have_their_own_best(database, shapes):
    for machine, factor in (("slow", 10.0), ("fast", 1.0)):
        for knob in (1, 2):
            add(database, shapes[1], knob, knob * factor, machine_fingerprint=machine)
    assert [e.share for e in learned(database, shapes[0])] == [1.0, 0.5, 1.0, 0.5]
