"""Pooling along short lines: which is found, and that vectors of any width are right."""

import pytest
import tunesmith as ts
import tvm_ffi
from tunesmith.kernels.operator import as_prim_func
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.algorithms import begin
from tunesmith.schedules.code_generation import generate_code
from tunesmith.schedules.cpu.pooled import POOLED
from tunesmith.schedules.forms.pooled import find_pooling, restate
from tunesmith.tuning.records.compilation import replay_trace, trace_text
from tvm import te, tirx
from tvm.ir import TensorLoad
from tvm_ffi import structural_walk

AVX512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})


def pool(side, kernel=2, stride=2, padding=0, kind="max", dtype="float32", layout="NCHW", channels=3):
    shape = {"n": 2, "h": side + 1, "w": side, "c": channels, "kernel": kernel, "stride": stride}
    return ts.workload(f"{kind}_pool2d", dtype=dtype, padding=padding, layout=layout, **shape)


WINDOWS = [
    (4, 2, 2, 0), (7, 3, 2, 0), (7, 3, 2, 1), (8, 2, 2, 0), (13, 3, 2, 0), (14, 3, 2, 1), (14, 2, 2, 0),
    (15, 3, 3, 1), (23, 5, 2, 2), (28, 2, 2, 0), (31, 3, 4, 1), (57, 3, 2, 1), (60, 2, 3, 0),
]  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("max", "float32"), ("max", "float16"), ("max", "float64"), ("max", "int8"), ("avg", "float32")],
)
def test_vectors_of_any_width_are_right(window, kind, dtype, assert_right):
    workload = pool(*window, kind=kind, dtype=dtype)
    found = find_pooling(workload.func)
    if kind == "avg" and window[-1]:
        assert found is None  # how many are averaged depends on where
        return
    line = found.window.extents[-1]
    for lanes in (lanes for lanes in (2, 4, 8, 16) if lanes <= line <= 4 * lanes):
        schedule = begin(workload.func, f"pooled_{lanes}")
        POOLED.rewrite(schedule, lanes=lanes, parallel=1)
        assert_right(workload, schedule)


@pytest.mark.parametrize("window", WINDOWS)
def test_no_vector_is_read_beyond_its_line(window):
    func, ends = pool(*window).func, set()
    lanes = POOLED.space(func, AVX512).default["lanes"]

    def look(load):
        assert int(load.indices[-1].base) >= 0
        ends.add(int(load.indices[-1].base) + int(load.indices[-1].lanes))

    structural_walk(restate(func, lanes).body, [(TensorLoad, look)])
    assert ends and max(ends) <= window[0]


def test_lines_beyond_the_image_add_nothing(target, assert_same_outputs):
    """A sum: the largest of a window is the same with a line twice."""
    x = te.placeholder((9, 14), name="x")
    inside = lambda i, j: tirx.all(i >= 1, i < 10, j >= 1, j < 15)  # noqa: E731
    zero = tirx.const(0, "float32")
    padded = te.compute(
        (11, 16), lambda i, j: tirx.if_then_else(inside(i, j), x[i - 1, j - 1], zero), name="pad"
    )
    i, j = (te.reduce_axis((0, 3), name=name) for name in "ij")
    sums = te.compute((5, 7), lambda p, q: te.sum(padded[2 * p + i, 2 * q + j], axis=[i, j]), name="sums")
    func = as_prim_func([x, sums])
    assert_same_outputs(func, POOLED.scheduled(func, target))


def test_the_widest_vectors_that_a_line_holds_are_the_default():
    spaces = {side: POOLED.space(pool(side).func, AVX512) for side in (2, 4, 14, 28, 56, 128, 130)}
    lanes = {side: space.default["lanes"] for side, space in spaces.items() if space is not None}
    assert lanes == {4: 2, 14: 4, 28: 8, 56: 16, 128: 16}
    assert rules_for(pool(14).func, AVX512)[0] is POOLED


def test_every_width_that_is_offered_can_be_compiled():
    """Eleven outputs are no four vectors of two."""
    space = POOLED.space(pool(33, 3, 3).func, AVX512)
    assert {point["lanes"] for point in space.points} == {4, 8}
    for knobs in space.points:
        assert POOLED.scheduled(pool(33, 3, 3).func, AVX512, knobs) is not None


def scaled_by_place():
    """Pool lines whose results are multiplied by where they are."""
    x = te.placeholder((4, 16), name="x")
    j = te.reduce_axis((0, 2), name="j")
    k = te.reduce_axis((0, 2), name="k")
    pooled = te.compute((2, 8), lambda p, q: te.max(x[2 * p + k, 2 * q + j], axis=[k, j]), name="pooled")
    scaled = te.compute((2, 8), lambda p, q: pooled[p, q] * q.astype("float32"), name="scaled")
    return as_prim_func([x, scaled])


@pytest.mark.parametrize(
    "func",
    [
        pool(14, 3, 1, 1).func,  # neighbours along the line: vectors of it as they lie
        pool(14, layout="NHWC").func,
        pool(14, 7, 2, 0).func,  # many taps
        pool(14, dtype="bfloat16").func,
        scaled_by_place(),
        ts.workload("relu", m=8, n=8).func,
        ts.workload("sum", c=8, d=8).func,
    ],
)
def test_others_are_left_alone(func, target, assert_same_outputs):
    assert find_pooling(func) is None and POOLED.space(func, AVX512) is None
    assert_same_outputs(func, rules_for(func, target)[0].scheduled(func, target))


def test_a_form_that_does_not_fit_is_refused():
    for workload, lanes in ((pool(14), 8), (pool(200), 16), (ts.workload("relu", m=8, n=8), 4)):
        with pytest.raises(InputError, match=f"pools no lines of {lanes} outputs or more"):
            restate(workload.func, lanes)


def test_its_trace_begins_with_the_form():
    func = pool(14, 3, 2, 1).func
    schedule = POOLED.scheduled(func, AVX512)
    assert "pooled_4" in trace_text(schedule)
    assert tvm_ffi.structural_equal(replay_trace(trace_text(schedule), func).mod, schedule.mod)


def test_a_short_line_is_vectors_only():
    code = generate_code(POOLED.scheduled(pool(14).func, AVX512).mod, AVX512).mod.inspect_source("asm")
    assert "vmaxss" not in code and "vinsertps" not in code and "vmaxps" in code


def test_lines_are_spread_over_threads_where_there_are_enough():
    for channels, spread in ((1024, True), (1, False)):
        schedule = POOLED.scheduled(pool(14, channels=channels).func, AVX512)
        assert ("T.parallel" in schedule.mod.script()) == spread
