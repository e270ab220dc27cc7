"""Convolutions by a weight that lies along the sum: which are, that they are right, traces, registers."""

import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.code_generation import finished
from tunesmith.schedules.cpu.channels_first import FLAT_PIXELS
from tunesmith.schedules.cpu.im2col import IM2COL, IM2COL_PANELS
from tunesmith.schedules.cpu.left_pixels import LEFT_PIXELS
from tunesmith.schedules.forms.im2col import find_im2col, restate
from tunesmith.schedules.nests.contraction import find_contraction
from tunesmith.tuning.records.compilation import build, replay_trace, trace_text
from tvm import te, tirx
from tvm_ffi import structural_walk


def target_of(mcpu):
    return as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux-gnu", "num-cores": 2})


AVX512, AVX2 = target_of("x86-64-v4"), target_of("haswell")
ENDED = {"bias": 1, "relu": 1, "residual": 1}


def convolution(dtype="float32", **more):
    """A weight of 9 MiB for 49 pixels, as the last of ResNet-50 have."""
    shape = {"n": 1, "h": 7, "w": 7, "ci": 512, "co": 512, "kh": 3, "kw": 3, "padding": 1, "layout": "NCHW"}
    return ts.workload("conv2d", dtype=dtype, **{**shape, **more})


WORKLOADS = {
    "padded": convolution(**ENDED),
    "strided": convolution(h=13, w=14, stride=2, bias=1),
    "pointwise": convolution(ci=1024, co=1040, kh=1, kw=1, padding=0, relu=1),
    "pointwise_strided": convolution(h=9, w=6, ci=1024, co=1040, kh=1, kw=1, padding=0, stride=2),
    "several_images": convolution(n=3, h=3, w=4, residual=1),
    "dilated": convolution(h=9, w=8, ci=528, dilation=2, padding=0),
    "wide_window": convolution(h=5, w=6, kh=2, kw=5, ci=320),
    "half": convolution("float16", bias=1, co=1024),
    "very_few_pixels": convolution(h=4, w=4, bias=1),
}
DOTS_ALONE = ("half", "very_few_pixels", "pointwise_strided")
OTHERS = {
    "channels_last": convolution(layout="NHWC"),
    "many_pixels": convolution(h=16, w=16),
    "a_little_weight": convolution(ci=16, co=512),
    "sums_that_are_no_vectors": convolution(ci=515),
    "grouped": convolution(groups=2, co=1024),
    "constant": None,
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_the_default_and_right(name, assert_right, target):
    workload = WORKLOADS[name]
    # With masks pixels of 1x1 layers are columns as they lie, however many there are: 0.7 of the time. Some
    # leave few pixels of their vectors.
    others = (FLAT_PIXELS, LEFT_PIXELS)
    default = [rule for rule in rules_for(workload.func, AVX512) if rule not in others]
    assert default[0] is (IM2COL if name in DOTS_ALONE else IM2COL_PANELS)
    assert (IM2COL_PANELS.space(workload.func, AVX512) is None) == (name in DOTS_ALONE)
    assert (FLAT_PIXELS.space(workload.func, AVX512) is not None) == name.startswith("pointwise")
    # The schedule runs where its vectors are, on any machine that has them or that LLVM splits them for.
    for rule in {default[0], IM2COL}:
        assert_right(workload, rule.scheduled(workload.func, AVX512))


def test_panels_take_sums_that_are_no_vectors(assert_right, target):
    workload = OTHERS["sums_that_are_no_vectors"]
    for machine in (AVX512, AVX2):
        assert_right(workload, IM2COL_PANELS.scheduled(workload.func, machine))


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_alone(name):
    func = (
        WORKLOADS["padded"].func.with_attr(CONSTANT_ARGUMENTS, [1])
        if name == "constant"
        else OTHERS[name].func
    )
    assert IM2COL.space(func, AVX512) is None
    if name != "sums_that_are_no_vectors":
        assert IM2COL_PANELS.space(func, AVX512) is None


def test_few_registers_are_for_few_pixels():
    assert IM2COL.space(WORKLOADS["padded"].func, AVX2) is None
    assert IM2COL.space(convolution(h=4, w=4, co=1024).func, AVX2) is not None
    assert IM2COL.space(convolution(h=4, w=4, ci=4096, co=48).func, AVX2) is None


def convolution_by(weight, index):
    """Return a convolution by a weight of other axes: ``index`` maps the variables to its indices."""
    x, w = te.placeholder((1, 512, 7, 7), "float32", "x"), te.placeholder(weight, "float32", "w")
    c, i, j = (te.reduce_axis((0, extent), name) for name, extent in (("c", 512), ("i", 3), ("j", 3)))

    def product(n, o, p, q):
        return te.sum(x[n, c, p + i, q + j] * w[index(o, c, i, j)], axis=[c, i, j])

    return te.create_prim_func([x, w, te.compute((1, 512, 5, 5), product, name="y")])


def test_a_weight_of_other_axes_is_left_alone_unless_its_outputs_come_first(target, assert_same_outputs):
    inputs_first = convolution_by((512, 512, 3, 3), lambda o, c, i, j: (c, o, i, j))
    assert find_im2col(inputs_first) is None
    inputs_last = convolution_by((512, 3, 3, 512), lambda o, c, i, j: (o, i, j, c))
    assert_same_outputs(inputs_last, IM2COL.scheduled(inputs_last, AVX512))


def test_the_form_is_a_product_by_the_weight_as_it_lies():
    nest = find_contraction(restate(WORKLOADS["padded"].func))
    assert (nest.row_extent, nest.columns, nest.depth) == (49, 512, 9 * 512)
    assert nest.plain and nest.is_turned and nest.rest == ()


def test_a_trace_begins_with_the_form_and_is_replayed():
    func = WORKLOADS["strided"].func
    schedule = IM2COL.scheduled(func, AVX512)
    trace = trace_text(schedule)
    assert '"tunesmith.algorithm.im2col"' in trace
    assert replay_trace(trace, func).mod.script() == schedule.mod.script()
    with pytest.raises(InputError, match=r"algorithm im2col, which does not fit.*by a weight along the sum"):
        replay_trace(trace, OTHERS["channels_last"].func)


@pytest.mark.parametrize(("rule", "sums"), [(IM2COL, 20), (IM2COL_PANELS, 14)])
def test_the_tile_stays_in_registers(rule, sums):
    schedule = rule.scheduled(WORKLOADS["padded"].func, AVX512)
    loop = inner_loop(build(schedule, AVX512).mod.inspect_source("s"))
    assert (loop.bits, loop.stores, loop.spills) == (512, 0, 0) and loop.multiply_adds >= sums


def test_the_weight_is_turned_in_registers():
    """By channel, line and column its elements would be copied one by one."""
    done = finished(IM2COL_PANELS.scheduled(WORKLOADS["padded"].func, AVX512).mod, AVX512)["main"]
    shuffles: list[object] = []
    structural_walk(done.body, (tirx.Shuffle, shuffles.append))
    assert len(shuffles) >= 64
