"""Taps that meet only zeros: which there are, that they are left out, and that results are the same."""

import re

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.schedules.code_generation import finished
from tunesmith.schedules.cpu.conv2d import CONV2D
from tunesmith.schedules.nests.contraction import find_contraction
from tunesmith.schedules.passes.padded_taps import READ_MARK

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
    points = [point for point in space.points if not point.get("rows")]  # tiles of one line
    for knobs in ({}, points[np.random.default_rng(3).integers(len(points))]):
        assert_right(workload, CONV2D.scheduled(workload.func, target, {**knobs, "skip": 1}))


@pytest.mark.parametrize("skip", [0, 1])
def test_what_meets_only_zeros_is_not_multiplied(skip, target, run):
    """An infinite weight times padding is no number."""
    data, weight = np.ones((1, 1, 1, 5), "float32"), np.full((3, 3, 5, 19), np.inf, "float32")
    weight[1, 1] = 2
    workload = conv(**SHAPES["one_pixel"])
    (output,) = run(CONV2D.scheduled(workload.func, target, {"skip": skip}), (data, weight))
    assert np.isnan(output).all() if skip == 0 else (output == 10).all()


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(
    ("size", "rows", "columns"),
    [
        ({"padding": 24, "dilation": 24}, (24, 52), (18, 58)),  # of lines those of data, and 6 pixels beside
        ({"padding": 6, "dilation": 6}, (6, 34), (0, 40)),
        ({"padding": 1}, None, None),
    ],
)
def test_only_what_is_read_is_padded(size, rows, columns, layout, target):
    """Rows of tiles of 7 outputs meet data under some taps: of elements beside data they read 6."""
    workload = conv(layout, h=28, w=28, ci=16, co=16, kh=3, kw=3, **size)
    script = CONV2D.scheduled(workload.func, target, {"mr": 7, "skip": 1}).mod.script()
    marks = re.findall(rf'"{READ_MARK}": \[(.*?)\]', script)
    assert len(marks) == (rows is not None)
    for mark in marks:
        read = [int(number) for number in mark.split(",")]
        assert (tuple(read[1:3]), tuple(read[4:6])) == (rows, columns)


def transposed(**shape):
    return ts.workload("conv2d_transpose", **{"n": 1, "h": 5, "w": 6, "ci": 5, "co": 16, **shape})


def test_a_weight_has_as_many_taps_as_meet_a_phase():
    """Of a kernel of 3 by strides of 2 the first phase has two taps, the other one."""
    rows, columns = find_contraction(transposed(kh=3, kw=3, stride=2).func).filled
    assert rows.zeros == (0,) * 32 + (1,) * 32
    assert columns.zeros == ((0,) * 16 + (1,) * 16) * 2
    few = find_contraction(transposed(kh=1, kw=4, stride=3).func).filled
    assert [sorted(set(axis.zeros)) for axis in few] == [[0, 1], [0, 1]]
    assert find_contraction(transposed(kh=4, kw=2, stride=2, padding=1).func).filled == ()


@pytest.mark.parametrize(
    "shape",
    [
        {"kh": 3, "kw": 3, "stride": 2, "padding": 1},
        {"kh": 5, "kw": 3, "stride": 2, "padding": 2, "co": 24, "n": 2},
        {"kh": 4, "kw": 5, "stride": 3, "padding": 1, "co": 48},
        {"kh": 1, "kw": 2, "stride": 3, "co": 32},
        {"kh": 3, "kw": 3, "stride": 2, "co": 5},  # a tile's columns are of several phases
        {"h": 2, "w": 128, "ci": 64, "kh": 3, "kw": 3, "stride": 2, "padding": 1, "output_padding": 1},
    ],
)
@pytest.mark.parametrize("skip", [0, 1])
def test_results_are_the_same_without_what_a_weight_is_filled_with(shape, skip, target, assert_right):
    workload = transposed(**shape)
    lanes = CONV2D.space(workload.func, target).default["lanes"]
    # Blocks of three panels: which columns a tile has depends on its block.
    for knobs in ({}, {"nr": lanes, "block_columns": 3, "split_columns": 1, "pack": 1}):
        if workload.shape["co"] == 5 and knobs:
            continue
        assert_right(workload, CONV2D.scheduled(workload.func, target, {**knobs, "skip": skip}))


@pytest.mark.parametrize("skip", [0, 1])
def test_what_a_weight_is_filled_with_is_not_multiplied(skip, target, run):
    workload = transposed(kh=3, kw=3, stride=2)
    data, weight = np.full((1, 5, 6, 5), np.inf, "float32"), np.ones((3, 3, 5, 16), "float32")
    lanes = CONV2D.space(workload.func, target).default["lanes"]
    schedule = CONV2D.scheduled(workload.func, target, {"nr": lanes, "skip": skip})
    (output,) = run(schedule, (data, weight))
    # Zeros around the data times weights are 0: what is left are the products of infinite data.
    assert np.isnan(output).any() if skip == 0 else not np.isnan(output).any()


def test_a_tile_of_one_element_is_stored(target, assert_right):
    workload = transposed(n=2, h=9, w=9, co=1, kh=4, kw=3)
    knobs = {"mr": 1, "nr": 1, "block_rows": 7, "block_columns": 1, "pack": 2}
    assert_right(workload, CONV2D.scheduled(workload.func, target, knobs))


def test_whole_tiles_have_no_condition_beside_one_that_is_cut(target):
    """A loop whose length depends on the tile hides what is in it from the pass that cuts tiles off."""
    workload = ts.workload("conv1d", n=2, l=87, ci=5, co=32, kernel=3, padding=1)
    schedule = CONV2D.scheduled(workload.func, target, {"mr": 4, "block_rows": 11, "nr": 32, "skip": 1})
    lines = finished(schedule.mod, target).script().splitlines()
    products = [at for at, line in enumerate(lines) if " * weight" in line]
    conditions = ["if " in lines[at - 1] for at in products]
    assert True in conditions
    assert False in conditions
