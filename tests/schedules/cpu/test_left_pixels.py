"""Vectors of pixels and dot products of those left: where, that all points are right, traces, registers."""

from dataclasses import replace

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.assembly import summing_loops
from tunesmith.schedules.cpu import left_pixels_space
from tunesmith.schedules.cpu.left_pixels import LEFT_PIXELS
from tunesmith.schedules.forms.left_pixels import find_left_pixels, restate
from tunesmith.tuning.records.compilation import build, replay_trace, trace_text


def target_of(mcpu, triple="x86_64-linux-gnu", cores=2):
    return as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": triple, "num-cores": cores})


AVX512, AVX2 = target_of("x86-64-v4"), target_of("haswell")
ARM = target_of("neoverse-n1", "aarch64-linux-gnu")
ENDED = {"bias": 1, "relu": 1, "residual": 1}


def convolution(dtype="float32", **more):
    """49 pixels: three vectors of 16 and one, or six of 8 and one."""
    shape = {"n": 1, "h": 7, "w": 7, "ci": 64, "co": 64, "kh": 3, "kw": 3, "padding": 1, "layout": "NCHW"}
    return ts.workload("conv2d", dtype=dtype, **{**shape, **more})


WORKLOADS = {
    "padded": convolution(**ENDED),
    "strided": convolution(h=13, w=14, stride=2, bias=1),
    "pointwise": convolution(ci=256, co=72, kh=1, kw=1, padding=0, relu=1),
    "pointwise_strided": convolution(h=14, w=13, ci=256, kh=1, kw=1, padding=0, stride=2),
    "several_images": convolution(n=3, residual=1),
    "two_left": convolution(h=5, w=10, bias=1),
    "lines_of_all_vectors": convolution(h=1, w=67, kh=1, kw=3, padding=0, ci=128, co=70),
    "long_lines": convolution(h=7, w=31, dilation=2, padding=0),
    "no_pixel_left": convolution(h=8, w=8, **ENDED),
    "no_pixel_left_strided": convolution(n=2, h=7, w=8, ci=128, stride=2, bias=1),
    "no_parts_of_whole_windows": convolution(ci=48, **ENDED),
    "wide_window": convolution(kh=5, kw=5, padding=2, ci=64, co=80),
}
OTHERS = {
    "channels_last": convolution(layout="NHWC"),
    "whole_vectors_pointwise": convolution(h=8, w=8, ci=256, kh=1, kw=1, padding=0),
    "too_many_whole_vectors": convolution(h=17, w=16),
    "no_vector": convolution(h=2, w=3),
    "many_left": convolution(h=5, w=5, ci=512),
    "many_vectors": convolution(h=17, w=17),
    "many_images": convolution(n=9),
    "sums_that_are_no_vectors": convolution(ci=65),
    "short_sums": convolution(ci=64, kh=1, kw=1, padding=0),
    "few_channels": convolution(co=63),
    "half": convolution("float16"),
    "double": convolution("float64"),
    "grouped": convolution(groups=2, ci=128),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_the_default_and_right(name, assert_right, target):
    func = WORKLOADS[name].func
    assert next(rule for rule in rules_for(func, AVX512) if "winograd" not in rule.name) is LEFT_PIXELS
    for machine in (AVX512, AVX2):
        assert_right(WORKLOADS[name], LEFT_PIXELS.scheduled(func, machine))


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_alone(name):
    assert LEFT_PIXELS.space(OTHERS[name].func, AVX512) is None


def test_every_knob_is_right(assert_right, target):
    """Parts that end within a window, several panels, one block, copies before and between."""
    for name in ("padded", "strided", "several_images", "no_pixel_left"):
        func = WORKLOADS[name].func
        space = LEFT_PIXELS.space(func, AVX512)
        drawn = np.random.default_rng(0).permutation(len(space.points))[:3]
        for point in [space.points[at] for at in drawn]:
            for ahead in (0, 1):
                assert_right(WORKLOADS[name], LEFT_PIXELS.scheduled(func, AVX512, {**point, "ahead": ahead}))


def test_threads_share_copies_where_each_has_few_channels():
    func = convolution(ci=512, co=512).func
    few, many = (target_of("x86-64-v4", cores=cores) for cores in (2, 32))
    assert [LEFT_PIXELS.space(func, machine).default["ahead"] for machine in (few, many)] == [0, 1]


@pytest.mark.parametrize(("far", "depth"), [(False, 144), (True, 576)])
def test_longer_rows_of_weights_are_read_where_l3_is_far_away(far, depth, monkeypatch):
    machine = replace(facts(AVX512), l2_bytes=2 << 20, l3_bytes=(300 if far else 32) << 20)
    monkeypatch.setattr(left_pixels_space, "facts", lambda _: machine)
    shape = {"n": 1, "h": 7, "w": 7, "ci": 512, "co": 512, "kh": 3, "kw": 3, "padding": 1, "layout": "NCHW"}
    assert LEFT_PIXELS.space(ts.workload("conv2d", **shape).func, AVX512).default["depth"] == depth


def test_parts_of_a_sum_are_whole_windows_and_stay_in_l2():
    for name in ("padded", "wide_window"):
        taps = np.prod(WORKLOADS[name].args[1].shape[2:])
        assert LEFT_PIXELS.space(WORKLOADS[name].func, AVX512).default["depth"] % taps == 0
    # Of 432 products no part is whole windows and vectors: all windows are copied first.
    within = LEFT_PIXELS.space(WORKLOADS["no_parts_of_whole_windows"].func, AVX512).default
    assert (within["depth"], within["ahead"]) == (48, 1)
    wide = {"kh": 5, "kw": 5, "padding": 2}
    one, eight = (LEFT_PIXELS.space(convolution(n=n, **wide).func, AVX512) for n in (1, 8))
    assert one.default["depth"] == 400 and eight is None


@pytest.mark.parametrize(("machine", "bits", "sums"), [(AVX512, 512, 24), (AVX2, 256, 12), (ARM, 128, 24)])
def test_sums_stay_in_registers(machine, bits, sums):
    workload = convolution(ci=512, kh=1, kw=1, padding=0)
    shape = {} if machine is not ARM else {"h": 5, "w": 5}
    workload = convolution(ci=512, kh=1, kw=1, padding=0, **shape)
    code = build(LEFT_PIXELS.scheduled(workload.func, machine), machine).mod.inspect_source("s")
    loops = summing_loops(code)
    assert max(loop.accumulators for loop in loops) == sums
    assert all((loop.bits, loop.stores, loop.spills) == (bits, 0, 0) for loop in loops)


@pytest.mark.parametrize(
    ("knob", "value", "rule"),
    [
        ("depth", 24, "both are whole vectors"),
        ("depth", 128, "depth divides the products of a sum .576."),
        ("nr", 40, "both are whole vectors"),
        ("nr", 32, "nr the pixels .48."),
        ("mr", 0, "are at least 1"),
        ("lanes", 8, "lanes is 16"),
        ("mr", 16, "fit 32 registers"),
        ("block_rows", 3, "mr . block_rows divides the channels .64."),
    ],
)
def test_knobs_that_are_no_parts_are_refused(knob, value, rule):
    with pytest.raises(InputError, match=rule):
        LEFT_PIXELS.scheduled(WORKLOADS["padded"].func, AVX512, {knob: value})


def test_a_trace_begins_with_the_form_and_is_replayed():
    func = WORKLOADS["strided"].func
    schedule = LEFT_PIXELS.scheduled(func, AVX512)
    trace = trace_text(schedule)
    assert '"tunesmith.algorithm.left_pixels_16_144"' in trace
    assert replay_trace(trace, func).mod.script() == schedule.mod.script()
    with pytest.raises(InputError, match=r"left_pixels_16_144, which does not fit.*has its outputs first"):
        replay_trace(trace, OTHERS["channels_last"].func)


@pytest.mark.parametrize(("lanes", "depth"), [(16, 24), (16, 640), (64, 64), (7, 63)])
def test_other_vectors_and_parts_are_refused(lanes, depth):
    func = WORKLOADS["padded"].func
    assert find_left_pixels(func) is not None
    with pytest.raises(InputError, match=rf"there is no vector of {lanes} pixels, or 576 products are no"):
        restate(func, lanes, depth)
