"""Repetitions along lines: which are found, and that vectors of any width are right."""

import pytest
import tunesmith as ts
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import as_target
from tunesmith.schedules.algorithms import begin
from tunesmith.schedules.code_generation import generate_code
from tunesmith.schedules.cpu.repeated import REPEATED
from tunesmith.schedules.forms.repeated import find_repetition, restate

AVX512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})


def nearest(side, scale=2, layout="NCHW", mode="nearest", dtype="float32"):
    return ts.workload(
        "resize2d", dtype=dtype, n=2, h=side, w=side, c=3, scale=scale, mode=mode, layout=layout
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("side", "scale"), [(4, 2), (5, 3), (7, 2), (13, 2), (13, 8), (37, 2)])
def test_vectors_of_any_width_are_right(side, scale, dtype, assert_right):
    workload = nearest(side, scale, dtype=dtype)
    for lanes in (lanes for lanes in (4, 8, 16, 32) if lanes <= side):
        schedule = begin(workload.func, f"repeated_{lanes}")
        REPEATED.rewrite(schedule, lanes=lanes, parallel=1)
        assert_right(workload, schedule)


def test_lines_shorter_than_a_vector_are_taken_whatever_their_length():
    taken = {side: REPEATED.space(nearest(side).func, AVX512) for side in (3, 4, 13, 15, 16, 20)}
    lanes = {side: space.default["lanes"] for side, space in taken.items() if space is not None}
    assert lanes == {4: 4, 13: 8, 15: 8}


@pytest.mark.parametrize(
    "workload",
    [
        nearest(13, layout="NHWC"),  # the last axis is copied as it is
        nearest(13, mode="bilinear"),
        ts.workload("relu", m=8, n=8),
        ts.workload("transpose", c=8, d=8),
    ],
    ids=lambda w: w.label,
)
def test_others_are_left_alone(workload):
    assert find_repetition(workload.func) is None and REPEATED.space(workload.func, AVX512) is None


def test_a_form_that_does_not_fit_is_refused():
    for workload in (nearest(7), ts.workload("relu", m=8, n=8)):
        with pytest.raises(InputError, match="repeats no elements of lines of 8 or more"):
            restate(workload.func, 8)


def test_a_short_line_is_vectors_only():
    workload = nearest(13)
    schedule = REPEATED.scheduled(workload.func, AVX512)
    assert schedule.mod.script().count("T.Shuffle(") == 2
    code = generate_code(schedule.mod, AVX512).mod.inspect_source("asm")
    assert "vmovss" not in code and "vinsertps" not in code


def test_short_lines_are_spread_over_threads_where_there_are_enough(target):
    many = ts.workload("resize2d", n=1, h=6, w=6, c=1024, scale=2, mode="nearest", layout="NCHW")
    for workload, spread in ((many, True), (nearest(6), False)):
        assert ("T.parallel" in REPEATED.scheduled(workload.func, AVX512).mod.script()) == spread
