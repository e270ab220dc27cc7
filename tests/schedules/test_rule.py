"""One object, five uses: by hand, by default, as a space, as dlight's rule, as MetaSchedule's space."""

import logging
import sys

import numpy as np
import pytest
import tunesmith as ts
import tvm
import tvm_ffi
from tunesmith.machine.process import load_tensor_intrinsics
from tunesmith.schedules import RULES, rules_for
from tunesmith.schedules.algorithms import in_form
from tunesmith.schedules.code_generation import finished
from tunesmith.schedules.cpu.general import schedule_general
from tunesmith.schedules.cpu.register_tile import register_tile
from tunesmith.schedules.passes.in_place import IN_PLACE_MARK
from tunesmith.schedules.passes.loop_partition import PARTITION_MARK
from tunesmith.tuning.measuring.verdict import compare
from tunesmith.tuning.measuring.verification import expected_output, inputs_for, workload_tolerance
from tunesmith.tuning.records.compilation import replay_trace, trace_text
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, Trace, dlight
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder.local_builder import default_export

CONV = {"n": 2, "h": 5, "w": 13, "ci": 3, "co": 21, "kh": 3, "kw": 3, "padding": 1}
WORKLOADS = {
    "matmul": ts.workload("matmul", m=37, n=70, k=33),
    "linear_relu": ts.workload("linear_relu", dtype="float16", m=40, n=64, k=33),
    "conv2d": ts.workload("conv2d", **CONV),
    "conv2d_nchw": ts.workload("conv2d", layout="NCHW", bias=1, relu=1, stride=2, **CONV),
    "add": ts.workload("add", m=33, n=64),
}
CASES = [
    pytest.param(w, rule, id=f"{name}-{rule.name}")
    for name, w in WORKLOADS.items()
    for rule in rules_for(w.func, ts.host_target())
]


def assert_same(got, want):
    tvm.ir.assert_structural_equal(got.mod, want.mod)


@pytest.mark.parametrize(("workload", "rule"), CASES)
def test_the_trace_makes_the_same_program_again(workload, rule, target):
    scheduled = rule.scheduled(workload.func, target)
    again = Schedule(in_form(workload.func, trace_text(scheduled)))
    scheduled.trace.apply_to_schedule(again, remove_postproc=False)
    assert_same(again, scheduled)
    assert_same(replay_trace(trace_text(scheduled), workload.func), scheduled)


@pytest.mark.parametrize(
    ("name", "rule", "by_hand", "knobs"),
    [
        ("matmul", "matmul", register_tile, {"mr": 4, "block_rows": 2, "block_columns": 1, "pack": 2}),
        ("conv2d", "conv2d", register_tile, {"mr": 4, "block_rows": 3, "split_columns": 0, "pack": 2}),
        ("conv2d", "general", schedule_general, {"parallel": 0}),
        ("add", "general", schedule_general, {"lanes": 4}),
    ],
)
def test_a_hand_schedule_is_a_point_of_the_space(name, rule, by_hand, knobs, target):
    func, rule = WORKLOADS[name].func, ts.schedule_rules()[rule]
    space = rule.space(func, target)
    sch = Schedule(func)
    by_hand(sch, **{**space.default, **knobs})
    assert_same(rule.scheduled(func, target, knobs), sch)
    assert space.allows({**space.default, **knobs})
    assert not tvm_ffi.structural_equal(sch.mod, rule.scheduled(func, target).mod)


@pytest.mark.parametrize("name", WORKLOADS)
def test_scheduling_leaves_the_function_as_it_was(name, target):
    func = WORKLOADS[name].func
    before = tvm_ffi.structural_hash(func)
    first, _ = ts.apply_default(func, target)
    assert tvm_ffi.structural_hash(func) == before
    assert_same(ts.apply_default(func, target)[0], first)


def test_a_rule_that_does_not_apply_is_none(target):
    func, conv2d = WORKLOADS["matmul"].func, ts.schedule_rules()["conv2d"]
    assert conv2d.space(func, target) is None
    assert conv2d.scheduled(func, target) is None
    assert conv2d.apply(func, target, False) is None


def test_dlight_schedules_every_function_of_a_module(target, run):
    mod = tvm.IRModule({name: w.func.with_attr("global_symbol", name) for name, w in WORKLOADS.items()})
    with target:
        scheduled = dlight.ApplyDefaultSchedule(*RULES)(mod)
    for name, workload in WORKLOADS.items():
        func = scheduled[name]
        assert func.attrs["tirx.is_scheduled"], name
        want, _ = ts.apply_default(workload.func, target)
        plain = func.without_attr("tirx.is_scheduled").with_attr("global_symbol", "main")
        tvm.ir.assert_structural_equal(plain, finished(want.mod, target)["main"])
        inputs = inputs_for(workload.inputs, 3, workload.output.dtype)
        verdict = compare(
            run(func.with_attr("global_symbol", "main"), inputs)[0],
            expected_output(workload, inputs),
            workload_tolerance(workload),
        )
        assert verdict.ok, f"{name}: {verdict.message}"


def test_what_dlight_schedules_needs_no_more_than_tvm(target):
    workload = ts.workload("softmax", m=64, n=333)
    marks = (PARTITION_MARK, IN_PLACE_MARK)
    assert all(mark in ts.apply_default(workload.func, target)[0].mod.script() for mark in marks)
    with target:
        scheduled = dlight.ApplyDefaultSchedule(*RULES)(tvm.IRModule({"main": workload.func}))
    assert not any(mark in scheduled.script() for mark in marks)
    inputs = inputs_for(workload.inputs, 3, workload.output.dtype)
    given, found = tvm.runtime.tensor(inputs[0]), tvm.runtime.empty(workload.output.shape)
    tvm.compile(scheduled, target=target)["main"](given, found)
    assert compare(found.numpy(), expected_output(workload, inputs), workload_tolerance(workload)).ok


def test_as_a_meta_schedule_space_a_rule_offers_distinct_points_whose_traces_replay(target):
    load_tensor_intrinsics(target)
    workload, rule = WORKLOADS["matmul"], ts.schedule_rules()["matmul"]
    context = ms.TuneContext(workload.func, target=target, space_generator=rule, num_threads=1)
    with target:
        designs = context.generate_design_space()
    assert len({tvm_ffi.structural_hash(d.mod) for d in designs}) == len(designs) > 8
    # The default cuts off the last of 37 rows, which TVM alone does not do well.
    assert PARTITION_MARK in rule.scheduled(workload.func, target).mod.script()
    assert PARTITION_MARK not in designs[0].mod.script()
    for design in designs[:3]:
        again = Schedule(workload.func)
        Trace(design.trace.insts, {}).apply_to_schedule(again, remove_postproc=False)
        assert_same(again, design)


def test_a_meta_schedule_space_begins_with_the_default_where_tvm_alone_compiles_it_as_well(target):
    func, rule = ts.workload("matmul", m=48, n=64, k=33).func, ts.schedule_rules()["matmul"]
    with target:
        assert_same(rule(Schedule(func))[0], rule.scheduled(func, target))


def test_a_meta_schedule_space_needs_a_target_in_scope(target):
    with pytest.raises(ts.InputError, match="under `with target:`"):
        ts.schedule_rules()["matmul"](Schedule(WORKLOADS["matmul"].func))
    with target:
        assert ts.schedule_rules()["conv2d"](Schedule(WORKLOADS["matmul"].func)) == []


@derived_object
class BuilderHere(ms.builder.PyBuilder):
    """TVM's own starts processes that take 14 s to import every intrinsic."""

    def build(self, inputs):
        return [
            ms.builder.BuilderResult(default_export(tvm.tirx.build(i.mod, target=i.target)), None)
            for i in inputs
        ]


def test_tune_tir_searches_the_space_of_a_rule(target, tmp_path, assert_right, monkeypatch):
    monkeypatch.setattr(sys.modules["tunesmith.schedules.rule"], "META_SCHEDULE_POINTS", 6)
    load_tensor_intrinsics(target)
    # tune_tir puts handlers of its own on this logger and sets its level to what it was.
    logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.CRITICAL)
    workload, rule = WORKLOADS["matmul"], ts.schedule_rules()["matmul"]
    with target:
        database = ms.tune_tir(
            workload.func,
            target,
            str(tmp_path),
            max_trials_global=3,
            num_trials_per_iter=3,
            builder=BuilderHere(),
            runner=ms.runner.LocalRunner(evaluator_config=ms.runner.EvaluatorConfig(1, 1, 0)),
            database="memory",
            cost_model="none",
            strategy="replay-trace",
            space=rule,
            num_tuning_cores=1,
            seed=1,
        )
    records = database.get_all_tuning_records()
    assert len(records) == 3
    assert all(0 < float(t) < 1 for record in records for t in record.run_secs)
    with target:
        designs = {tvm_ffi.structural_hash(design.mod) for design in rule(Schedule(workload.func))}
    for record in records:
        best = Schedule(workload.func)
        record.trace.apply_to_schedule(best, remove_postproc=False)
        assert tvm_ffi.structural_hash(best.mod) in designs
    assert_right(workload, ms.tir_integration.compile_tir(database, workload.func, target))


def test_numpy_integers_are_knobs_too(target):
    func, rule = WORKLOADS["matmul"].func, ts.schedule_rules()["matmul"]
    assert_same(rule.scheduled(func, target, {"mr": np.int64(4)}), rule.scheduled(func, target, {"mr": 4}))
