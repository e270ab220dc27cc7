"""Interpolation along lines: which are found, and that vectors of any width are right."""

import re

import pytest
import tunesmith as ts
import tvm_ffi
from tunesmith.kernels.operator import as_prim_func
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.algorithms import begin
from tunesmith.schedules.code_generation import generate_code
from tunesmith.schedules.cpu.interpolated import INTERPOLATED
from tunesmith.schedules.forms.interpolated import find_interpolation, restate
from tunesmith.tuning.records.compilation import replay_trace, trace_text
from tvm import te

AVX512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})


def bilinear(side, scale=2, layout="NCHW", mode="bilinear", dtype="float32", channels=3):
    shape = {"n": 2, "h": 5, "w": side, "c": channels, "scale": scale, "mode": mode, "layout": layout}
    return ts.workload("resize2d", dtype=dtype, **shape)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    ("side", "scale"), [(4, 2), (5, 3), (7, 2), (8, 2), (13, 2), (13, 4), (16, 8), (37, 2), (71, 3), (90, 2)]
)
def test_vectors_of_any_width_are_right(side, scale, dtype, assert_right):
    workload = bilinear(side, scale, dtype=dtype)
    for lanes in (lanes for lanes in (4, 8, 16) if lanes <= side):
        schedule = begin(workload.func, f"interpolated_{lanes}")
        INTERPOLATED.rewrite(schedule, lanes=lanes, parallel=1)
        assert_right(workload, schedule)


def test_the_widest_vectors_that_a_line_holds_are_the_default():
    spaces = {side: INTERPOLATED.space(bilinear(side).func, AVX512) for side in (3, 4, 13, 20, 90)}
    lanes = {side: space.default["lanes"] for side, space in spaces.items() if space is not None}
    assert lanes == {4: 4, 13: 8, 20: 16, 90: 16}
    assert rules_for(bilinear(13).func, AVX512)[0] is INTERPOLATED


def between(weight, along=lambda i: i // 2):
    """Interpolate lines of 16 elements, whose last one is there several times."""
    x = te.placeholder((4, 16), name="x")
    line = te.compute((4, 20), lambda h, j: x[h, te.min(j, 15)] * 2.0, name="line")
    output = te.compute((4, 32), lambda h, i: line[h, along(i)] + line[h, along(i) + 1] * weight(i), name="y")
    return as_prim_func([x, output])


@pytest.mark.parametrize(
    ("func", "found"),
    [
        (between(lambda i: (i % 2).astype("float32")), True),
        (between(lambda i: i.astype("float32")), False),  # another weight in each step
        (between(lambda i: 0.5, along=lambda i: te.max(i // 2 - 4, 0)), False),  # far from its column
        (between(lambda i: 0.5, along=lambda i: i // 2 + 2), False),
        (bilinear(13, layout="NHWC").func, False),
        (bilinear(13, mode="nearest").func, False),
        (bilinear(13, dtype="bfloat16").func, False),  # TVM has no vectors of it, but of its bits
        (ts.workload("relu", m=8, n=8).func, False),
        (ts.workload("softmax", m=8, n=8).func, False),
    ],
)
def test_steps_that_are_alike_are_found(func, found, target, assert_same_outputs):
    assert (find_interpolation(func) is not None) == (INTERPOLATED.space(func, AVX512) is not None) == found
    assert_same_outputs(func, rules_for(func, target)[0].scheduled(func, target))


def test_a_form_that_does_not_fit_is_refused():
    for workload in (bilinear(7), ts.workload("relu", m=8, n=8)):
        with pytest.raises(InputError, match="interpolates no lines of 8 columns or more"):
            restate(workload.func, 8)


def test_its_trace_begins_with_the_form():
    func = bilinear(13).func
    schedule = INTERPOLATED.scheduled(func, AVX512)
    assert "interpolated_8" in trace_text(schedule)
    assert tvm_ffi.structural_equal(replay_trace(trace_text(schedule), func).mod, schedule.mod)


def test_a_short_line_is_vectors_only():
    schedule = INTERPOLATED.scheduled(bilinear(13).func, AVX512)
    assert "lines" not in schedule.mod.script()  # no line is stored
    code = generate_code(schedule.mod, AVX512).mod.inspect_source("asm")
    assert not re.search(r"vmovss\s+%xmm\d+, .*\(|vinsertps", code)


def test_lines_are_spread_over_threads_where_there_are_enough():
    for channels, spread in ((1024, True), (1, False)):
        schedule = INTERPOLATED.scheduled(bilinear(6, channels=channels).func, AVX512)
        assert ("T.parallel" in schedule.mod.script()) == spread


def test_long_lines_are_a_loop():
    """Their code does not grow with them."""
    sizes = [len(INTERPOLATED.scheduled(bilinear(side).func, AVX512).mod.script()) for side in (160, 1600)]
    assert sizes[1] < 1.05 * sizes[0]
