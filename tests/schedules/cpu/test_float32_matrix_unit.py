"""Float32 products by a matrix unit of bfloat16: that they are right and exact, and where it applies."""

from dataclasses import replace

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.arrays import aligned_empty
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts, has_feature
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.c_source import c_source
from tunesmith.schedules.code_generation import finished, generate_code
from tunesmith.schedules.cpu import float32_matrix_unit
from tunesmith.schedules.cpu.channels_first import (
    FLOAT32_MATRIX_UNIT_CHANNELS_FIRST,
    FLOAT32_MATRIX_UNIT_FLAT_PIXELS,
)
from tunesmith.schedules.cpu.float32_matrix_unit import FLOAT32_MATRIX_UNIT
from tunesmith.schedules.cpu.matmul import MATMUL
from tunesmith.schedules.cpu.tile_choice import TileChoice
from tunesmith.schedules.cpu.weight_panels import PACK_IN_BLOCK
from tunesmith.schedules.cpu.winograd import WINOGRAD
from tunesmith.schedules.transforms import PACKING_MARK
from tunesmith.tuning.measuring.verification import expected_output, inputs_of
from tunesmith.tuning.records.compilation import replay_trace, trace_text
from tvm import tirx
from tvm_ffi import structural_walk

CPU = {"kind": "llvm", "mcpu": "sapphirerapids", "mtriple": "x86_64-linux", "num-cores": 2}
IMAGE = {"n": 2, "h": 14, "w": 14, "ci": 64, "co": 48, "kh": 3, "kw": 3, "padding": 1}
WORKLOADS = {
    "whole": ("matmul", {"m": 64, "n": 96, "k": 256}),
    "rows_in_uneven_parts": ("matmul", {"m": 50, "n": 64, "k": 128}),
    "all_are_padded": ("matmul", {"m": 75, "n": 83, "k": 333}),
    "steps_of_part_of_a_tile": ("matmul", {"m": 64, "n": 64, "k": 300}),
    "data_along_rows": ("matmul", {"m": 64, "n": 96, "k": 128, "transpose": "TN"}),
    "padded_data_along_rows": ("matmul", {"m": 61, "n": 96, "k": 100, "transpose": "TT"}),
    "weight_by_output": ("linear", {"m": 48, "n": 64, "k": 256, "activation": "gelu", "residual": 1}),
    "padded_weight_by_output": ("linear_relu", {"m": 61, "n": 50, "k": 443}),
    "batch": ("batch_matmul", {"b": 3, "m": 40, "n": 64, "k": 96, "transpose": "NT"}),
    "batch_of_one_weight": ("batch_matmul", {"b": 3, "m": 40, "n": 64, "k": 128, "shared": "B"}),
    "window": ("conv2d", {**IMAGE, "bias": 1, "relu": 1}),
    "window_channels_first": ("conv2d", {**IMAGE, "layout": "NCHW"}),
    "every_second_pixel": ("conv2d", {**IMAGE, "stride": 2, "ci": 72}),
    "window_of_filled_channels": ("conv2d", {**IMAGE, "ci": 70}),
    "taps_beyond_the_image": ("conv2d", {**IMAGE, "dilation": 12, "padding": 12, "ci": 32}),
    "sum_in_parts": ("conv2d", {**IMAGE, "ci": 160, "co": 80, "bias": 1, "relu": 1}),
    "padded_sum_in_parts": ("linear", {"m": 61, "n": 83, "k": 700, "residual": 1}),
    "pixel_by_pixel": ("conv2d", {**IMAGE, "kh": 1, "kw": 1, "padding": 0}),
    "line": ("conv1d", {"n": 2, "l": 60, "ci": 80, "co": 96, "kernel": 3, "padding": 1}),
    "turned_window": ("conv2d_transpose", {**IMAGE, "kh": 4, "kw": 4, "stride": 2}),
    "turned_window_of_uneven_phases": ("conv2d_transpose", {**IMAGE, "stride": 2}),
}

permitted = pytest.mark.skipif(
    not has_feature(ts.host_target(), "amx-bf16"), reason="this machine has no AMX, or no leave to use it"
)


@pytest.fixture(scope="module")
def amx():
    return as_target(CPU)


@pytest.fixture
def always(monkeypatch):
    """Let it apply to what is small, and quickly tested."""
    monkeypatch.setattr(float32_matrix_unit, "_share_of_vectors", lambda *_: 0.0)


def of(name):
    op, shape = WORKLOADS[name]
    return ts.workload(op, **shape)


@permitted
@pytest.mark.parametrize("name", WORKLOADS)
def test_points_of_the_space_are_right(name, always, target, assert_points_right):
    workload = of(name)
    points = FLOAT32_MATRIX_UNIT.space(workload.func, target).points
    drawn = np.random.default_rng(7).choice(len(points), 5, replace=False)
    assert_points_right(FLOAT32_MATRIX_UNIT, workload, [points[i] for i in drawn])


@permitted
@pytest.mark.parametrize("k", [128, 150])
@pytest.mark.parametrize("which", ["A", "B", "AB"])
def test_operands_that_are_computed_are_split_as_well(which, k, always, target, assert_right_of_computed):
    assert_right_of_computed(FLOAT32_MATRIX_UNIT, target, ("float32",) * 3, which, k)


@permitted
@pytest.mark.parametrize("low", [-1.0, 0.0])
@pytest.mark.parametrize("k", [256, 2048])
def test_sums_are_no_less_exact_than_those_of_float32(k, low, always, target, run):
    rng = np.random.default_rng(k)
    a, b = (rng.uniform(low, 1, shape).astype("float32") for shape in ((128, k), (k, 128)))
    exact, size = a.astype("float64") @ b, np.abs(a).astype("float64") @ np.abs(b)
    func = ts.workload("matmul", m=128, n=128, k=k).func
    by_unit, by_vectors = (
        np.abs(run(rule.scheduled(func, target), (a, b))[0] - exact) / size
        for rule in (FLOAT32_MATRIX_UNIT, MATMUL)
    )
    assert by_unit.max() < by_vectors.max() and by_unit.std() < by_vectors.std()


@permitted
def test_taps_that_meet_only_zeros_are_not_multiplied(always, target, run):
    """An infinite weight times padding is no number."""
    data, weight = np.ones((1, 3, 4, 32), "float32"), np.full((3, 3, 32, 16), np.inf, "float32")
    weight[1, 1] = 2
    workload = ts.workload("conv2d", n=1, h=3, w=4, ci=32, co=16, kh=3, kw=3, padding=5, dilation=5)
    (output,) = run(FLOAT32_MATRIX_UNIT.scheduled(workload.func, target, {"rows": 0}), (data, weight))
    assert (output == 64).all()


@permitted
def test_parts_are_rounded_to_nearest(always, target, run):
    """Cut off, all parts had one sign, and what is left out of a product too: 2**-24 of it in the mean."""
    n = 256
    x, y = np.random.default_rng(4).uniform(1, 2, (2, n)).astype("float32")
    schedule = FLOAT32_MATRIX_UNIT.scheduled(ts.workload("matmul", m=n, n=n, k=n).func, target)
    products = run(schedule, (np.diag(x), np.diag(y)))[0].diagonal()
    exact = x.astype("float64") * y
    assert abs((products / exact - 1).mean()) < 2**-27


@permitted
def test_no_bit_of_a_number_is_lost(always, target, run):
    """Times one, every float32 that is not too small or large for its parts is itself, also a NaN."""
    n = 256
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 32, (n, n), dtype="uint32")
    numbers = bits.view("float32")
    usable = (np.abs(numbers) > 1e-31) & (np.abs(numbers) < 3.38e38)
    numbers = np.where(usable, numbers, np.float32(0))
    numbers[:, 17] = np.float32(1) + np.finfo("float32").eps
    eye = np.eye(n, dtype="float32")
    schedule = FLOAT32_MATRIX_UNIT.scheduled(ts.workload("matmul", m=n, n=n, k=n).func, target)
    for inputs in ((numbers, eye), (eye, numbers)):
        np.testing.assert_array_equal(run(schedule, inputs)[0], numbers)
    numbers[3, 5] = np.nan
    found = run(schedule, (numbers, eye))[0]
    assert np.isnan(found[3]).all() and not np.isnan(np.delete(found, 3, axis=0)).any()


@permitted
@pytest.mark.parametrize(
    ("rule", "more"),
    [
        (FLOAT32_MATRIX_UNIT_FLAT_PIXELS, {}),
        (FLOAT32_MATRIX_UNIT_FLAT_PIXELS, {"h": 14, "w": 14}),
        (FLOAT32_MATRIX_UNIT_FLAT_PIXELS, {"n": 2, "ci": 72}),
        (FLOAT32_MATRIX_UNIT_CHANNELS_FIRST, {"kh": 3, "kw": 3, "padding": 1}),
        (FLOAT32_MATRIX_UNIT_CHANNELS_FIRST, {"kh": 3, "kw": 3, "padding": 1, "stride": 2, "n": 2}),
        (FLOAT32_MATRIX_UNIT_FLAT_PIXELS, {"stride": 2}),
    ],
)
def test_channels_may_be_first(rule, more, always, target, assert_points_right):
    shape = {"n": 1, "h": 16, "w": 16, "ci": 64, "co": 48, "kh": 1, "kw": 1, "layout": "NCHW", **more}
    workload = ts.workload("conv2d", bias=1, relu=1, **shape)
    points = rule.space(workload.func, target).points
    drawn = np.random.default_rng(2).choice(len(points), 4, replace=False)
    assert_points_right(rule, workload, [points[i] for i in drawn])


def test_a_step_multiplies_six_pairs_of_parts(always, amx):
    """Each tile that a neighbour has loaded is used again: 14 loads for 24 products of 2 by 2 tiles."""
    schedule = FLOAT32_MATRIX_UNIT.scheduled(ts.workload("matmul", m=64, n=64, k=4096).func, amx)
    found = inner_loop(generate_code(schedule.mod, amx).mod.inspect_source("asm"))
    times = found.multiply_adds // 24
    assert (found.multiply_adds, found.accumulators, found.loads) == (24 * times, 4, 14 * times)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_unit_does_all_of_it(name, always, amx):
    code = generate_code(FLOAT32_MATRIX_UNIT.scheduled(of(name).func, amx).mod, amx).mod
    assert "tdpbf16ps" in code.inspect_source("asm")


def lowered(shape, knobs, amx):
    schedule = FLOAT32_MATRIX_UNIT.scheduled(ts.workload("matmul", **shape).func, amx, knobs)
    return finished(schedule.mod, amx).script().splitlines()


@pytest.mark.parametrize("kh, shorter", [(3, 1), (4, 0)])
def test_taps_that_a_phase_has_not_are_left_out(kh, shorter, always, amx):
    """Of a kernel of 3 by strides of 2 one phase has two taps, the other one; of 4 all have two."""
    workload = ts.workload("conv2d_transpose", n=1, h=5, w=8, ci=32, co=32, kh=kh, kw=4, stride=2)
    loops = []
    mod = finished(FLOAT32_MATRIX_UNIT.scheduled(workload.func, amx).mod, amx)
    structural_walk(mod["main"].body, (tirx.For, loops.append))
    assert sum("Select" in str(loop.extent) for loop in loops) == shorter


def test_lines_that_are_filled_up_have_conditions_only_at_the_end(always, amx):
    """Of 333 sums 320 are copied in vectors of 16, without any."""
    lines = lowered({"m": 64, "n": 64, "k": 333}, {}, amx)
    first = next(i for i, line in enumerate(lines) if "range(T.int64(20))" in line)
    assert "T.vectorized(T.int64(16))" in lines[first + 1]
    stores = lines[first + 2 : first + 5]
    assert all("A_pad[" in line and "if_then_else" not in line for line in stores)
    assert any("if_then_else" in line for line in lines[first + 5 :])


def test_a_thread_splits_the_rows_that_it_reads_alone(always, amx):
    """Else all data are split before, into a copy that each thread then reads from afar."""
    shape = {"m": 256, "n": 64, "k": 96}
    alone = {"block_rows": 2, "block_columns": 2, "split_columns": 0, "pack": 2}
    for knobs, places in ((alone, 2 * 32 * 96 * 3), ({**alone, "block_columns": 1}, 256 * 96 * 3)):
        (copy,) = (line for line in lowered(shape, knobs, amx) if "A_global = " in line)
        assert f"alloc_buffer(({places},)" in copy


@pytest.mark.parametrize("transpose", ["NN", "NT"])
def test_a_product_of_a_batch_splits_what_it_reads_just_before(transpose, always, amx):
    """A copy for all products would come from afar: 48 of 128 x 128 x 64 took 1.15 of the time of vectors."""
    func = ts.workload("batch_matmul", b=4, m=64, n=32, k=96, transpose=transpose).func
    lines = finished(FLOAT32_MATRIX_UNIT.scheduled(func, amx).mod, amx).script().splitlines()
    (copy,) = (line for line in lines if "A_global = " in line)
    assert f"alloc_buffer(({64 * 96 * 3},)" in copy


@pytest.mark.parametrize(("k", "apart"), [(32, 1), (64, 3), (2048, 65)])
def test_rows_of_parts_are_no_power_of_two_apart(k, apart, always, amx):
    """They would share few sets of a cache; an odd number of stretches of three lines share none."""
    (copy,) = (line for line in lowered({"m": 64, "n": 64, "k": k}, {}, amx) if "A_global = " in line)
    assert f"alloc_buffer(({64 * apart * 3 * 32},)" in copy


@pytest.mark.parametrize(("stride", "by_columns"), [(1, 1), (2, 0)])
def test_threads_share_the_larger_of_what_is_read(stride, by_columns, always, amx):
    """Windows that move by 2 read four pixels for one: 56x56 of 128 channels take 0.68 by lines."""
    image = {**IMAGE, "n": 1, "h": 28 * stride, "w": 28 * stride, "ci": 128, "co": 128, "stride": stride}
    default = FLOAT32_MATRIX_UNIT.space(ts.workload("conv2d", **image).func, amx).default
    assert default["split_columns"] == by_columns


@permitted
@pytest.mark.parametrize("name", ["sum_in_parts", "padded_sum_in_parts"])
@pytest.mark.parametrize("pack, split_columns", [(1, 1), (2, 0), (2, 1)])
def test_sums_of_parts_are_right(name, pack, split_columns, always, target, assert_right):
    workload = of(name)
    points = FLOAT32_MATRIX_UNIT.space(workload.func, target).points
    shared = {"pack": pack, "split_columns": split_columns}
    points = [p for p in points if p["block_sums"] and shared.items() <= p.items() and not p.get("rows")]
    for i in np.random.default_rng(5).choice(len(points), 2, replace=False):
        schedule = FLOAT32_MATRIX_UNIT.scheduled(workload.func, target, points[i])
        assert_right(workload, schedule, optimized=False)


def test_a_part_of_the_sum_is_added_to_those_before(always, amx):
    """Tiles begin with what is stored, and each thread packs one part of its panels at a time."""
    shape = {"m": 64, "n": 128, "k": 256}
    whole = {"nr": 32, "block_rows": 1, "block_columns": 2, "split_columns": 1, "pack": 1}
    for block_sums, zeros, packed in ((0, 4, 256), (4, 0, 128), (2, 0, 64)):
        lines = lowered(shape, {**whole, "block_sums": block_sums}, amx)
        assert sum("tilezero" in line for line in lines) == zeros
        (panels,) = (line for line in lines if "B_global = " in line)
        assert f"alloc_buffer(({2 * packed * 32 * 3},)" in panels


def test_blocks_of_two_images_in_part_do_not_store_sums(always, amx):
    """Their results are a range of images and one of lines: more than the lines of a block."""
    func = of("window").func
    knobs = {"mr": 14, "block_rows": 4, "split_columns": 0, "pack": 2, "block_sums": 1}
    with pytest.raises(InputError, match="lines of one image"):
        FLOAT32_MATRIX_UNIT.scheduled(func, amx, knobs)
    for rows in (7, 14, 28):
        FLOAT32_MATRIX_UNIT.scheduled(func, amx, {**knobs, "block_rows": rows})


FAR = {"l2_bytes": 2 << 20, "l3_bytes": 480 << 20}


@pytest.mark.parametrize(
    ("operator", "shape", "blocks"),
    [
        # a panel of 590 kB does not stay in L2 while rows stream past it
        ("matmul", {"m": 128, "n": 768, "k": 3072}, {"block_sums": 32, "block_columns": 4}),
        ("matmul", {"m": 128, "n": 768, "k": 768}, {"block_sums": 0, "block_columns": 4}),
        ("linear", {"m": 788, "n": 768, "k": 3072}, {"block_sums": 16, "block_rows": 7, "split_columns": 0}),
        ("linear", {"m": 788, "n": 768, "k": 768}, {"block_sums": 0, "block_rows": 5, "split_columns": 0}),
        # rows of 16 KiB, which are read in stretches of a page
        ("matmul", {"m": 100, "n": 4096, "k": 4096}, {"block_sums": 4, "block_columns": 32, "beside": 32}),
        ("matmul", {"m": 2048, "n": 2048, "k": 2048}, {"block_sums": 0, "block_columns": 2}),
    ],
)
def test_long_sums_are_cut_so_that_a_block_has_several_tiles(operator, shape, blocks, amx, monkeypatch):
    far = replace(facts(amx), **FAR)
    monkeypatch.setattr(
        float32_matrix_unit, "tile_choice", lambda nest, _, products: TileChoice(nest, far, products)
    )
    default = FLOAT32_MATRIX_UNIT.space(ts.workload(operator, **shape).func, amx).default
    assert {name: default[name] for name in blocks} == blocks


def test_a_constant_weight_is_split_in_the_call(always, amx):
    """Nobody packs it before: its panels would be of float32."""
    func = of("whole").func.with_attr(CONSTANT_ARGUMENTS, [1])
    assert FLOAT32_MATRIX_UNIT.space(func, amx).default["pack"] == PACK_IN_BLOCK
    script = FLOAT32_MATRIX_UNIT.scheduled(func, amx, {"split_columns": 0, "pack": 2}).mod.script()
    assert PACKING_MARK not in script
    assert PACKING_MARK in MATMUL.scheduled(func, amx, {"split_columns": 0, "pack": 2}).mod.script()


@pytest.mark.parametrize(
    ("operator", "shape", "taken"),
    [
        ("matmul", {"m": 512, "n": 512, "k": 512}, True),
        ("matmul", {"m": 1024, "n": 64, "k": 64}, False),
        ("matmul", {"m": 128, "n": 128, "k": 128}, False),
        ("linear", {"m": 512, "n": 3072, "k": 768}, True),
        ("linear", {"m": 8, "n": 3072, "k": 768}, False),
        ("conv2d", {**IMAGE, "h": 28, "w": 28, "ci": 256, "co": 512, "kh": 1, "kw": 1, "padding": 0}, True),
        ("conv2d", {**IMAGE, "ci": 512, "co": 512, "stride": 2}, True),  # few windows beside the weight
        ("conv2d", {**IMAGE, "h": 80, "w": 80, "ci": 166, "co": 48}, False),  # filled up window by window
        ("conv2d", {**IMAGE, "h": 14, "w": 14, "ci": 512, "co": 512, "kh": 1, "kw": 1, "padding": 0}, True),
        ("batch_matmul", {"b": 12, "m": 384, "n": 384, "k": 64, "transpose": "NT"}, True),
        ("batch_matmul", {"b": 12, "m": 128, "n": 128, "k": 64, "transpose": "NT"}, True),
        ("batch_matmul", {"b": 12, "m": 32, "n": 128, "k": 64, "transpose": "NT"}, False),
    ],
)
def test_it_applies_where_there_is_much_to_multiply_and_leaves_the_default_to_vectors(
    operator, shape, taken, amx
):
    """Where the host throttles the unit they are as fast or faster."""
    first, *others = rules_for(ts.workload(operator, **shape).func, amx)
    assert first is not FLOAT32_MATRIX_UNIT
    assert (FLOAT32_MATRIX_UNIT in others) == taken


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_in_either_layout_it_leaves_the_default_to_others(layout, amx):
    """Where the host throttles the unit 14x14 of 1024 channels to 256 take 1.4 of the time of vectors."""
    name = {"NHWC": "float32_matrix_unit", "NCHW": "float32_matrix_unit_flat_pixels"}[layout]
    rules = rules_for(
        ts.workload("conv2d", n=1, h=14, w=14, ci=1024, co=256, kh=1, kw=1, layout=layout).func, amx
    )
    assert name in [rule.name for rule in rules[1:]]


def test_winograd_is_the_default_where_it_applies(amx):
    func = ts.workload("conv2d", n=1, h=56, w=56, ci=64, co=64, kh=3, kw=3, padding=1).func
    first, *others = rules_for(func, amx)
    assert first is WINOGRAD and FLOAT32_MATRIX_UNIT in others


@pytest.mark.parametrize("mcpu", ["znver4", "haswell"])
def test_it_does_not_apply_without_the_unit(mcpu, always):
    assert FLOAT32_MATRIX_UNIT.space(of("whole").func, as_target({**CPU, "mcpu": mcpu})) is None


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_it_does_not_apply_to_other_types(dtype, always, amx):
    func = ts.workload("matmul", dtype=dtype, m=512, n=512, k=512).func
    assert FLOAT32_MATRIX_UNIT.space(func, amx) is None


def test_c_source_says_in_float32_what_is_computed(always, amx, compiled_c):
    workload = of("rows_in_uneven_parts")
    inputs = inputs_of(workload, 1, 0)
    output = aligned_empty((50, 64), "float32")
    function, _ = compiled_c(c_source(FLOAT32_MATRIX_UNIT.scheduled(workload.func, amx), "kernel"), "kernel")
    function(*inputs, output)
    np.testing.assert_allclose(output, expected_output(workload, inputs), rtol=1e-5, atol=1e-5)


def test_a_trace_is_replayed(always, amx):
    workload = of("weight_by_output")
    schedule = FLOAT32_MATRIX_UNIT.scheduled(workload.func, amx)
    replayed = replay_trace(trace_text(schedule), workload.func)
    assert replayed.mod.script() == schedule.mod.script()
