"""Lines that strided windows read are taken apart in registers, also where vectors do not divide them."""

import re

import pytest
import tunesmith as ts
from tunesmith.schedules.code_generation import finished
from tunesmith.schedules.cpu.lines import LINES


def depthwise(width, stride, dtype="float32", kernel=3):
    shape = {"h": 6, "w": width, "ci": 5, "co": 5, "groups": 5, "padding": kernel // 2}
    return ts.workload(
        "conv2d", dtype=dtype, n=2, kh=kernel, kw=kernel, stride=stride, layout="NCHW", **shape
    )


def shuffles(schedule, target):
    """How many elements those vectors have that every other element of a pair becomes."""
    script = finished(schedule.mod, target).script()
    return {len(places.split(",")) for places in re.findall(r"Shuffle\(.*?, \[([^]]*)\]\)", script)}


@pytest.mark.parametrize(
    ("width", "kernel", "lanes"),
    [(56, 5, 16), (64, 3, 16), (34, 3, 16), (33, 3, 16), (31, 3, 8), (20, 3, 8)],
)
def test_lines_of_any_length_are_taken_apart(width, kernel, lanes, target, assert_right):
    workload = depthwise(width, 2, kernel=kernel)
    schedule = LINES.scheduled(workload.func, target)
    widest = LINES.space(workload.func, target).default["lanes"]
    assert shuffles(schedule, target) == {min(lanes, widest)}
    assert_right(workload, schedule)


def test_lines_are_left_to_llvm_where_windows_move_by_more(target, assert_right):
    workload = depthwise(60, 3)
    schedule = LINES.scheduled(workload.func, target)
    assert shuffles(schedule, target) == set()
    assert_right(workload, schedule)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types(dtype, target, assert_right):
    workload = depthwise(70, 2, dtype)
    assert_right(workload, LINES.scheduled(workload.func, target))
