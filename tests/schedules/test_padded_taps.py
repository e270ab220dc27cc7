"""Taps that meet only zeros: which there are, that they are left out, and that results are the same."""

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.schedules.contraction import find_contraction
from tunesmith.schedules.cpu.conv2d import CONV2D

SHAPES = {
    "wide": {"h": 9, "w": 11, "kh": 3, "kw": 3, "padding": 5, "dilation": 5},
    "strided": {"h": 13, "w": 8, "kh": 3, "kw": 5, "padding": 4, "dilation": 2, "stride": 2},
    "a_line_meets_nothing": {"h": 3, "w": 3, "kh": 2, "kw": 2, "padding": 4},
    "one_line_of_taps": {"h": 5, "w": 6, "kh": 1, "kw": 3, "padding": 2},
    "one_pixel": {"h": 1, "w": 1, "kh": 3, "kw": 3, "padding": 1},
    "several_images": {"n": 3, "h": 6, "w": 6, "kh": 3, "kw": 3, "padding": 6, "dilation": 6},
    "many_channels": {"h": 5, "w": 5, "ci": 40, "co": 70, "kh": 3, "kw": 3, "padding": 4, "dilation": 4},
}


def conv(layout="NHWC", **shape):
    return ts.workload("conv2d", **{"n": 1, "ci": 5, "co": 19, "layout": layout, **shape})


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_where_data_lie(layout):
    padded = find_contraction(
        conv(layout, h=13, w=8, kh=3, kw=5, padding=4, dilation=2, stride=2).func
    ).padded
    assert [(axis.low, axis.high) for axis in padded] == [(4, 17), (4, 12)]


@pytest.mark.parametrize(
    "workload",
    [
        conv(h=9, w=9, kh=3, kw=3),
        ts.workload("matmul", m=9, n=9, k=9),
        ts.workload("quantized_conv2d", n=1, h=9, w=9, ci=4, co=32, kh=3, kw=3, padding=1, data_zero=3),
    ],
)
def test_nothing_is_left_out_where_nothing_is_zero(workload):
    assert find_contraction(workload.func).padded == ()


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("shape", SHAPES)
def test_results_are_the_same(shape, layout, target, assert_right):
    workload = conv(layout, **SHAPES[shape])
    space = CONV2D.space(workload.func, target)
    for knobs in ({}, space.points[np.random.default_rng(3).integers(len(space.points))]):
        assert_right(workload, CONV2D.scheduled(workload.func, target, {**knobs, "skip": 1}))


@pytest.mark.parametrize("skip", [0, 1])
def test_what_meets_only_zeros_is_not_multiplied(skip, target, run):
    """An infinite weight times padding is no number."""
    data, weight = np.ones((1, 1, 1, 5), "float32"), np.full((3, 3, 5, 19), np.inf, "float32")
    weight[1, 1] = 2
    workload = conv(**SHAPES["one_pixel"])
    (output,) = run(CONV2D.scheduled(workload.func, target, {"skip": skip}), (data, weight))
    assert np.isnan(output).all() if skip == 0 else (output == 10).all()
