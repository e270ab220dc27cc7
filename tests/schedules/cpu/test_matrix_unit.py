"""Products by a matrix unit: where the rule applies, that it is exact, and what instructions it comes to."""

import re

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS, as_prim_func
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import has_feature
from tunesmith.machine.target import as_target
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.c_source import c_source
from tunesmith.schedules.code_generation import finished, generate_code
from tunesmith.schedules.cpu import matrix_unit_space
from tunesmith.schedules.cpu.matrix_unit import MATRIX_UNIT
from tunesmith.schedules.transforms import PACKING_MARK
from tunesmith.tuning.measuring.verification import expected_output, inputs_of
from tunesmith.tuning.records.compilation import replay_trace, trace_text
from tvm import te

CPU = {"kind": "llvm", "mcpu": "sapphirerapids", "mtriple": "x86_64-linux", "num-cores": 2}
CONV = {"n": 2, "h": 14, "w": 14, "ci": 64, "co": 48, "kh": 3, "kw": 3, "padding": 1, "data_zero": 100}
WORKLOADS = {
    "whole": ("quantized_matmul", {"m": 64, "n": 96, "k": 256}),
    "rows_in_uneven_parts": ("quantized_matmul", {"m": 50, "n": 64, "k": 128}),
    "one_step": ("quantized_matmul", {"m": 64, "n": 512, "k": 64}),
    "all_are_padded": ("quantized_matmul", {"m": 75, "n": 83, "k": 650}),
    "weight_by_output": ("quantized_linear", {"m": 48, "n": 64, "k": 256, "zero": 9}),
    "padded_weight_by_output": ("quantized_linear", {"m": 61, "n": 50, "k": 443, "zero": 9}),
    "window": ("quantized_conv2d", CONV),
    "every_second_pixel": ("quantized_conv2d", {**CONV, "stride": 2}),
    "steps_of_part_of_a_tile": ("quantized_conv2d", {**CONV, "ci": 48, "w": 13}),
    "pixel_by_pixel": ("quantized_conv2d", {**CONV, "kh": 1, "kw": 1, "padding": 0, "ci": 256}),
    "blocks_of_fewer_panels": ("quantized_matmul", {"m": 96, "n": 500, "k": 256}),
}
# Of bfloat16.
IMAGE = {key: value for key, value in CONV.items() if key != "data_zero"}
HALVES = {
    "whole": ("matmul", {"m": 64, "n": 96, "k": 256}),
    "all_are_padded": ("matmul", {"m": 75, "n": 83, "k": 333}),
    "data_along_rows": ("matmul", {"m": 64, "n": 96, "k": 100, "transpose": "TN"}),
    "weight_by_output": ("linear", {"m": 48, "n": 64, "k": 256, "activation": "gelu", "residual": 1}),
    "padded_weight_by_output": ("linear_relu", {"m": 61, "n": 50, "k": 443}),
    "batch": ("batch_matmul", {"b": 3, "m": 40, "n": 64, "k": 96, "transpose": "NT"}),
    "window": ("conv2d", {**IMAGE, "bias": 1, "relu": 1}),
    "window_channels_first": ("conv2d", {**IMAGE, "layout": "NCHW"}),
    "lines_in_uneven_blocks": (
        "conv2d_transpose",
        {"n": 1, "h": 32, "w": 32, "ci": 64, "co": 3, "kh": 4, "kw": 4, "stride": 2, "padding": 1},
    ),
}

permitted = pytest.mark.skipif(
    not has_feature(ts.host_target(), "amx-int8"), reason="this machine has no AMX, or no leave to use it"
)


def of(name):
    op, shape = WORKLOADS[name]
    return ts.workload(op, **shape)


def product(m, n, k, data, weight, transpose):
    """Return a matrix product of bytes, in any order."""
    A = te.placeholder((m, k) if transpose[0] == "N" else (k, m), data, name="A")
    B = te.placeholder((k, n) if transpose[1] == "N" else (n, k), weight, name="B")
    r = te.reduce_axis((0, k), name="k")

    def at(i, j):
        a = A[(i, r) if transpose[0] == "N" else (r, i)].astype("int32")
        b = B[(r, j) if transpose[1] == "N" else (j, r)].astype("int32")
        return te.sum(a * b, axis=r)

    return as_prim_func([A, B, te.compute((m, n), at, name="C")])


@pytest.fixture(scope="module")
def amx():
    return as_target(CPU)


@pytest.fixture
def copies_cost_nothing(monkeypatch):
    """Let it pad what is small, and quickly tested."""
    monkeypatch.setattr(matrix_unit_space, "_CYCLES_OF_COPIED_LINE", 0)


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ({"m": 318, "n": 64, "k": 256}, 6),
        ({"m": 318, "n": 1024, "k": 1024}, 32),
        ({"m": 790, "n": 128, "k": 256}, 10),
        ({"m": 197, "n": 768, "k": 768}, 29),
        ({"m": 197, "n": 64, "k": 256}, None),
        ({"m": 100, "n": 100, "k": 100}, None),
    ],
)
def test_rows_are_padded_where_there_is_enough_to_multiply(shape, rows, amx):
    """Both threads pad them, and each reads what the other wrote: 790 by 128 x 256 took 3 times so long."""
    space = MATRIX_UNIT.space(ts.workload("quantized_matmul", **shape).func, amx)
    assert (space and space.default["mr"]) == rows


@permitted
@pytest.mark.parametrize("name", WORKLOADS)
def test_points_of_the_space_are_right(name, copies_cost_nothing, target, assert_points_right):
    workload = of(name)
    points = MATRIX_UNIT.space(workload.func, target).points
    drawn = np.random.default_rng(7).choice(len(points), 6, replace=False)
    assert_points_right(MATRIX_UNIT, workload, [points[i] for i in drawn])


@permitted
@pytest.mark.parametrize("name", HALVES)
def test_bfloat16_is_right(name, target, assert_points_right):
    """Panels and copies hold its bits, where TVM would compute with float32."""
    op, shape = HALVES[name]
    workload = ts.workload(op, dtype="bfloat16", **shape)
    points = MATRIX_UNIT.space(workload.func, target).points
    drawn = np.random.default_rng(5).choice(len(points), 3)
    assert_points_right(MATRIX_UNIT, workload, [points[i] for i in drawn])


@pytest.mark.parametrize("name", HALVES)
def test_the_unit_multiplies_bfloat16(name, amx):
    op, shape = HALVES[name]
    func = ts.workload(op, dtype="bfloat16", **shape).func
    code = generate_code(MATRIX_UNIT.scheduled(func, amx).mod, amx).mod.inspect_source("asm")
    assert "tdpbf16ps" in code


@pytest.mark.parametrize(("op", "dtype"), [("quantized_linear", "uint8"), ("linear", "bfloat16")])
def test_a_weight_along_a_sum_that_ends_within_squares_is_turned_in_registers(op, dtype, amx):
    func = ts.workload(op, dtype=dtype, m=256, n=1000, k=443).func
    assert "T.Shuffle(" in MATRIX_UNIT.scheduled(func, amx).mod.script()


@permitted
@pytest.mark.parametrize("transpose", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("data", ["int8", "uint8"])
@pytest.mark.parametrize("weight", ["int8", "uint8"])
def test_bytes_of_any_sign_and_order_are_right(data, weight, transpose, target, run):
    m, n, k = 40, 96, 320
    rng = np.random.default_rng(3)
    a, b = (rng.integers(*_bounds(each), shape, each) for each, shape in ((data, (m, k)), (weight, (k, n))))
    func = product(m, n, k, data, weight, transpose)
    given = [np.ascontiguousarray(x.T) if t == "T" else x for x, t in zip((a, b), transpose, strict=True)]
    found, *_ = run(MATRIX_UNIT.scheduled(func, target), given)
    np.testing.assert_array_equal(found, a.astype("int32") @ b.astype("int32"))


def _bounds(dtype):
    info = np.iinfo(dtype)
    return info.min, info.max + 1


@permitted
@pytest.mark.parametrize("k", [128, 150])
@pytest.mark.parametrize("which", ["A", "B", "AB"])
@pytest.mark.parametrize("types", [("uint8", "int8", "int32"), ("bfloat16", "bfloat16", "float32")])
def test_operands_that_are_computed_are_held_in_copies(
    types, which, k, copies_cost_nothing, target, assert_right_of_computed
):
    assert_right_of_computed(MATRIX_UNIT, target, types, which, k)


@permitted
def test_sums_of_extremes_are_exact(target, run):
    m, n, k = 32, 32, 64_000
    schedule = MATRIX_UNIT.scheduled(ts.workload("quantized_matmul", m=m, n=n, k=k).func, target)
    inputs = np.full((m, k), 255, "uint8"), np.full((k, n), -128, "int8")
    np.testing.assert_array_equal(run(schedule, inputs)[0], np.full((m, n), 255 * -128 * k, "int32"))


@permitted
def test_it_is_the_default_here(target):
    assert ts.apply_default(of("whole").func, target)[1] is MATRIX_UNIT


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_unit_does_all_of_it(name, copies_cost_nothing, amx):
    """Also where this CPU has none: tiles are configured, and no product is left to vectors."""
    code = generate_code(MATRIX_UNIT.scheduled(of(name).func, amx).mod, amx).mod.inspect_source("asm")
    assert "ldtilecfg" in code and "tilerelease" in code and "syscall@PLT" in code
    assert "tdpbusd" in code and "vpdpbusd" not in code and "vpmaddwd" not in code


@pytest.mark.parametrize(
    ("m", "products", "tiles", "loads"),
    [(64, 4, 4, 4), (16, 4, 4, 5), (96, 4, 4, 4)],
)
def test_a_step_reads_each_operand_once(m, products, tiles, loads, amx):
    schedule = MATRIX_UNIT.scheduled(ts.workload("quantized_matmul", m=m, n=128, k=4096).func, amx)
    found = inner_loop(generate_code(schedule.mod, amx).mod.inspect_source("asm"))
    # LLVM may unroll the loop.
    times = found.multiply_adds // products
    assert (found.multiply_adds, found.accumulators) == (products * times, tiles)
    assert (found.loads, found.stores, found.bits) == (loads * times, 0, 16 * 16 * 32)


@pytest.mark.parametrize(
    ("shape", "rows", "row_bytes"),
    [
        ({"m": 64, "n": 64, "k": 256}, [16, 16, 16, 16, 16, 16, 16, 16], [64] * 8),
        ({"m": 50, "n": 64, "k": 128}, [13, 13, 12, 12, 13, 12, 16, 16], [64] * 8),
    ],
)
def test_tiles_have_the_rows_of_the_shape(shape, rows, row_bytes, amx):
    schedule = MATRIX_UNIT.scheduled(ts.workload("quantized_matmul", **shape).func, amx)
    lowered = finished(schedule.mod, amx).script()
    words = [int(w) for w in re.findall(r"tile_configuration\[T.int64\(\d\)\] = T.int64\((-?\d+)\)", lowered)]
    described = b"".join(word.to_bytes(8, "little") for word in words)
    assert list(described[48:56]) == rows
    assert list(np.frombuffer(described[16:32], "<u2")) == row_bytes


@pytest.mark.parametrize(
    ("operator", "shape"),
    [
        ("quantized_matmul", {"m": 3, "n": 256, "k": 256}),
        ("quantized_matmul", {"m": 9, "n": 35, "k": 66}),
        ("quantized_conv2d", {**CONV, "w": 37}),
        ("matmul", {"m": 64, "n": 64, "k": 64}),
    ],
    ids=["few_rows", "little", "no_tiles_of_a_line", "floats"],
)
def test_it_does_not_apply_where_nothing_is_gained(operator, shape, amx):
    assert MATRIX_UNIT.space(ts.workload(operator, **shape).func, amx) is None


@pytest.mark.parametrize("mcpu", ["znver4", "haswell"])
def test_it_does_not_apply_without_the_unit(mcpu):
    assert MATRIX_UNIT.space(of("whole").func, as_target({**CPU, "mcpu": mcpu})) is None


@pytest.mark.parametrize(
    ("knobs", "rule"),
    [
        ({"mr": 64}, "fit the tiles"),
        ({"nr": 24}, "divides nr"),
        ({"depth": 32}, "depth is 64"),
        ({"pack": 0}, "pack 1 or 2"),
        ({"mr": 0}, "at least 1"),
    ],
)
def test_points_that_the_unit_cannot_hold_are_refused(knobs, rule, amx):
    with pytest.raises(InputError, match=rule):
        MATRIX_UNIT.scheduled(of("whole").func, amx, knobs)


def test_rows_that_do_not_divide_a_line_are_refused(amx):
    with pytest.raises(InputError, match="divides a convolution's line"):
        MATRIX_UNIT.scheduled(of("window").func, amx, {"mr": 8})


@pytest.mark.parametrize("name", ["whole", "rows_in_uneven_parts", "window", "every_second_pixel"])
def test_the_loops_that_the_unit_replaces_are_right(name, amx, compiled_c):
    """C has no words for tiles: it says in loops what they compute, which runs everywhere."""
    workload = of(name)
    inputs = inputs_of(workload, 1, 0)
    expected = expected_output(workload, inputs)
    output = np.empty_like(expected)
    function, _ = compiled_c(c_source(MATRIX_UNIT.scheduled(workload.func, amx), "kernel"), "kernel")
    function(*inputs, output)
    np.testing.assert_array_equal(output, expected)


def test_a_trace_is_replayed(amx):
    workload = of("whole")
    schedule = MATRIX_UNIT.scheduled(workload.func, amx)
    replayed = replay_trace(trace_text(schedule), workload.func)
    assert replayed.mod.script() == schedule.mod.script()


def lowered(name, amx):
    op, shape = HALVES[name]
    func = ts.workload(op, dtype="bfloat16", **shape).func
    return finished(MATRIX_UNIT.scheduled(func, amx).mod, amx).script().splitlines()


def test_a_tile_that_is_not_there_is_left_out(amx):
    """33 lines are 17 and 16: the second thread's last tile would be loaded from beyond the data."""
    lines = lowered("lines_in_uneven_blocks", amx)
    first = next(i for i, line in enumerate(lines) if "tilezero" in line)
    indented = len(lines[first]) - len(lines[first].lstrip())
    around = next(line for line in lines[first::-1] if len(line) - len(line.lstrip()) < indented)
    assert around.strip().startswith("if ") and "< T.int64(33)" in around


def test_sums_have_room_for_whole_tiles(amx):
    """Of 11 rows by 12 columns all 11 x 16 are stored: TVM would leave out the last 4."""
    op, shape = HALVES["lines_in_uneven_blocks"]
    func = ts.workload(op, dtype="bfloat16", **shape).func
    code = generate_code(MATRIX_UNIT.scheduled(func, amx).mod, amx).mod.inspect_source("ll")
    assert [int(n) for n in re.findall(r"= alloca \[(\d+) x float\]", code)] == [11 * 16]


@pytest.mark.parametrize(
    ("operator", "shape", "dtype"),
    [
        ("matmul", {"m": 64, "n": 96, "k": 256}, "bfloat16"),
        ("linear", {"m": 64, "n": 96, "k": 256}, "bfloat16"),
        ("quantized_matmul", {"m": 64, "n": 96, "k": 256}, None),
        ("conv2d", IMAGE, "bfloat16"),
    ],
)
def test_a_constant_weight_can_be_packed_before(operator, shape, dtype, amx):
    workload = ts.workload(operator, dtype=dtype, **shape)
    func = workload.func.with_attr(CONSTANT_ARGUMENTS, [1])
    assert PACKING_MARK in MATRIX_UNIT.scheduled(func, amx).mod.script()


@pytest.mark.parametrize(("beside", "extents"), [(1, [8, 32, 2]), (4, [2, 32, 4, 2])])
def test_panels_are_packed_side_by_side(beside, extents, amx):
    """Of 8 panels by 32 groups 4 panels go inside the groups: a row is read in one stretch."""
    workload = ts.workload("quantized_matmul", m=64, n=512, k=128)
    script = MATRIX_UNIT.scheduled(workload.func, amx, {"beside": beside}).mod.script()
    loops = re.search(r"for ax[\w, ]+ in T.grid\((.*)\):\n.*B_global_o", script)[1]
    assert [int(each) for each in re.findall(r"T.int64\((\d+)\)", loops)] == extents


@pytest.mark.parametrize(
    ("operator", "shape", "one"),
    [
        ("quantized_matmul", {"m": 1024, "n": 1024, "k": 1024}, True),
        ("quantized_conv2d", {"n": 1, "h": 28, "w": 28, "ci": 128, "co": 512, "kh": 1, "kw": 1}, False),
        # Threads share the rows: each block of these packs all panels.
        ("quantized_matmul", {"m": 512, "n": 96, "k": 512}, False),
    ],
)
def test_rows_of_a_product_are_written_whole(operator, shape, one, amx):
    default = MATRIX_UNIT.space(ts.workload(operator, **shape).func, amx).default
    assert default["pack"] == 1 and (default["block_rows"] == 1) == one
