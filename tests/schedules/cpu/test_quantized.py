"""Sums of byte products in one instruction: where the rule applies, that they are exact, and traces."""

import re

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels.operator import as_prim_func
from tunesmith.machine.dot_instructions import dot_instruction
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.analysis import block_names
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.c_source import c_source
from tunesmith.schedules.cpu.quantized import QUANTIZED
from tunesmith.schedules.forms.widened import restate
from tunesmith.tuning.records.compilation import build
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

VNNI = as_target({"kind": "llvm", "mcpu": "znver4", "mtriple": "x86_64-linux-gnu", "num-cores": 2})
HERE = dot_instruction(ts.host_target(), "uint8", "int8")
summing = pytest.mark.skipif(HERE is None, reason="this CPU sums no products of bytes")
masked = pytest.mark.skipif(HERE is None or HERE.lanes < 16, reason="this CPU has no masks")


def of(name):
    op, shape = WORKLOADS[name]
    return ts.workload(op, **shape)


def product(m, n, k, data="uint8", weight="int8", transpose="NN", wide="int32", weight_first=False):
    """Return a matrix product of any integers, in any order."""
    A = te.placeholder((m, k) if transpose[0] == "N" else (k, m), data, name="A")
    B = te.placeholder((k, n) if transpose[1] == "N" else (n, k), weight, name="B")
    r = te.reduce_axis((0, k), name="k")

    def at(i, j):
        a = A[(i, r) if transpose[0] == "N" else (r, i)].astype(wide)
        b = B[(r, j) if transpose[1] == "N" else (j, r)].astype(wide)
        return te.sum(b * a if weight_first else a * b, axis=r)

    return as_prim_func([A, B, te.compute((m, n), at, name="C")])


@summing
@pytest.mark.parametrize("name", WORKLOADS)
def test_points_of_the_space_are_right(name, target, assert_points_right):
    workload = of(name)
    points = QUANTIZED.space(workload.func, target).points
    drawn = np.random.default_rng(7).choice(len(points), 6, replace=False)
    assert_points_right(QUANTIZED, workload, [points[i] for i in drawn])


@summing
@pytest.mark.parametrize("weight", [-128, 127])
@pytest.mark.parametrize("k", [65, 64_000])
def test_sums_of_extremes_are_exact(k, weight, target, run):
    """Instructions that saturate in between are wrong here."""
    schedule = QUANTIZED.scheduled(ts.workload("quantized_matmul", m=4, n=16, k=k).func, target)
    inputs = np.full((4, k), 255, "uint8"), np.full((k, 16), weight, "int8")
    np.testing.assert_array_equal(run(schedule, inputs)[0], np.full((4, 16), 255 * weight * k, "int32"))


@summing
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_instruction_is_all_there_is(name, without_tiles, target):
    schedule, rule = ts.apply_default(of(name).func, without_tiles)
    assert rule is QUANTIZED
    code = tvm.compile(schedule.mod, target=target).mod.inspect_source("asm")
    assert HERE.mnemonic in code
    assert "vpmulld" not in code


@summing
@pytest.mark.parametrize("knobs", [{"products": 3}, {"products": 8}, {"products": 0}, {"lanes": 1, "nr": 1}])
def test_a_point_without_an_instruction_is_refused(knobs, target):
    with pytest.raises(InputError, match=f"lanes is {HERE.lanes} and products is {HERE.products}: those of"):
        QUANTIZED.scheduled(of("whole").func, target, knobs)


@summing
def test_columns_that_are_contiguous_are_packed_in_registers(target):
    assert "T.Shuffle(" in QUANTIZED.scheduled(of("whole").func, target).mod.script()


@pytest.mark.parametrize(
    ("mcpu", "name", "interleaved"),
    [
        ("znver4", "all_are_padded", True),
        ("znver4", "only_the_sum_is_padded", True),
        ("haswell", "all_are_padded", False),
    ],
)
def test_a_weight_that_ends_within_a_panel_is_interleaved_where_there_are_masks(mcpu, name, interleaved):
    """Another copy fills it up; without masks that one would take longer than elements one by one."""
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    schedule = QUANTIZED.scheduled(of(name).func, target)
    assert ("T.Shuffle(" in schedule.mod.script()) == interleaved


@pytest.mark.parametrize(("mcpu", "turned"), [("znver4", True), ("haswell", False)])
def test_a_weight_along_a_sum_that_ends_within_squares_is_turned_where_there_are_masks(mcpu, turned):
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    workload = ts.workload("quantized_linear", m=20, n=96, k=63)
    assert ("T.Shuffle(" in QUANTIZED.scheduled(workload.func, target).mod.script()) == turned


@summing
def test_rows_that_are_left_after_whole_tiles_are_cut_off(target, assert_right):
    workload = ts.workload("quantized_matmul", m=37, n=64, k=64)
    for knobs, copied in (({"pad": 0}, False), ({"pad": 1}, True)):
        schedule = QUANTIZED.scheduled(workload.func, target, {"mr": 4, **knobs})
        # Where no instruction takes bytes as they are, it is what is widened that is padded.
        assert bool({"A_pad", "wide_data_pad"} & set(block_names(schedule))) == copied
        assert_right(workload, schedule)


@summing
@pytest.mark.parametrize("k", [128, 150])
@pytest.mark.parametrize("which", ["A", "B", "AB"])
def test_operands_that_are_computed_are_held_in_copies(which, k, target, assert_right_of_computed):
    assert_right_of_computed(QUANTIZED, target, ("uint8", "int8", "int32"), which, k)


@summing
@pytest.mark.parametrize("transpose", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(
    ("types", "m", "n", "k"),
    [
        (("int8", "int8"), 32, 96, 64),
        (("uint8", "uint8"), 37, 83, 65),
        (("int16", "int8"), 8, 64, 30),
        (("int8", "uint8"), 37, 32, 64),
    ],
)
def test_other_integers_and_orders_are_right(transpose, types, m, n, k, target, run):
    """Where no instruction takes them as they are, they are widened."""
    func = product(m, n, k, *types, transpose, weight_first=m == 37)
    space = QUANTIZED.space(func, target)
    if space is None:
        pytest.skip("this CPU sums no products of these")
    rng = np.random.default_rng(m)
    a, b = (
        rng.integers(np.iinfo(d).min, np.iinfo(d).max, shape, d, endpoint=True)
        for d, shape in zip(types, ((m, k), (k, n)), strict=True)
    )
    inputs = [x.T.copy() if how == "T" else x for x, how in zip((a, b), transpose, strict=True)]
    for knobs in ({}, space.points[rng.integers(len(space.points))]):
        output = run(QUANTIZED.scheduled(func, target, knobs), inputs)[0]
        np.testing.assert_array_equal(output, (a.astype("int64") @ b.astype("int64")).astype("int32"))


@pytest.mark.parametrize(
    "func",
    [
        ts.workload("matmul", m=32, n=32, k=64).func,
        product(32, 32, 64, wide="int64"),
        product(32, 32, 64, "int32", "int8"),
        ts.workload("quantized_matmul", m=32, n=2, k=64).func,  # half a vector of columns at most
        ts.workload("quantized_matmul", m=2, n=64, k=64).func,  # a weight that is hardly used
    ],
)
def test_others_are_left_alone(func, target):
    assert QUANTIZED.space(func, target) is None


@summing
def test_a_constant_weight_may_have_few_rows(target):
    constant = product(2, 32, 64).with_attr("layout_free_buffers", [1])
    assert QUANTIZED.space(constant, target).default["pack"] == 2


X86, ARM = "x86_64-linux-gnu", "aarch64-linux-gnu"


@pytest.mark.parametrize(
    ("mcpu", "triple", "types", "instruction"),
    [
        ("znver4", X86, ("uint8", "int8"), r"vpdpbusd.*%zmm"),
        ("alderlake", X86, ("uint8", "int8"), r"vpdpbusd.*%ymm"),
        ("znver4", X86, ("int8", "int8"), r"vpdpwssd.*%zmm"),  # LLVM's own choice for vpmaddwd and an add
        ("skylake-avx512", X86, ("uint8", "int8"), r"vpmaddwd.*%zmm"),
        ("haswell", X86, ("uint8", "int8"), r"vpmaddwd.*%ymm"),
        ("x86-64", X86, ("uint8", "int8"), r"pmaddwd.*%xmm"),
        ("neoverse-v1", ARM, ("uint8", "int8"), r"usdot\s+v\d+\.4s"),
        ("neoverse-n1", ARM, ("int8", "int8"), r"sdot\s+v\d+\.4s"),
        ("neoverse-n1", ARM, ("uint8", "uint8"), r"udot\s+v\d+\.4s"),
    ],
)
def test_each_cpu_has_its_own_instruction(mcpu, triple, types, instruction):
    target = tvm.target.Target({"kind": "llvm", "mtriple": triple, "mcpu": mcpu, "num-cores": 2})
    schedule, rule = ts.apply_default(product(128, 128, 128, *types), target)
    assert rule is QUANTIZED
    code = tvm.compile(schedule.mod, target=target).mod.inspect_source("asm")
    assert re.search(instruction, code)
    knobs, loop = QUANTIZED.space(product(128, 128, 128, *types), target).default, inner_loop(code)
    assert loop.accumulators == knobs["mr"] * knobs["nr"] // knobs["lanes"]
    assert loop.spills == 0


@pytest.mark.parametrize("transpose", ["NN", "NT"])
@pytest.mark.parametrize(
    ("mcpu", "triple", "types"),
    [
        ("znver4", X86, ("uint8", "int8")),
        ("alderlake", X86, ("uint8", "int8")),
        ("skylake-avx512", X86, ("int8", "int8")),
        ("haswell", X86, ("uint8", "int8")),
        ("neoverse-v1", ARM, ("uint8", "int8")),
        ("neoverse-n1", ARM, ("int8", "int8")),
    ],
)
def test_what_other_cpus_compute_is_right_in_c(mcpu, triple, types, transpose, compiled_c):
    target = tvm.target.Target({"kind": "llvm", "mtriple": triple, "mcpu": mcpu, "num-cores": 2})
    m, n, k = 33, 96, 64
    schedule = QUANTIZED.scheduled(product(m, n, k, *types, transpose), target)
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(np.iinfo(d).min, np.iinfo(d).max, shape, d, endpoint=True)
        for d, shape in zip(types, ((m, k), (k, n)), strict=True)
    )
    output = np.empty((m, n), "int32")
    function, _ = compiled_c(c_source(schedule, "kernel"), "kernel")
    function(a, b.T.copy() if transpose == "NT" else b, output)
    np.testing.assert_array_equal(output, a.astype("int32") @ b.astype("int32"))


@pytest.mark.parametrize(
    ("func", "bits"),
    [
        (product(8, 32, 64, "int32", "int8"), 16),  # would lose what does not fit
        (product(8, 32, 64), 8),
        (ts.workload("matmul", m=8, n=32, k=64).func, 16),
        (ts.workload("matmul", m=8, n=32, k=64).func, 32),  # is as wide
        (ts.workload("relu", m=8, n=32).func, 16),
    ],
)
def test_a_trace_cannot_widen_what_is_no_product_of_narrower_numbers(func, bits):
    with pytest.raises(InputError, match=f"no one sum of products to widen to {bits} bits"):
        restate(func, bits)


def test_a_cpu_without_any_has_the_rules_for_any_numbers():
    target = tvm.target.Target({"kind": "llvm", "mtriple": ARM, "mcpu": "cortex-a72", "num-cores": 2})
    assert rules_for(of("whole").func, target)[0].name == "matmul"


@summing
def test_a_trace_is_replayed_where_the_intrinsics_are_unknown(target, assert_replayed_elsewhere):
    schedule = QUANTIZED.scheduled(of("whole").func, target)
    assert_replayed_elsewhere(of("whole"), schedule, r"tunesmith_dot_products_\w+", HERE.function)


@pytest.mark.parametrize("kernel", [1, 3])
def test_channels_first_that_are_no_whole_instructions(kernel, target, without_tiles, assert_right):
    """They are filled up with zeros, in a copy in which they are the last axis."""
    image = {"n": 2, "h": 7, "w": 6, "ci": 15, "co": 31, "padding": kernel // 2, "layout": "NCHW"}
    workload = ts.workload("conv2d", dtype="int8", **image, kh=kernel, kw=kernel)
    rule = rules_for(workload.func, without_tiles)[0]
    assert rule is QUANTIZED
    assert_right(workload, rule.scheduled(workload.func, target))


def test_columns_of_two_phases_need_not_be_contiguous(target, assert_right):
    """A panel of 32 of 2 x 48 columns lies in both phases of a transposed convolution."""
    shape = {"n": 1, "h": 5, "w": 33, "ci": 2, "co": 48, "kh": 5, "kw": 2, "stride": 2}
    workload = ts.workload("conv2d_transpose", dtype="int8", **shape)
    assert_right(workload, QUANTIZED.scheduled(workload.func, target))


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ({"h": 49, "ci": 192, "co": 40}, (7, 3)),
        ({"h": 13, "ci": 64, "co": 144}, (13, 1)),
        ({"h": 16, "ci": 64, "co": 64}, (8, 2)),
        ({"h": 20, "ci": 32, "co": 80}, (10, 1)),
    ],
)
def test_a_tile_pads_few_rows_and_columns_and_keeps_its_sums_in_registers(shape, tile):
    workload = ts.workload(
        "quantized_conv2d", n=1, w=shape["h"], kh=3, kw=3, padding=1, data_zero=3, zero=2, **shape
    )
    knobs = QUANTIZED.space(workload.func, VNNI).default
    assert (knobs["mr"], knobs["nr"] // knobs["lanes"]) == tile
    loop = inner_loop(build(QUANTIZED.scheduled(workload.func, VNNI), VNNI).mod.inspect_source("s"))
    assert (loop.multiply_adds % (tile[0] * tile[1]), loop.stores, loop.spills) == (0, 0, 0)


def test_results_of_one_panel_are_requantised_in_vectors():
    """Taken one by one LLVM left them so: 28x28 of 272 to 48 channels took 1.7 times as long."""
    workload = ts.workload("quantized_conv2d", n=1, h=28, w=28, ci=64, co=48, kh=1, kw=1)
    code = build(QUANTIZED.scheduled(workload.func, VNNI, {"mr": 7, "nr": 48}), VNNI).mod.inspect_source("s")
    assert "vcvtdq2ps" in code and "cvtsi2ss" not in code


@masked
@pytest.mark.parametrize("block", [2, 4])
def test_columns_that_fill_no_panels_are_filled_up_to_whole_blocks(block, target, assert_right):
    """Of 5 panels, whose rows are interleaved in vectors: no block is cut short."""
    workload = ts.workload("quantized_matmul", m=37, n=5 * 2 * HERE.lanes - 3, k=64)
    knobs = {"nr": 2 * HERE.lanes, "block_columns": block, "split_columns": 1, "pack": 1}
    schedule = QUANTIZED.scheduled(workload.func, target, knobs)
    assert "T.vectorized" in schedule.mod.script() and "interleave" in str(schedule.trace)
    assert_right(workload, schedule)


@masked
@pytest.mark.parametrize(
    ("m", "k", "turned"), [(20, 248, True), (300, 248, False), (20, 120, False), (300, 128, True)]
)
def test_sums_are_filled_up_to_squares_where_turning_them_takes_less(m, k, turned, target, assert_right):
    """8 sums of 20 rows are fewer than 8 times 248, of 300 more; they are more than a sixteenth of 120."""
    workload = ts.workload("quantized_linear", m=m, n=64, k=k, zero=3)
    schedule = QUANTIZED.scheduled(workload.func, target)
    assert ("turn_groups" in str(schedule.trace)) == turned
    assert_right(workload, schedule)
