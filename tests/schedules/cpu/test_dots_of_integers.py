"""A few rows of integers by a matrix that is contiguous along the sum: several products a lane at once."""

import re

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels.operator import as_prim_func
from tunesmith.machine.dot_instructions import dot_instruction
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.schedules import rules_for
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.c_source import c_source
from tunesmith.schedules.cpu.dots import DOTS
from tvm import te

X86, ARM = "x86_64-linux-gnu", "aarch64-linux-gnu"
MACHINES = [
    ("znver4", X86, ("uint8", "int8"), r"vpdpbusd.*%zmm"),
    ("alderlake", X86, ("uint8", "int8"), r"vpdpbusd.*%ymm"),
    ("skylake-avx512", X86, ("int8", "int8"), r"vpmaddwd.*%zmm"),
    ("haswell", X86, ("uint8", "int8"), r"vpmaddwd.*%ymm"),
    ("haswell", X86, ("int8", "int16"), r"vpmaddwd.*%ymm"),
    ("neoverse-v1", ARM, ("uint8", "int8"), r"usdot\s+v\d+\.4s"),
    ("neoverse-n1", ARM, ("int8", "int8"), r"sdot\s+v\d+\.4s"),
]
HERE = dot_instruction(ts.host_target(), "uint8", "int8")
summing = pytest.mark.skipif(HERE is None, reason="this CPU sums no products of bytes")


def product(m, n, k, data="uint8", weight="int8"):
    A, B = te.placeholder((m, k), data, name="A"), te.placeholder((n, k), weight, name="B")
    r = te.reduce_axis((0, k), name="k")
    total = te.compute((m, n), lambda i, j: te.sum(A[i, r].astype("int32") * B[j, r].astype("int32"), axis=r))
    return as_prim_func([A, B, total])


def drawn(m, n, k, data, weight):
    """Draw inputs of every size that a type has, the largest and the smallest among them."""
    rng = np.random.default_rng(m * n)
    a, b = (
        rng.integers(np.iinfo(d).min, np.iinfo(d).max, shape, d, endpoint=True)
        for d, shape in ((data, (m, k)), (weight, (n, k)))
    )
    a[0], b[0] = np.iinfo(data).max, np.iinfo(weight).min
    return a, b, (a.astype("int64") @ b.astype("int64").T).astype("int32")


def machine(mcpu, triple):
    return tvm.target.Target({"kind": "llvm", "mtriple": triple, "mcpu": mcpu, "num-cores": 2})


@summing
@pytest.mark.parametrize(
    ("operator", "shape", "dtype"),
    [
        ("quantized_linear", {"m": 1, "n": 40, "k": 1024, "zero": 7}, "uint8"),
        ("quantized_linear", {"m": 3, "n": 96, "k": 512}, "uint8"),
        ("quantized_linear", {"m": 12, "n": 50, "k": 576, "zero": 255}, "uint8"),
        ("quantized_linear", {"m": 3, "n": 50, "k": 544, "zero": 255}, "uint8"),  # halves of vectors
        ("quantized_linear", {"m": 3, "n": 96, "k": 528}, "uint8"),  # or others
        ("linear_relu", {"m": 2, "n": 33, "k": 640}, "int8"),
        ("matmul", {"m": 1, "n": 64, "k": 512, "transpose": "NT"}, "int8"),
    ],
)
def test_every_kind_of_point_is_right(operator, shape, dtype, target, without_tiles, assert_points_right):
    workload = ts.workload(operator, dtype=dtype, **shape)
    assert rules_for(workload.func, without_tiles)[0] is DOTS
    space = DOTS.space(workload.func, target)
    assert_points_right(DOTS, workload, space.points[:: max(1, len(space) // 4)])


@summing
@pytest.mark.parametrize("weight", [-128, 127])
def test_sums_of_extremes_are_exact(weight, target, run):
    """Instructions that saturate in between are wrong here."""
    inputs = np.full((2, 64_000), 255, "uint8"), np.full((24, 64_000), weight, "int8")
    schedule = DOTS.scheduled(product(2, 24, 64_000), target)
    np.testing.assert_array_equal(run(schedule, inputs)[0], np.full((2, 24), 255 * weight * 64_000, "int32"))


@pytest.mark.parametrize(("mcpu", "triple", "types", "instruction"), MACHINES)
def test_each_cpu_has_its_own_instruction(mcpu, triple, types, instruction):
    target, func = machine(mcpu, triple), product(2, 96, 1024, *types)
    schedule, rule = ts.apply_default(func, target)
    assert rule is DOTS
    code = tvm.compile(schedule.mod, target=target).mod.inspect_source("asm")
    assert re.search(instruction, code)
    loop, knobs = inner_loop(code), DOTS.space(func, target).default
    assert (loop.accumulators, loop.spills) == (knobs["mr"] * knobs["nr"], 0)


@pytest.mark.parametrize(("mcpu", "triple", "types", "instruction"), MACHINES)
def test_what_other_cpus_compute_is_right_in_c(mcpu, triple, types, instruction, compiled_c):
    a, b, right = drawn(3, 26, 1024, *types)
    schedule = DOTS.scheduled(product(3, 26, 1024, *types), machine(mcpu, triple))
    output = np.empty((3, 26), "int32")
    function, _ = compiled_c(c_source(schedule, "kernel"), "kernel")
    function(a, b, output)
    np.testing.assert_array_equal(output, right)


@pytest.mark.parametrize(
    ("mcpu", "depth", "instruction", "most_rows"),
    [
        ("znver4", 1056, r"vpdpbusd.*%ymm", 32),
        ("znver4", 1040, r"vpdpwssd.*%ymm", 8),  # as LLVM has it add the products
        ("znver4", 1048, r"vpdpwssd.*%xmm", 4),
        ("alderlake", 1048, r"vpdpwssd.*%xmm", 8),
        ("haswell", 1048, r"vpmaddwd.*%xmm", 8),
    ],
)
def test_sums_that_are_no_whole_vectors_are_summed_in_parts_of_them(
    mcpu, depth, instruction, most_rows, compiled_c
):
    target = machine(mcpu, X86)
    a, b, right = drawn(most_rows, 64, depth, "uint8", "int8")
    schedule, rule = ts.apply_default(product(most_rows, 64, depth), target)
    assert rule is DOTS and DOTS.space(product(most_rows + 1, 64, depth), target) is None
    assert re.search(instruction, tvm.compile(schedule.mod, target=target).mod.inspect_source("asm"))
    output = np.empty((most_rows, 64), "int32")
    function, _ = compiled_c(c_source(schedule, "kernel"), "kernel")
    function(a, b, output)
    np.testing.assert_array_equal(output, right)


@summing
@pytest.mark.parametrize("knobs", [{"products": 3}, {"products": 5}, {"lanes": 64}, {"products": 0}])
def test_a_point_without_an_instruction_is_refused(knobs, target):
    with pytest.raises(InputError, match=f"lanes is {HERE.lanes} and products is {HERE.products}: those of"):
        DOTS.scheduled(product(1, 64, 3072), target, knobs)


@summing
def test_more_rows_are_for_weights_that_the_second_cache_does_not_hold(without_tiles):
    beyond = 4 * facts(without_tiles).l2_bytes // 256 + 1024
    deep = beyond - beyond % 1024
    for rows, depth, taken in ((6, 1024, True), (7, 1024, False), (32, deep, True), (33, deep, False)):
        func = ts.workload("quantized_linear", m=rows, n=256, k=depth).func
        assert (rules_for(func, without_tiles)[0] is DOTS) == taken, (rows, depth)


def test_others_are_left_alone(target):
    cortex = machine("cortex-a72", ARM)
    for func, where in (
        (product(2, 64, 1024 + 1), target),  # no whole steps
        (product(2, 64, 64), target),  # few of them
        (product(2, 64, 1024, "int32"), target),
        (product(2, 64, 1024), cortex),
    ):
        assert DOTS.space(func, where) is None


@summing
def test_a_trace_is_replayed_where_the_intrinsics_are_unknown(target, assert_replayed_elsewhere):
    workload = ts.workload("quantized_linear", m=1, n=64, k=1024)
    schedule = DOTS.scheduled(workload.func, target)
    assert_replayed_elsewhere(workload, schedule, r"tunesmith_parts_\w+", HERE.function)
