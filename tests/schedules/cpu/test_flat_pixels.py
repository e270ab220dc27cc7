"""Convolutions of channels first as products of flat pixels: which are, that they are right, traces."""

import re

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.code_generation import finished
from tunesmith.schedules.cpu.channels_first import (
    FLAT_PIXELS,
    FLOAT32_MATRIX_UNIT_FLAT_PIXELS,
    PAIRED_FLAT_PIXELS,
    WIDENED_FLAT_PIXELS,
)
from tunesmith.schedules.cpu.paired import PAIRED
from tunesmith.schedules.cpu.weight_panels import PACK_IN_BLOCK, PACK_NOTHING
from tunesmith.schedules.forms.flat_pixels import PICKED, restate
from tunesmith.schedules.nests.contraction import find_contraction
from tunesmith.tuning.records.compilation import build, replay_trace, trace_text
from tvm import te
from tvm.tirx import ForKind

AVX512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux-gnu", "num-cores": 2})
ENDED = {"bias": 1, "relu": 1, "residual": 1}


def pointwise(dtype="float32", **more):
    shape = {"n": 1, "h": 8, "w": 12, "ci": 20, "co": 24, "kh": 1, "kw": 1, "layout": "NCHW", **more}
    return ts.workload("conv2d", dtype=dtype, **shape)


WORKLOADS = {
    "one_image": pointwise(**ENDED),
    "several_images": pointwise(n=3, **ENDED),
    "primes": pointwise(h=3, w=32, ci=13, co=17, bias=1),
    "one_line": pointwise(h=1, w=48),
    "one_channel": pointwise(ci=1, co=1, relu=1),
    "large": pointwise(h=40, w=40, ci=64, co=40, residual=1),
    "large_images": pointwise(n=2, h=40, w=40, ci=64, co=40, relu=1),
    "half": pointwise("float16", **ENDED),
    "bfloat16": pointwise("bfloat16", h=16, w=16, **ENDED),
    "double": pointwise("float64", n=2, bias=1),
    "strided": pointwise(h=7, w=63, stride=2, **ENDED),
    "strided_images": pointwise(n=3, w=47, stride=3),
    "strided_half": pointwise("float16", h=15, stride=2, **ENDED),
    "groups": pointwise(groups=4, **ENDED),
    "odd_groups": pointwise(h=6, w=16, ci=21, co=51, groups=3),
    "small_groups": pointwise(ci=16, co=8, groups=8),
    "groups_of_images": pointwise(n=3, groups=2, **ENDED),
    "strided_groups": pointwise(n=2, w=24, stride=2, groups=4, bias=1),
    "groups_of_bfloat16": pointwise("bfloat16", h=16, w=16, groups=2, **ENDED),
}
OTHERS = {
    "channels_last": pointwise(layout="NHWC"),
    "depthwise": pointwise(co=20, groups=20),
    "padded": pointwise(padding=1),
    "other_window": pointwise(h=9, kh=2),
    "first_layer": pointwise(w=32, ci=3, kh=3, kw=3, padding=1),
    "grouped_last": pointwise(layout="NHWC", groups=4),
    "grouped_window": pointwise(kh=3, kw=3, padding=1, groups=4),
    "strided_window": pointwise(h=9, w=13, kh=2, kw=2, stride=2),
    "cut_window": pointwise(h=7, w=9, ci=3, kh=3, kw=3),
    "matmul": ts.workload("matmul", m=8, n=8, k=8),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_the_default_and_right(name, target, without_tiles, assert_right):
    workload = WORKLOADS[name]
    halves = workload.dtype in ("float16", "bfloat16")
    pairs = (PAIRED, PAIRED_FLAT_PIXELS)
    rules = [rule for rule in rules_for(workload.func, without_tiles) if rule not in pairs]
    assert rules[0] is (WIDENED_FLAT_PIXELS if halves else FLAT_PIXELS)
    assert_right(workload, FLAT_PIXELS.scheduled(workload.func, target))


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize(("h", "part"), [(6, 4), (7, 1), (14, 4)])
def test_the_last_vector_of_an_image_may_be_a_part_of_one(h, part, images, target, assert_points_right):
    """Where there are masks: 14x14 of 1024 channels to 256 take 0.88 of the time, 7x7 of 2048 to 512 0.65."""
    workload = pointwise(n=images, h=h, w=14 if part > 1 else 7, ci=40, co=48, **ENDED)
    assert rules_for(workload.func, AVX512)[0] is FLAT_PIXELS
    assert FLAT_PIXELS.space(workload.func, AVX512).default["pixels"] == part
    haswell = as_target({"kind": "llvm", "mcpu": "haswell", "mtriple": "x86_64-linux", "num-cores": 2})
    assert FLAT_PIXELS.space(workload.func, haswell) is None
    if facts(target).has_masks:
        assert_points_right(FLAT_PIXELS, workload, [{"nr": 32, "mr": 4, "block_columns": 2}])


def test_each_of_several_images_is_a_product_whose_pixels_are_plainly_apart():
    """Of one product of all vectors that cross lines are gathered: 3 of 40x40 take 0.31 of the time apart."""
    func = pointwise(n=3, h=20, w=20, ci=128, co=256).func
    knobs = {"pack": PACK_NOTHING, "nr": 48, "mr": 4, "block_columns": 1}
    schedule = FLAT_PIXELS.scheduled(func, AVX512, knobs)
    assert "flat_pixels_16_1" in trace_text(schedule)
    whole, last = re.findall(r"data_1\[(.*?)\]", finished(schedule.mod, AVX512).script())
    assert whole.endswith(" + i2_2 * T.int64(16) + i2_3") and last.endswith(" + i2_3 + T.int64(384)")


def test_pixels_of_one_image_are_plainly_apart():
    """Else TVM gathers them one by one where it does not see how many there are."""
    func = pointwise(h=52, w=52, ci=128, co=64).func
    lines = finished(FLAT_PIXELS.scheduled(func, AVX512).mod, AVX512).script().splitlines()
    read = [line for line in lines if "data_1[" in line and "prefetch" not in line]
    assert read and not [line for line in read if "//" in line or "%" in line]


@pytest.mark.parametrize("images", [1, 3])
def test_pixels_of_two_channels_are_interleaved_in_registers(images):
    """For a matrix unit: one by one 8 of 56x56 of 64 channels take 1.43 of the time, 256 to 64 1.2."""
    target = as_target(
        {"kind": "llvm", "mcpu": "sapphirerapids", "mtriple": "x86_64-linux-gnu", "num-cores": 2}
    )
    func = pointwise(n=images, h=56, w=56, ci=128, co=128).func
    schedule = FLOAT32_MATRIX_UNIT_FLAT_PIXELS.scheduled(func, target)
    assert "tunesmith_interleave_planes_2x16" in trace_text(schedule)
    assert replay_trace(trace_text(schedule), func).mod.script() == schedule.mod.script()


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_alone(name, target):
    assert FLAT_PIXELS.space(OTHERS[name].func, target) is None


@pytest.mark.parametrize("pack", [PACK_NOTHING, PACK_IN_BLOCK])
@pytest.mark.parametrize("w", [64, 12])
def test_pixels_are_right_packed_or_as_they_lie(pack, w, target, assert_right):
    """Of 96 pixels the last panel is cut short."""
    workload = pointwise(w=w, **ENDED)
    knobs = {"pack": pack, "split_columns": 1, "block_columns": 1, "nr": 4 * 16, "mr": 4, "block_rows": 2}
    schedule = FLAT_PIXELS.scheduled(workload.func, AVX512, knobs)
    assert (
        'with T.sblock("flat_pixels")' in schedule.mod.script() or "flat_pixels_pad" in schedule.mod.script()
    ) == (pack == PACK_IN_BLOCK)
    assert_right(workload, schedule)


def test_the_form_is_a_product_of_matrices_whose_columns_are_pixels():
    nest = find_contraction(restate(pointwise(**ENDED).func, 16))
    assert nest.plain and nest.weight_lies and nest.columns == 96 and nest.row_extent == 24
    assert (nest.epilogue, nest.rest) == (("flat_output",), ())
    # From one image to the next pixels lie apart.
    assert not find_contraction(restate(pointwise(n=3).func, 16)).weight_lies


def test_a_constant_weight_needs_no_packing(target, assert_right):
    workload = WORKLOADS["one_image"]
    constant = workload.func.with_attr(CONSTANT_ARGUMENTS, [1])
    assert_right(workload, FLAT_PIXELS.scheduled(constant, target))


def test_a_trace_begins_with_the_form_and_is_replayed():
    func = WORKLOADS["one_image"].func
    schedule = FLAT_PIXELS.scheduled(func, AVX512)
    trace = trace_text(schedule)
    assert "tunesmith.algorithm.flat_pixels_16" in trace
    assert replay_trace(trace, func).mod.script() == schedule.mod.script()
    for other in ("strided_window", "other_window", "cut_window", "grouped_window"):
        with pytest.raises(InputError, match=r"flat_pixels_16, which does not fit.*no convolution of"):
            replay_trace(trace, OTHERS[other].func)


def test_a_weight_of_other_axes_is_left_alone(target):
    """Inputs before outputs, as of a transposed convolution: as many, so that only the indices tell."""
    x, w = te.placeholder((1, 24, 8, 12), "float32", "x"), te.placeholder((24, 24, 1, 1), "float32", "w")
    c, i, j = (te.reduce_axis((0, extent), name) for name, extent in (("c", 24), ("i", 1), ("j", 1)))

    def product(n, o, p, q):
        return te.sum(x[n, c, p + i, q + j] * w[c, o, i, j], axis=[c, i, j])

    func = te.create_prim_func([x, w, te.compute((1, 24, 8, 12), product, name="y")])
    assert FLAT_PIXELS.space(func, target) is None


def test_pixels_are_the_vectors_of_the_machine():
    with pytest.raises(InputError, match="pixels is 16"):
        FLAT_PIXELS.scheduled(WORKLOADS["one_image"].func, AVX512, {"pixels": 8})


@pytest.mark.parametrize(("mcpu", "bits"), [("haswell", 256), ("x86-64-v4", 512), ("neoverse-n1", 128)])
def test_the_tile_stays_in_registers_of_other_machines(mcpu, bits):
    triple = "aarch64-linux-gnu" if mcpu == "neoverse-n1" else "x86_64-linux-gnu"
    target = as_target({"kind": "llvm", "mtriple": triple, "mcpu": mcpu, "num-cores": 2})
    schedule = FLAT_PIXELS.scheduled(WORKLOADS["large"].func, target)
    loop = inner_loop(build(schedule, target).mod.inspect_source("s"))
    assert (loop.bits, loop.stores, loop.spills) == (bits, 0, 0) and loop.multiply_adds >= 7


def test_pixels_are_those_that_the_window_meets_wherever_it_begins(target, run):
    """From the second of each line on, every third one: an extent or a step alone does not tell."""
    x, w = te.placeholder((1, 5, 4, 48), "float32", "x"), te.placeholder((7, 5, 1, 1), "float32", "w")
    c, i, j = (te.reduce_axis((0, extent), name) for name, extent in (("c", 5), ("i", 1), ("j", 1)))

    def product(n, o, p, q):
        return te.sum(x[n, c, p + i, q * 3 + 1 + j] * w[o, c, i, j], axis=[c, i, j])

    func = te.create_prim_func([x, w, te.compute((1, 7, 4, 16), product, name="y")])
    rng = np.random.default_rng(0)
    image, weight = (rng.normal(size=size).astype("float32") for size in ((1, 5, 4, 48), (7, 5, 1, 1)))
    schedule = FLAT_PIXELS.scheduled(func, target)
    assert schedule is not None
    (found,) = run(schedule, (image, weight))
    expected = np.einsum("cpq,oc->opq", image[0, :, :, 1::3], weight[:, :, 0, 0])
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("size", "parallel"), [(16, False), (96, True)])
def test_a_few_pixels_are_picked_by_one_thread(size, parallel):
    schedule = FLAT_PIXELS.scheduled(pointwise(h=size, w=size, stride=2).func, AVX512)
    loops = schedule.get_loops(schedule.get_sblock(PICKED))
    assert (schedule.get(loops[0]).kind == ForKind.PARALLEL) == parallel


@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        ({"n": 9, "h": 7, "w": 7}, False),
        ({"n": 8, "h": 7, "w": 7}, True),
        ({"n": 9, "h": 12, "w": 12}, True),
        ({"n": 9, "h": 7, "w": 7, "groups": 4}, True),
    ],
)
def test_many_images_of_pixels_that_fill_no_vectors_are_transposed(shape, taken):
    """A quarter of the columns of 49 pixels would be empty, for each image again."""
    func = pointwise(ci=64, co=64, **shape).func
    assert (FLAT_PIXELS.space(func, AVX512) is not None) == taken
