"""Tiles that go on from one line to the next: which are right, where they are the default, their loops."""

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.cpu.channels_first import CONV2D_CHANNELS_FIRST
from tunesmith.schedules.cpu.conv2d import CONV2D
from tunesmith.schedules.cpu.matmul import MATMUL
from tunesmith.schedules.forms.flat_rows import restate
from tunesmith.schedules.passes.loop_partition import partition_loops
from tunesmith.tuning.records.compilation import build, replay_trace, trace_text

AVX2 = as_target({"kind": "llvm", "mcpu": "haswell", "mtriple": "x86_64-linux-gnu", "num-cores": 2})
ENDED = {"bias": 1, "relu": 1, "residual": 1}


def convolution(dtype="float32", **more):
    shape = {"n": 1, "h": 13, "w": 13, "ci": 128, "co": 64, "kh": 1, "kw": 1}
    return ts.workload("conv2d", dtype=dtype, **{**shape, **more})


def sequences(b, m, **more):
    shape = {"b": b, "m": m, "n": 64, "k": 128, "transpose": "NN", "shared": "B"}
    return ts.workload("batch_matmul", **{**shape, **more})


WORKLOADS = {
    "pointwise": (CONV2D, convolution(**ENDED)),
    "images": (CONV2D, convolution(n=3, h=7, w=7, residual=1)),
    "strided": (CONV2D, convolution(n=2, h=13, w=9, stride=2, bias=1)),
    "window": (CONV2D, convolution(h=9, w=9, ci=48, kh=3, kw=3, relu=1)),
    "padded": (CONV2D, convolution(h=8, w=7, kh=3, kw=3, padding=1, stride=2, bias=1)),
    "columns_that_are_no_panels": (CONV2D, convolution(h=7, w=7, co=100, bias=1)),
    "one_dimension": (CONV2D, ts.workload("conv1d", n=3, l=19, ci=64, co=40, kernel=3, stride=2, padding=1)),
    "channels_first": (CONV2D_CHANNELS_FIRST, convolution(layout="NCHW", **ENDED)),
    "channels_first_padded": (
        CONV2D_CHANNELS_FIRST,
        convolution(h=11, w=12, padding=1, layout="NCHW", **ENDED),
    ),
    "channels_first_odd": (CONV2D_CHANNELS_FIRST, convolution(h=9, w=11, ci=130, co=33, layout="NCHW")),
    "float64": (CONV2D, convolution("float64", h=7, w=7)),
    "float16": (CONV2D, convolution("float16", h=7, w=7, bias=1)),
    "sequences": (MATMUL, sequences(5, 13)),
    "weight_along_the_sum": (MATMUL, sequences(3, 11, transpose="NT", n=40)),
}
EVEN = {
    "lines_of_whole_tiles": (CONV2D, convolution(h=12, w=12)),
    "taps_that_meet_only_padding": (CONV2D, convolution(kh=3, kw=3, padding=1)),
    "short_sums": (CONV2D, convolution(ci=96)),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_points_are_right(name, target, assert_right):
    rule, workload = WORKLOADS[name]
    points = [point for point in rule.space(workload.func, target).points if point["rows"]]
    (own,) = {point["rows"] for point in points}
    drawn = np.random.default_rng(0).permutation(len(points))
    tiles_of_own_rows = next(points[i] for i in drawn if points[i]["mr"] == own)
    others = next(points[i] for i in drawn if own % points[i]["mr"])
    assert_right(workload, rule.scheduled(workload.func, target, tiles_of_own_rows))
    assert_right(workload, rule.scheduled(workload.func, target, others), optimized=False)


@pytest.mark.parametrize("name", ["pointwise", "images", "channels_first", "sequences", "float64"])
def test_lines_that_leave_tiles_empty_are_one_axis(name, assert_right):
    rule, workload = WORKLOADS[name]
    assert rules_for(workload.func, AVX2)[0] is rule
    assert rule.space(workload.func, AVX2).default["rows"] > 0
    # The schedule runs where its vectors are, on any machine that has them or that LLVM splits them for.
    assert_right(workload, rule.scheduled(workload.func, AVX2))


@pytest.mark.parametrize("name", EVEN)
def test_other_lines_keep_their_tiles(name):
    rule, workload = EVEN[name]
    assert not rule.space(workload.func, AVX2).default.get("rows")


def test_one_line_is_none_of_several():
    assert "rows" not in MATMUL.space(ts.workload("matmul", m=13, n=64, k=128).func, AVX2).default
    assert "rows" not in CONV2D.space(convolution(h=1).func, AVX2).default


def test_no_tile_has_a_condition():
    """169 pixels in tiles of 5 are 34, of which the last begins at the 165th."""
    _, workload = WORKLOADS["pointwise"]
    schedule = CONV2D.scheduled(workload.func, AVX2)
    assert schedule.get(schedule.get_sblock("flat_rows_sums_update")).reads[1].source.name == "data"
    text = str(partition_loops(schedule.mod))
    assert "T.int64(164)" in text
    assert "if " not in text and "T.where" not in text and "T.if_then_else" not in text


def test_a_constant_weight_is_packed_beforehand(assert_same_outputs):
    rule, workload = WORKLOADS["images"]
    func = workload.func.with_attr(CONSTANT_ARGUMENTS, [1])
    schedule = rule.scheduled(func, AVX2)
    assert rule.space(func, AVX2).default["rows"] > 0
    assert_same_outputs(workload.func, schedule)


@pytest.mark.parametrize("name", ["pointwise", "images"])
def test_sums_stay_in_registers(name):
    rule, workload = WORKLOADS[name]
    knobs = rule.space(workload.func, AVX2).default
    loop = inner_loop(build(rule.scheduled(workload.func, AVX2), AVX2).mod.inspect_source("s"))
    assert loop.multiply_adds % (knobs["mr"] * knobs["nr"] // knobs["lanes"]) == 0
    assert (loop.bits, loop.stores, loop.spills) == (256, 0, 0)


def test_a_trace_begins_with_the_form_and_is_replayed():
    rule, workload = WORKLOADS["images"]
    schedule = rule.scheduled(workload.func, AVX2)
    trace = trace_text(schedule)
    assert f"flat_rows_{rule.space(workload.func, AVX2).default['rows']}" in trace
    assert replay_trace(trace, workload.func).mod.script() == schedule.mod.script()
    with pytest.raises(InputError, match=r"which does not fit.*rows along several axes"):
        replay_trace(trace, ts.workload("matmul", m=13, n=64, k=128).func)


def test_a_form_that_is_none_of_a_function_is_refused():
    with pytest.raises(InputError, match="no product of at least 4 rows along several axes"):
        restate(ts.workload("matmul", m=13, n=64, k=128).func, 4)
    with pytest.raises(InputError, match="no product of at least 170 rows"):
        restate(convolution().func, 170)


@pytest.mark.parametrize("name", ["pointwise", "channels_first"])
def test_tiles_of_the_other_kind_have_a_default_of_their_own(name):
    rule, workload = WORKLOADS[name]
    space = rule.space(workload.func, AVX2)
    lines = space.check({"rows": 0})
    assert lines["rows"] == 0 and lines["block_rows"] % 3 == 0  # three tiles of 5 are a line
    assert space.check({"rows": 0, "nr": 8})["block_rows"] == lines["block_rows"]
    assert space.check({"nr": 8}) == {**space.default, "nr": 8}


def test_knobs_of_the_other_tiles_are_refused():
    func = WORKLOADS["padded"][1].func
    with pytest.raises(InputError, match="skip is 0 where rows is not"):
        CONV2D.scheduled(func, AVX2, {"rows": CONV2D.space(func, AVX2).knobs[0].values[1], "skip": 1})
    with pytest.raises(InputError, match="rows is 0 or"):
        CONV2D.scheduled(func, AVX2, {"rows": 3})


def test_one_column_has_tiles_of_lines_only(target):
    """Of one axis of rows and one column the rows would be taken for columns, and no tile fit one row."""
    workload = ts.workload("conv2d_transpose", n=1, h=11, w=9, ci=30, co=1, kh=5, kw=5, stride=1, padding=4)
    space = CONV2D.space(workload.func, target)
    assert "rows" not in space.default and space.allows(space.default)
