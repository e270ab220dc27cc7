"""Convolutions of channels first by schedules of channels last: which are, that forms are right, traces."""

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.cpu.channels_first import (
    CONV2D_CHANNELS_FIRST,
    FLAT_PIXELS,
    WINOGRAD_CHANNELS_FIRST,
)
from tunesmith.schedules.forms.channels_last import IMAGE, RESULT, TAPS, restate, squares_of
from tunesmith.schedules.forms.winograd import find_convolution
from tunesmith.schedules.nests.channels_first import find_channels_first
from tunesmith.schedules.nests.contraction import find_contraction
from tunesmith.schedules.restatement import held_blocks
from tunesmith.schedules.transforms import PACKING_MARK
from tunesmith.tuning.records.compilation import build, replay_trace, trace_text
from tvm import te

AVX512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux-gnu", "num-cores": 2})


def convolution(dtype="float32", **more):
    shape = {"n": 1, "h": 9, "w": 11, "ci": 20, "co": 24, "kh": 3, "kw": 3, "layout": "NCHW", **more}
    return ts.workload("conv2d", dtype=dtype, **shape)


ENDED = {"bias": 1, "relu": 1, "residual": 1}
WORKLOADS = {
    "padded": convolution(padding=1, **ENDED),
    "unpadded": convolution(n=2),
    "strided": convolution(n=2, padding=1, stride=2, bias=1),
    "dilated": convolution(h=13, padding=2, dilation=2, relu=1),
    "wide_window": convolution(kh=2, kw=5, padding=1),
    "pointwise": convolution(n=3, kh=1, kw=1, residual=1),
    "few_channels": convolution(ci=3, co=17, padding=1, relu=1),
    "few_pixels": convolution(h=4, w=4, ci=64, co=5),
    "few_taps": convolution(ci=1, kh=1, kw=3),
    "large": convolution(h=30, w=28, ci=32, co=40, padding=1, bias=1),
    "half": convolution("float16", padding=1, **ENDED),
    "one_output": convolution(h=30, co=1, padding=1, **ENDED),
    "three_outputs": convolution(n=2, co=3),
    "one_pixel": convolution(h=3, w=3, relu=1, kw=1, padding=0),
    "bytes": convolution("int8", ci=19, padding=1, bias=1),
    "double": convolution("float64", padding=1, **ENDED),
}
OTHERS = {
    "channels_last": convolution(layout="NHWC"),
    "blocked": convolution(ci=16, co=16, layout="NCHW8c"),
    "grouped": convolution(groups=4),
    "bfloat16": convolution("bfloat16"),
    "neither": convolution(ci=3, co=3),
    "matmul": ts.workload("matmul", m=8, n=8, k=8),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_square_is_right(name, target, assert_points_right):
    workload = WORKLOADS[name]
    space = CONV2D_CHANNELS_FIRST.space(workload.func, target)
    (squares,) = (knob.values for knob in space.knobs if knob.name == "squares")
    assert_points_right(CONV2D_CHANNELS_FIRST, workload, [{"squares": lanes} for lanes in squares])


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_alone(name, target):
    assert CONV2D_CHANNELS_FIRST.space(OTHERS[name].func, target) is None
    assert WINOGRAD_CHANNELS_FIRST.space(OTHERS[name].func, target) is None


def test_it_is_the_default():
    strided = convolution(h=40, w=40, ci=64, co=64, padding=1, stride=2)
    assert rules_for(strided.func, AVX512)[0] is CONV2D_CHANNELS_FIRST
    layer = convolution(h=28, w=28, ci=64, co=64, padding=1)
    assert rules_for(layer.func, AVX512)[0] is WINOGRAD_CHANNELS_FIRST


@pytest.mark.parametrize("more", [{"padding": 1, **ENDED}, {"n": 2, "h": 18}])
def test_winograds_form_comes_after_it_and_is_right(more, target, assert_right):
    workload = convolution(**{"h": 16, "w": 16, "ci": 32, "co": 64, **more})
    assert find_convolution(workload.func) is None
    assert find_convolution(restate(workload.func, 16)) is not None
    for m in (2, 4):
        knobs = {"m": m, "lines": 1, "images": 1, "mr": 1, "spare_lines": 0, "spare_tiles": 0}
        assert_right(workload, WINOGRAD_CHANNELS_FIRST.scheduled(workload.func, target, knobs))


def test_the_form_is_a_convolution_of_channels_last():
    nest = find_contraction(restate(convolution(padding=1, **ENDED).func, 16))
    assert (nest.prologue, nest.staged, nest.epilogue, nest.rest) == (("pad",), "pad", (), ())
    assert (nest.data_channel, nest.output_column, nest.weight_axes[-1]) == (3, 3, nest.column)
    assert nest.padded
    # Everything that is transposed is read by what comes after it.
    blocks = held_blocks(restate(convolution(padding=1, **ENDED).func, 16))
    read = {str(r.source.name) for name, block in blocks.items() if name != IMAGE for r in block.reads}
    assert {"image", "taps", "sums"} <= read and "data" not in read


def test_squares_are_as_large_as_what_they_transpose():
    def squares(lanes=16, **more):
        return squares_of(find_channels_first(convolution(**more).func), lanes)

    assert squares() == {RESULT: 16, IMAGE: 16, TAPS: 16}
    assert squares(lanes=8) == {RESULT: 8, IMAGE: 8, TAPS: 8}
    assert squares(ci=3) == {RESULT: 16, TAPS: 16}
    assert squares(h=4, w=4, co=9) == {RESULT: 4, IMAGE: 16, TAPS: 8}
    assert squares(ci=1, kh=1, kw=3) == {RESULT: 16}
    assert squares(co=3) == {IMAGE: 16} and squares(ci=1, kh=1, kw=3, co=3) == {}


def test_a_constant_weight_is_laid_out_beforehand(target, assert_right):
    workload = WORKLOADS["padded"]
    constant = workload.func.with_attr(CONSTANT_ARGUMENTS, [1])
    schedule = CONV2D_CHANNELS_FIRST.scheduled(constant, target)
    assert PACKING_MARK in schedule.mod.script() and TAPS not in schedule.mod.script()
    assert_right(workload, schedule)


def test_a_trace_begins_with_both_forms_and_is_replayed():
    func = convolution(h=28, w=28, ci=64, co=64, padding=1).func
    schedule = WINOGRAD_CHANNELS_FIRST.scheduled(func, AVX512)
    trace = trace_text(schedule)
    assert "tunesmith.algorithm.channels_last_16__winograd_4" in trace
    assert replay_trace(trace, func).mod.script() == schedule.mod.script()


def test_a_trace_of_another_convolution_is_refused():
    func = WORKLOADS["padded"].func
    trace = trace_text(CONV2D_CHANNELS_FIRST.scheduled(func, AVX512))
    for other in ("channels_last", "grouped", "neither"):
        with pytest.raises(
            InputError, match=r"channels_last_16, which does not fit.*no convolution of channels"
        ):
            replay_trace(trace, OTHERS[other].func)
    for name in ("channels_last_0", "channels_last_16__", "channels_last_16__winograd", "__channels_last_16"):
        with pytest.raises(InputError, match="unknown here"):
            replay_trace(trace.replace("channels_last_16", name), func)
    with pytest.raises(InputError, match=r"which does not fit.*no 3x3 convolution"):
        replay_trace(trace.replace("last_16", "last_16__winograd_3"), func)


def test_squares_fit_the_registers():
    with pytest.raises(InputError, match=r"squares is one of \(4, 8, 16\)"):
        CONV2D_CHANNELS_FIRST.scheduled(WORKLOADS["padded"].func, AVX512, {"squares": 32})


def test_a_result_that_is_multiplied_by_what_varies_along_channels_is_right(target, run):
    """What follows the sums need be no bias: a factor for each channel, and a clip."""
    x, w, f = (
        te.placeholder(s, "float32", n) for s, n in (((2, 8, 5, 6), "x"), ((8, 8, 1, 1), "w"), ((8,), "f"))
    )
    c, i, j = (te.reduce_axis((0, extent), name) for name, extent in (("c", 8), ("i", 1), ("j", 1)))

    def product(n, o, p, q):
        return te.sum(x[n, c, p + i, q + j] * w[o, c, i, j], axis=[c, i, j])

    sums = te.compute((2, 8, 5, 6), product, name="sums")
    scaled = te.compute(sums.shape, lambda n, o, p, q: sums[n, o, p, q] * f[o], name="scaled")
    y = te.compute(sums.shape, lambda *i: te.min(scaled[i], te.const(0.5, "float32")), name="y")
    func = te.create_prim_func([x, w, f, y], index_dtype_override="int64")
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, s).astype(np.float32) for s in ((2, 8, 5, 6), (8, 8, 1, 1), (8,))]
    schedule = CONV2D_CHANNELS_FIRST.scheduled(func, target)
    assert schedule is not None
    want = np.einsum("ncpq,oc->nopq", inputs[0], inputs[1][:, :, 0, 0]) * inputs[2][:, None, None]
    np.testing.assert_allclose(run(schedule, inputs)[0], np.minimum(want, 0.5), rtol=1e-4, atol=1e-5)


def ended(end, window=3):
    """Return a convolution of square images with other blocks after its sums."""
    x, w = (
        te.placeholder((1, 8, 8, 8), "float32", "x"),
        te.placeholder((8, 8, window, window), "float32", "w"),
    )
    axes = [te.reduce_axis((0, extent), name) for name, extent in (("c", 8), ("i", window), ("j", window))]
    size = 9 - window

    def product(n, o, p, q):
        c, i, j = axes
        return te.sum(x[n, c, p + i, q + j] * w[o, c, i, j], axis=axes)

    outputs = end(te.compute((1, 8, size, size), product, name="sums"))
    return te.create_prim_func([x, w, *outputs], index_dtype_override="int64")


def silu(sums):
    half = te.compute(sums.shape, lambda *i: sums[i] * te.const(0.5, "float32"), name="half")
    return [te.compute(sums.shape, lambda *i: sums[i] * half[i], name="y")]


def turned(sums):
    return [te.compute(sums.shape, lambda n, o, p, q: sums[n, o, q, p] + te.const(1, "float32"), name="y")]


def both(sums):
    return [sums, te.compute(sums.shape, lambda *i: te.max(sums[i], te.const(0, "float32")), name="y")]


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("end", [silu, turned, both])
def test_sums_that_others_read_or_in_another_order_are_left_alone(end, window, target):
    """What reads sums a second time, across lines, or beside a caller, would find them nowhere."""
    func = ended(end, window)
    for rule in (FLAT_PIXELS, WINOGRAD_CHANNELS_FIRST, CONV2D_CHANNELS_FIRST):
        assert rule.space(func, target) is None
    plain = ended(lambda sums: [te.compute(sums.shape, lambda *i: sums[i] * sums[i], name="y")], window)
    assert CONV2D_CHANNELS_FIRST.space(plain, target) is not None


@pytest.mark.parametrize(("mcpu", "bits"), [("haswell", 256), ("x86-64-v4", 512), ("neoverse-n1", 128)])
def test_the_tile_stays_in_registers_of_other_machines(mcpu, bits):
    triple = "aarch64-linux-gnu" if mcpu == "neoverse-n1" else "x86_64-linux-gnu"
    target = as_target({"kind": "llvm", "mtriple": triple, "mcpu": mcpu, "num-cores": 2})
    schedule = CONV2D_CHANNELS_FIRST.scheduled(convolution(h=28, w=28, ci=64, co=64, stride=2).func, target)
    loop = inner_loop(build(schedule, target).mod.inspect_source("s"))
    assert (loop.bits, loop.stores, loop.spills) == (bits, 0, 0) and loop.multiply_adds >= 7
