"""Winograd's form of 3x3 convolutions: the algebra, which have it, that every tile is right, traces."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.algorithms import in_form
from tunesmith.schedules.code_generation import finished
from tunesmith.schedules.cpu.conv2d import CONV2D
from tunesmith.schedules.cpu.winograd import WINOGRAD
from tunesmith.schedules.cpu.winograd_choice import WinogradChoice
from tunesmith.schedules.forms.winograd import (
    DATA,
    POINTS,
    TAP,
    TAPS,
    TILE,
    WEIGHT,
    find_convolution,
    transforms,
)
from tunesmith.schedules.transforms import PACKING_MARK
from tunesmith.tuning.measuring.verification import inputs_of
from tunesmith.tuning.records.compilation import replay_trace, trace_text
from tvm import s_tir, te
from tvm_ffi import structural_walk

# Buffers as they are when blocks become plain loops.
ALLOCATED = tvm.ir.transform.Sequential(
    [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
    ]
)
IMAGE = {"n": 1, "h": 12, "w": 16, "ci": 32, "co": 64, "kh": 3, "kw": 3, "padding": 1}
WORKLOADS = {
    "padded": ts.workload("conv2d", **IMAGE, bias=1, relu=1),
    "residual": ts.workload("conv2d", **IMAGE, bias=1, residual=1, relu=1),
    "cut_tiles": ts.workload("conv2d", **{**IMAGE, "n": 2, "h": 13, "w": 11}),
    "unpadded": ts.workload("conv2d", **{**IMAGE, "h": 18, "padding": 0}, relu=1),
    "wide_margin": ts.workload("conv2d", **{**IMAGE, "padding": 2}),
    "spare_tiles": ts.workload("conv2d", **{**IMAGE, "h": 13, "w": 66}, bias=1),
    "images": ts.workload("conv2d", **{**IMAGE, "n": 4, "h": 7, "w": 8}, bias=1),
    "one_panel": ts.workload("conv2d", **{**IMAGE, "h": 24, "w": 32, "co": 16}, relu=1),
    "blocked": ts.workload("conv2d", **IMAGE, layout="NCHW16c", bias=1, residual=1, relu=1),
    "blocked_cut": ts.workload("conv2d", **{**IMAGE, "n": 2, "h": 27, "w": 15}, layout="NCHW8c"),
    "filled": ts.workload(
        "conv2d", **{**IMAGE, "h": 27, "w": 28, "ci": 58, "co": 60}, bias=1, residual=1, relu=1
    ),
    "filled_inputs": ts.workload("conv2d", **{**IMAGE, "h": 28, "w": 28, "ci": 42}),
    "filled_outputs": ts.workload(
        "conv2d", **{**IMAGE, "n": 2, "h": 20, "w": 28, "ci": 48, "co": 60}, bias=1
    ),
}
OTHERS = {
    "strided": ts.workload("conv2d", **IMAGE, stride=2),
    "dilated": ts.workload("conv2d", **IMAGE, dilation=2),
    "grouped": ts.workload("conv2d", **IMAGE, groups=2),
    "channels_first": ts.workload("conv2d", **IMAGE, layout="NCHW"),
    "other_window": ts.workload("conv2d", **{**IMAGE, "kw": 5}),
    "double": ts.workload("conv2d", dtype="float64", **IMAGE),
    "half": ts.workload("conv2d", dtype="float16", **IMAGE),
    "matmul": ts.workload("matmul", m=8, n=8, k=8),
}


def matrix_product(a, b):
    return [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a
    ]


def transposed(a):
    return [list(column) for column in zip(*a, strict=True)]


@pytest.mark.parametrize("m", POINTS)
def test_the_transforms_compute_a_convolution_exactly(m):
    data, weight, output = transforms(m)
    edge = m + TAPS - 1
    d = [[Fraction((3 * i * i + 7 * j + i * j) % 11 - 5) for j in range(edge)] for i in range(edge)]
    g = [[Fraction((5 * i + 2 * j * j) % 7 - 3) for j in range(TAPS)] for i in range(TAPS)]
    v = matrix_product(matrix_product(data, d), transposed(data))
    u = matrix_product(matrix_product(weight, g), transposed(weight))
    products = [[a * b for a, b in zip(*rows, strict=True)] for rows in zip(u, v, strict=True)]
    found = matrix_product(matrix_product(output, products), transposed(output))
    taps = [(i, j) for i in range(TAPS) for j in range(TAPS)]
    wanted = [[sum(d[p + i][q + j] * g[i][j] for i, j in taps) for q in range(m)] for p in range(m)]
    assert found == wanted


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_found_and_every_kind_of_tile_is_right(name, target, without_tiles, assert_points_right):
    workload = WORKLOADS[name]
    assert rules_for(workload.func, without_tiles)[:2] == [WINOGRAD, CONV2D]
    space = WINOGRAD.space(workload.func, target)
    kinds = {(p["m"], p["share_lines"]): p for p in space.points}
    assert len(kinds) == 4
    # Each workload with its default and one of the four kinds.
    nth = list(WORKLOADS).index(name) % 4
    several = [p for p in space.points if p["images"] > 1]
    assert bool(several) == (workload.shape["n"] > 1)
    of_several = several[:: max(1, len(several) // 2)][:2]
    copies = [{**space.default, "copy": copy} for copy in (0, 1) if "copy" in space.default]
    assert_points_right(WINOGRAD, workload, [list(kinds.values())[nth], *of_several, *copies])


def choice_of(shape, mcpu="x86-64-v4", **caches):
    image = {"kh": 3, "kw": 3, "padding": 1, **shape}
    conv = find_convolution(ts.workload("conv2d", **image).func)
    machine = facts(as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2}))
    return WinogradChoice(conv, replace(machine, **caches))


def test_images_of_few_tiles_share_what_is_read_of_a_large_weight():
    """In a block for each image, of 4 tiles, the weight would change basis eight times."""
    choice = choice_of({"n": 8, "h": 7, "w": 7, "ci": 512, "co": 512}, l2_bytes=2 << 20, l3_bytes=480 << 20)
    default = choice.default()
    assert (default["images"], default["share_lines"]) == (8, 0)
    alone = {**default, "images": 1, "mr": 4}
    assert choice.multiply_adds(alone) > 1.5 * choice.multiply_adds(default)


@pytest.mark.parametrize(("l3", "shared"), [(32 << 20, 1), (480 << 20, 0)])
def test_threads_share_panels_of_a_weight_that_lies_in_an_l3_far_away(l3, shared):
    choice = choice_of({"n": 16, "h": 14, "w": 14, "ci": 256, "co": 256}, l2_bytes=2 << 20, l3_bytes=l3)
    default = choice.default()
    assert (default["share_lines"], default["images"]) == (shared, 2 if shared else 8)


def test_threads_share_the_panels_of_a_block_that_is_the_only_one():
    """Blocks that they share read all panels each: 13x13 of 248 to 392 channels took 1.4 times as long."""
    choice = choice_of({"n": 4, "h": 13, "w": 13, "ci": 248, "co": 392}, l2_bytes=1 << 20, l3_bytes=32 << 20)
    default = choice.default()
    assert (default["share_lines"], choice.blocks(default)) == (0, 1)


def test_positions_do_not_evict_each_other():
    """All 36 of a tile are written side by side: a power of two apart they would share a set of a cache."""
    avx512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    workload = ts.workload("conv2d", n=1, h=16, w=16, ci=64, co=64, kh=3, kw=3, padding=1)
    lowered = ALLOCATED(WINOGRAD.scheduled(workload.func, avx512).mod)["main"]
    buffers: dict = {}
    structural_walk(
        lowered.body, [(s_tir.SBlock, lambda block: buffers.update({b.name: b for b in block.alloc_buffers}))]
    )
    for name in (WEIGHT, DATA):
        line, position, *_ = (int(stride) for stride in buffers[name].strides)
        sets = Counter((e * line + f * position) * 4 // 64 % 64 for e in range(6) for f in range(6))
        assert max(sets.values()) <= 2


def test_threads_share_blocks_evenly():
    """7 blocks of 2 threads keep one of them waiting: 14x14 of 128 to 32 channels took 2.1 times as long."""
    shape = {"n": 1, "h": 14, "w": 14, "ci": 128, "co": 32}
    choice = choice_of(shape, l2_bytes=1 << 20, l3_bytes=32 << 20)
    default = choice.default()
    assert default["share_lines"] == 1 and choice.lines(default) // default["lines"] % 2 == 0


@pytest.mark.parametrize("l3_bytes", [32 << 20, 480 << 20])
def test_panels_that_l2_does_not_hold_are_read_for_each_block(l3_bytes):
    choice = choice_of({"n": 4, "h": 14, "w": 14, "ci": 256, "co": 256}, l2_bytes=1 << 20, l3_bytes=l3_bytes)
    knobs = {"m": 2, "spare_lines": 0, "spare_tiles": 0, "images": 1, "share_lines": 1}
    few, many = (choice.multiply_adds({**knobs, "lines": lines}) for lines in (7, 1))
    assert (many > 1.2 * few) == (l3_bytes == 32 << 20)


@pytest.mark.parametrize(("images", "l3_mib", "is_worth"), [(4, 32, False), (4, 64, True), (8, 32, True)])
def test_a_weight_that_l3_does_not_hold_is_read_once_for_few_pixels(images, l3_mib, is_worth):
    """In the other basis 36 MiB of it are written and read; for 64 pixels the direct sum reads 20 MiB."""
    shape = {"n": images, "h": 4, "w": 4, "ci": 768, "co": 768}
    choice = choice_of(shape, "znver4", l2_bytes=1 << 20, l3_bytes=l3_mib << 20)
    assert (choice.default() is not None) == is_worth


def test_blocks_of_channels_are_not_filled_up():
    avx512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    image = {"n": 1, "h": 56, "w": 56, "ci": 64, "kh": 3, "kw": 3, "padding": 1, "layout": "NCHW8c"}
    for channels, taken in ((64, True), (56, False)):
        workload = ts.workload("conv2d", **image, co=channels)
        assert (WINOGRAD.space(workload.func, avx512) is not None) == taken


def test_an_output_that_is_rearranged_otherwise_is_left_alone():
    x, w = te.placeholder((1, 58, 58, 64), "float32", "x"), te.placeholder((3, 3, 64, 64), "float32", "w")
    i, j, c = te.reduce_axis((0, 3), "i"), te.reduce_axis((0, 3), "j"), te.reduce_axis((0, 64), "c")
    y = te.compute(
        (1, 56, 56, 64), lambda n, p, q, o: te.sum(x[n, p + i, q + j, c] * w[i, j, c, o], axis=[i, j, c])
    )
    blocks = te.compute((1, 4, 56, 56, 16), lambda n, b, p, q, o: y[n, p, q, b * 16 + o])
    turned = te.compute((1, 64, 56, 56), lambda n, o, p, q: y[n, p, q, o])
    by_lines = te.compute((1, 56, 4, 56, 16), lambda n, p, b, q, o: y[n, p, q, b * 16 + o])
    apart = te.compute((1, 4, 56, 56, 16), lambda n, b, p, q, o: y[n, p, q, o * 4 + b])
    for z, found in ((y, True), (blocks, True), (turned, False), (by_lines, False), (apart, False)):
        func = te.create_prim_func([x, w, z], index_dtype_override="int64")
        assert (find_convolution(func) is not None) == found


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_alone(name, target):
    assert find_convolution(OTHERS[name].func) is None
    assert WINOGRAD.space(OTHERS[name].func, target) is None


def test_it_does_not_apply_where_it_computes_more(target):
    # One tile hardly has more outputs than a tile of the image has inputs.
    single = ts.workload("conv2d", **{**IMAGE, "h": 2, "w": 2})
    assert find_convolution(single.func) is not None
    assert WINOGRAD.space(single.func, target) is None


@pytest.mark.parametrize(
    ("mcpu", "ci", "co", "fills", "filled"),
    [
        ("x86-64-v4", 120, 256, (8, 1), (120, 256)),  # halves of vectors
        ("x86-64-v4", 58, 84, (16, 16), (64, 96)),  # halves would be as many channels
        ("x86-64-v4", 96, 30, (1, 16), (96, 32)),
        ("haswell", 120, 84, (1, 8), (120, 88)),
        ("haswell", 42, 64, (4, 1), (44, 64)),
    ],
)
def test_channels_that_fill_no_vectors_are_filled_up(mcpu, ci, co, fills, filled):
    choice = choice_of({"n": 1, "h": 56, "w": 56, "ci": ci, "co": co}, mcpu)
    assert (choice.fills, (choice.ci, choice.co)) == (fills, filled)
    workload = ts.workload("conv2d", n=1, h=56, w=56, ci=ci, co=co, kh=3, kw=3, padding=1)
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    default = WINOGRAD.space(workload.func, target).default
    assert (default["inputs"], default["outputs"]) == fills and filled[1] % default["nr"] == 0
    assert f'_{fills[0]}_{fills[1]}"]' in trace_text(WINOGRAD.scheduled(workload.func, target))
    with pytest.raises(InputError, match=f"inputs is {fills[0]}"):
        WINOGRAD.scheduled(workload.func, target, {"inputs": 2})


def test_channels_that_would_be_mostly_zeros_are_left_alone(target):
    for channels in ({"ci": 3}, {"co": 3}):
        assert WINOGRAD.space(ts.workload("conv2d", **{**IMAGE, **channels}).func, target) is None


@pytest.mark.parametrize("name", ["filled", "filled_outputs"])
def test_a_constant_weight_is_filled_up_beforehand(name, target, assert_right):
    func = WORKLOADS[name].func.with_attr(CONSTANT_ARGUMENTS, [1])
    schedule = WINOGRAD.scheduled(func, target)
    assert PACKING_MARK in schedule.mod.script()
    assert_right(WORKLOADS[name], schedule)


@pytest.mark.parametrize("mcpu", ["haswell", "x86-64-v4"])
def test_what_is_filled_up_is_copied_in_vectors(mcpu):
    """Only the last of a pixel or a tap has a condition, which makes single elements of it without masks."""
    cpu = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    workload = ts.workload("conv2d", n=1, h=56, w=56, ci=58, co=84, kh=3, kw=3, padding=1, relu=1)
    assert WINOGRAD.space(workload.func, cpu).default["copy"] == (mcpu == "haswell")
    text = finished(WINOGRAD.scheduled(workload.func, cpu, {"copy": 1}).mod, cpu).script()
    for name in (TILE, TAP):
        copies = [line for line in text.splitlines() if line.strip().startswith(f"{name}[")]
        assert len(copies) == 2 and any("_1 < " not in copy for copy in copies)


def test_threads_share_panels_evenly():
    """3 panels of 2 vectors keep one of 2 threads waiting: 14x14 of 96 channels took 1.27 times as long."""
    shape = {"n": 1, "h": 14, "w": 14, "ci": 96, "co": 96}
    default = choice_of(shape, "znver4", l2_bytes=1 << 20, l3_bytes=32 << 20).default()
    assert (default["share_lines"], default["nr"]) == (0, 16)


def test_threads_wait_for_each_other_at_its_steps():
    """3 us on 2 threads of a Zen 4: 8x8 of 32 channels took 1.4 times as long as the direct sum."""
    caches = {"l2_bytes": 1 << 20, "l3_bytes": 32 << 20}
    for shape, worthwhile in (
        ({"n": 1, "h": 8, "w": 8, "ci": 32, "co": 32}, False),
        ({"n": 1, "h": 14, "w": 14, "ci": 48, "co": 16}, False),
        ({"n": 1, "h": 28, "w": 28, "ci": 24, "co": 16}, True),
    ):
        assert (choice_of(shape, "znver4", **caches).default() is not None) == worthwhile


def test_units_that_take_halves_change_bases_for_less():
    """A Zen 4 multiplies half as fast as others, and loads as fast: 56x56 of 16 channels takes 0.48 there."""
    shape = {"n": 1, "h": 56, "w": 56, "ci": 16, "co": 16}
    caches = {"l2_bytes": 1 << 20, "l3_bytes": 32 << 20}
    native, halves = (choice_of(shape, mcpu, **caches) for mcpu in ("znver5", "znver4"))
    knobs = halves.default()
    assert native.multiply_adds(knobs) > 1.2 * halves.multiply_adds(knobs)


def test_sums_in_two_parts_lose_less_to_rounding(target, run):
    workload = ts.workload("conv2d", **{**IMAGE, "h": 28, "w": 28})
    assert WINOGRAD.space(workload.func, target).default["m"] == 4
    data, weight = inputs_of(workload, 0)
    want = workload.reference(data, weight)
    (got,) = run(WINOGRAD.scheduled(workload.func, target), [data, weight])
    # 5.6e-7; 6.7e-7 in one part.
    assert np.sqrt(np.mean(np.square(got - want))) < 6.1e-7 * np.sqrt(np.mean(np.square(want)))


def test_few_channels_take_the_tiles_that_round_less():
    # With other vectors, or another L2, tiles of 8 channels may not be worth it.
    target = as_target({"kind": "llvm", "mcpu": "znver3", "mtriple": "x86_64-linux", "num-cores": 2})
    image = {**IMAGE, "h": 48, "w": 64, "co": 128}
    few, more = (ts.workload("conv2d", **{**image, "ci": channels}) for channels in (8, 16))
    assert {point["m"] for point in WINOGRAD.space(more.func, target).points} == {2, 4}
    assert {point["m"] for point in WINOGRAD.space(few.func, target).points} == {2}
    with pytest.raises(InputError, match="m is 2 for 8 channels"):
        WINOGRAD.scheduled(few.func, target, {"m": 4, "lines": 1, "mr": 1})


def test_a_weight_with_output_channels_first_is_read_as_it_lies(target, run):
    x, w = te.placeholder((1, 14, 18, 32), "float32", "x"), te.placeholder((64, 32, 3, 3), "float32", "w")
    i, j, c = te.reduce_axis((0, 3), "i"), te.reduce_axis((0, 3), "j"), te.reduce_axis((0, 32), "c")
    y = te.compute(
        (1, 12, 16, 64),
        lambda n, p, q, o: te.sum(x[n, p + i, q + j, c] * w[o, c, i, j], axis=[c, j, i]),
        name="y",
    )
    func = te.create_prim_func([x, w, y], index_dtype_override="int64")
    rng = np.random.default_rng(0)
    data = rng.uniform(-1, 1, (1, 14, 18, 32)).astype(np.float32)
    weight = rng.uniform(-1, 1, (64, 32, 3, 3)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(data.astype(np.float64), (3, 3), (1, 2))
    want = np.einsum("npqcij,ocij->npqo", windows, weight)
    (got,) = run(WINOGRAD.scheduled(func, target), [data, weight])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=5e-5)


def test_a_trace_begins_with_the_algorithm_and_is_replayed(target):
    workload = WORKLOADS["cut_tiles"]
    schedule = WINOGRAD.scheduled(workload.func, target)
    again = replay_trace(trace_text(schedule), workload.func)
    assert again.mod.script() == schedule.mod.script()


def test_a_trace_with_an_unknown_or_unfitting_algorithm_is_refused(target):
    trace = trace_text(WINOGRAD.scheduled(WORKLOADS["padded"].func, target))
    for name in ("karatsuba_4", "winograd_x", "winograd_0", "winograd_04", "winograd"):
        with pytest.raises(InputError, match=f"begins with an algorithm that is unknown here: {name}"):
            replay_trace(trace.replace("winograd_4", name), WORKLOADS["padded"].func)
    with pytest.raises(InputError, match="an algorithm that has not so many numbers: winograd_4_1_1_1_1_1"):
        replay_trace(trace.replace("winograd_4", "winograd_4_1_1_1_1_1"), WORKLOADS["padded"].func)
    with pytest.raises(InputError, match="channels filled up to multiples of 16 and 65"):
        replay_trace(trace.replace("winograd_4", "winograd_4_0_0_16_65"), WORKLOADS["padded"].func)
    with pytest.raises(InputError, match="on 4 x 4 tiles, 0 and 3 beyond the image"):
        replay_trace(trace.replace("winograd_4", "winograd_4_0_3"), WORKLOADS["padded"].func)
    with pytest.raises(InputError, match=r"algorithm winograd_8, which does not fit.* on 8 x 8 tiles"):
        replay_trace(trace.replace("winograd_4", "winograd_8"), WORKLOADS["padded"].func)
    with pytest.raises(InputError, match="begins with the algorithm winograd_4, which does not fit"):
        replay_trace(trace, OTHERS["strided"].func)
    assert in_form(OTHERS["strided"].func, "") is OTHERS["strided"].func


def test_tiles_beyond_the_image_are_in_the_trace_and_right(target, assert_right):
    workload = WORKLOADS["cut_tiles"]
    knobs = {"m": 4, "spare_lines": 2, "spare_tiles": 1, "lines": 3, "mr": 4, "nr": 16, "images": 1}
    schedule = WINOGRAD.scheduled(workload.func, target, knobs)
    trace = trace_text(schedule)
    assert "winograd_4_2_1" in trace
    assert_right(workload, schedule)
    assert replay_trace(trace, workload.func).mod.script() == schedule.mod.script()
    with pytest.raises(InputError, match="spare_lines and spare_tiles are at most 2"):
        WINOGRAD.scheduled(workload.func, target, {**knobs, "spare_tiles": 3})


@pytest.mark.parametrize(("size", "channels"), [(66, 64), (68, 128), (75, 64)])
def test_tiles_beyond_the_image_are_chosen_where_the_others_are_not_shared_evenly(size, channels):
    haswell = as_target({"kind": "llvm", "mcpu": "haswell", "num-cores": 2})
    image = {"n": 1, "h": size, "w": size, "ci": channels, "co": channels}
    default = WINOGRAD.space(ts.workload("conv2d", **image, kh=3, kw=3, padding=1).func, haswell).default
    assert (default["m"], default["spare_tiles"], default["nr"]) == (4, 1, 16)
    tiles = -(-size // 4) + default["spare_tiles"]
    assert default["mr"] in (5, 6) and default["lines"] * tiles % default["mr"] == 0


def test_a_constant_weight_is_laid_out_beforehand(target, assert_right):
    constant = WORKLOADS["padded"].func.with_attr(CONSTANT_ARGUMENTS, [1])
    schedule = WINOGRAD.scheduled(constant, target)
    assert PACKING_MARK in schedule.mod.script()
    assert PACKING_MARK not in WINOGRAD.scheduled(WORKLOADS["padded"].func, target).mod.script()
    assert_right(WORKLOADS["padded"], schedule)


@pytest.mark.parametrize(("size", "channels"), [(28, 128), (28, 512), (14, 256), (14, 512), (56, 256)])
def test_few_registers_hold_tiles_of_several_rows(size, channels):
    """49 tiles share rows of 7 or 1: not with two vectors in 16 registers, where rows of 7 do not fit."""
    haswell = as_target({"kind": "llvm", "mcpu": "haswell", "num-cores": 2})
    image = {"n": 1, "h": size, "w": size, "ci": channels, "co": channels}
    default = WINOGRAD.space(ts.workload("conv2d", **image, kh=3, kw=3, padding=1).func, haswell).default
    assert default["m"] == 4
    assert default["mr"] * default["nr"] // default["lanes"] >= 7


@pytest.mark.parametrize(("size", "channels"), [(28, 128), (40, 64), (40, 32)])
def test_threads_share_lines_where_there_are_fewer_panels_than_threads(size, channels):
    """One panel of 32 columns is no work for two threads; two of 16 take as long as two blocks."""
    znver4 = as_target({"kind": "llvm", "mcpu": "znver4", "num-cores": 2})
    image = {"n": 1, "h": size, "w": size, "ci": channels, "co": 32}
    default = WINOGRAD.space(ts.workload("conv2d", **image, kh=3, kw=3, padding=1).func, znver4).default
    if not default["share_lines"]:
        assert default["nr"] == 16
    else:
        assert size // default["m"] // default["lines"] >= 2
