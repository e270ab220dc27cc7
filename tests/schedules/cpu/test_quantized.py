"""Sums of byte products in one instruction: where the rule applies, that they are exact, and traces."""

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels.operator import as_prim_func
from tunesmith.schedules import rules_for
from tunesmith.schedules.cpu.quantized import QUANTIZED
from tunesmith.schedules.dot_product import has_dot_products
from tunesmith.tuning.processes.worker import WorkerGroup
from tunesmith.tuning.records.compilation import trace_text
from tvm import te

CONV = {"n": 2, "h": 7, "w": 9, "ci": 8, "co": 48, "kh": 3, "kw": 3, "padding": 1, "data_zero": 100}
WORKLOADS = {
    "whole": ("quantized_matmul", {"m": 32, "n": 96, "k": 64}),
    "only_the_sum_is_padded": ("quantized_matmul", {"m": 8, "n": 64, "k": 30}),
    "all_are_padded": ("quantized_matmul", {"m": 37, "n": 83, "k": 65}),
    "weight_by_output": ("quantized_linear", {"m": 24, "n": 64, "k": 128, "zero": 9}),
    "padded_weight_by_output": ("quantized_linear", {"m": 21, "n": 50, "k": 43, "zero": 9}),
    "window": ("quantized_conv2d", CONV),
    "window_of_few_channels": ("quantized_conv2d", {**CONV, "ci": 3, "co": 20, "stride": 2}),
    "pixel_by_pixel": ("quantized_conv2d", {**CONV, "kh": 1, "kw": 1, "padding": 0}),
}

vnni = pytest.mark.skipif(not has_dot_products(ts.host_target()), reason="this CPU has no AVX-512 VNNI")


def of(name):
    op, shape = WORKLOADS[name]
    return ts.workload(op, **shape)


def sums(data="uint8", weight="int8", wide="int32", weight_first=False, rows=32):
    """Return a matrix product of other types, or written in another order."""
    A, B = te.placeholder((rows, 64), data, name="A"), te.placeholder((64, 32), weight, name="B")
    k = te.reduce_axis((0, 64), name="k")

    def at(i, j):
        a, b = A[i, k].astype(wide), B[k, j].astype(wide)
        return te.sum(b * a if weight_first else a * b, axis=k)

    return as_prim_func([A, B, te.compute((rows, 32), at, name="C")])


@vnni
@pytest.mark.parametrize("name", WORKLOADS)
def test_points_of_the_space_are_right(name, target, assert_right):
    workload = of(name)
    points = QUANTIZED.space(workload.func, target).points
    drawn = np.random.default_rng(7).choice(len(points), 6, replace=False)
    for knobs in ({}, *(points[i] for i in drawn)):
        assert_right(workload, QUANTIZED.scheduled(workload.func, target, knobs))


@vnni
@pytest.mark.parametrize("weight", [-128, 127])
@pytest.mark.parametrize("k", [65, 64_000])
def test_sums_of_extremes_are_exact(k, weight, target, run):
    """Instructions that saturate in between are wrong here."""
    schedule = QUANTIZED.scheduled(ts.workload("quantized_matmul", m=4, n=16, k=k).func, target)
    inputs = np.full((4, k), 255, "uint8"), np.full((k, 16), weight, "int8")
    np.testing.assert_array_equal(run(schedule, inputs)[0], np.full((4, 16), 255 * weight * k, "int32"))


@vnni
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_instruction_is_all_there_is(name, target):
    schedule, rule = ts.apply_default(of(name).func, target)
    assert rule is QUANTIZED
    code = tvm.compile(schedule.mod, target=target).mod.inspect_source("asm")
    assert "vpdpbusd" in code
    assert "vpmulld" not in code


@vnni
def test_columns_that_are_contiguous_are_packed_in_registers(target):
    assert "T.Shuffle(" in QUANTIZED.scheduled(of("whole").func, target).mod.script()


@pytest.mark.parametrize(
    "func",
    [
        ts.workload("matmul", m=32, n=32, k=64).func,
        ts.workload("matmul", dtype="int8", m=32, n=32, k=64).func,
        sums("int8", "uint8"),
        sums("uint8", "uint8"),
        sums(wide="int64"),
        sums(weight_first=True),
        ts.workload("quantized_matmul", m=32, n=8, k=64).func,  # half a vector of columns
        ts.workload("quantized_matmul", m=2, n=64, k=64).func,  # a weight that is hardly used
    ],
)
def test_others_are_left_alone(func, target):
    assert QUANTIZED.space(func, target) is None


@vnni
def test_a_constant_weight_may_have_few_rows(target):
    constant = sums(rows=2).with_attr("layout_free_buffers", [1])
    assert QUANTIZED.space(constant, target).default["pack"] == 2


def test_other_targets_have_the_rules_for_any_numbers():
    workload = of("whole")
    for cpu in ("skylake-avx512", "haswell"):
        target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": 2})
        assert not has_dot_products(target)
        assert rules_for(workload.func, target)[0].name == "matmul"


@vnni
def test_a_trace_is_replayed_where_the_intrinsics_are_unknown(target, tmp_path):
    trace = tmp_path / "trace.json"
    trace.write_text(trace_text(QUANTIZED.scheduled(of("whole").func, target)))
    code = f"""
import tunesmith as ts
from tunesmith.schedules.dot_product import DOT_PRODUCTS
from tunesmith.tuning.records.compilation import replay_trace
from tvm.s_tir import TensorIntrin
w = ts.workload("quantized_matmul", m=32, n=96, k=64)
assert TensorIntrin.get(DOT_PRODUCTS, allow_missing=True) is None
assert "vpdpbusd" in replay_trace(open({str(trace)!r}).read(), w.func).mod.script()
"""
    with WorkerGroup(1) as group:
        group.workers[0].call(exec, code, 120)
