import dataclasses
import json
import math

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import host_target, target_text
from tunesmith.tuning.records.compilation import replay_trace, scheduled_from_record
from tunesmith.tuning.reporting.progress import quiet
from tvm.s_tir import meta_schedule as ms
from tvm_ffi import structural_equal

# What a busy machine holds up is not given up.
BRIEF = {
    "timing": ts.Timing(repeat=1, min_repeat_ms=0.1, budget_s=0.01),
    "give_up_factor": math.inf,
    "progress": quiet,
}


@pytest.fixture(scope="module")
def database(small, tiles, tmp_path_factory):
    path = tmp_path_factory.mktemp("database") / "t.db"
    for options in ({}, {"space": "sketch"}, {"space": tiles, "strategy": "grid"}):
        ts.tune(small, database=path, trials=3, **options, **BRIEF)
    with ts.Database(path) as database:
        yield database


@pytest.fixture(scope="module")
def inputs(small):
    return [np.random.default_rng(0).uniform(-1, 1, a.shape).astype(a.dtype) for a in small.inputs]


def test_compiled_workload_is_right_and_says_where_it_comes_from(small, database, inputs):
    want = small.reference(*inputs)
    default = ts.compile(small)
    assert np.allclose(default(*inputs), want, atol=1e-4)
    assert default.origin == "default schedule (matmul)"
    best = database.best(small.hash, target_text(host_target()))
    tuned = ts.compile(small, database)
    assert np.allclose(tuned(*inputs), want, atol=1e-4)
    assert tuned.origin == f"record {best.id} ({best.space})"


def test_records_of_another_target_are_not_applied(small, database):
    target = {"kind": "llvm", "mcpu": "x86-64", "num-cores": 1}
    assert ts.compile(small, database, target).origin.startswith("default schedule")


def test_every_record_gives_its_schedule_again(small, database):
    records = database.records()
    assert {r.space for r in records} == {"matmul", "sketch", "tiles"} and len(records) == 9
    for record in records:
        by_record = scheduled_from_record(record, small.func, host_target())
        by_trace = replay_trace(record.trace, small.func)
        assert structural_equal(by_record.mod, by_trace.mod)
        assert not structural_equal(by_trace.mod["main"], small.func)


def test_record_without_schedule_is_refused(small, database):
    record = dataclasses.replace(database.records(space="tiles")[0], knobs=None, trace=None)
    with pytest.raises(ts.InputError, match="before it had a schedule"):
        scheduled_from_record(record, small.func, host_target())


def test_trace_of_another_function_is_refused(database):
    trace = database.records(space="matmul")[0].trace
    with pytest.raises(ts.InputError, match=r"^the trace does not fit this function: [^\n]*$"):
        replay_trace(trace, ts.workload("relu", m=8, n=8).func)


@pytest.mark.parametrize("trace", ["not json", "[]", "{}", json.dumps([[["NoSuchStep", [], [], []]], []])])
def test_damaged_trace_is_refused(small, trace):
    with pytest.raises(ts.InputError, match="the trace does not fit this function"):
        replay_trace(trace, small.func)


def test_workload_in_the_database_is_the_workload(small, database):
    assert structural_equal(tvm.ir.load_json(database.workload_ir(small.hash)), small.func)


def test_meta_schedule_applies_the_best_record(small, database):
    best = database.best(small.hash, target_text(host_target()))
    want = scheduled_from_record(best, small.func, host_target()).mod["main"]
    target = host_target()
    found = ms.tir_integration.compile_tir(database.as_meta_schedule(target), small.func, target)
    assert structural_equal(found.mod["main"], want)
    mod = tvm.IRModule({"own_name": small.func.with_attr("global_symbol", "own_name")})
    with target, database.as_meta_schedule(target):
        applied = tvm.relax.transform.MetaScheduleApplyDatabase()(mod)["own_name"]
    assert applied.attrs["tirx.is_scheduled"]
    assert structural_equal(applied.body, want.body, map_free_vars=True)


def test_meta_schedule_finds_nothing_for_another_workload_or_target(small, database):
    target = host_target()
    other = ts.workload("matmul", m=8, n=8, k=8)
    assert ms.tir_integration.compile_tir(database.as_meta_schedule(target), other.func, target) is None
    generic = {"kind": "llvm", "mcpu": "x86-64"}
    assert len(database.as_meta_schedule(generic)) == 0
    assert len(database.as_meta_schedule(target)) == 9


def test_a_trace_that_brings_foreign_code_is_refused(small):
    trace = [[["GetSBlock", [], ["matmul", "main"], ["b0"]]], []]
    code = ["Annotate", ["b0", '"int puts(char*); void f() { puts(0); }"'], ["pragma_import_c"], []]
    assert replay_trace(json.dumps(trace), small.func) is not None
    trace[0].append(code)
    with pytest.raises(InputError, match="foreign code"):
        replay_trace(json.dumps(trace), small.func)
