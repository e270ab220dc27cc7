"""Sums that are held in registers for some steps: the loops, and that results are the same."""

import re

import pytest
import tunesmith as ts
from tunesmith.schedules.passes.held_sums import HOLD_MARK, hold_sums
from tunesmith.schedules.passes.loop_partition import partition, partition_loops
from tvm import s_tir

PRODUCT = ts.workload("matmul", m=9, n=16, k=12)


def scheduled(mr, lanes, vectors, cut):
    """Return a product in tiles of so many rows; those that are left after whole tiles may be cut off."""
    sch = s_tir.Schedule(PRODUCT.func)
    block = sch.get_sblock("matmul")
    i, j, k = sch.get_loops(block)
    tiles, row = sch.split(i, [None, mr])
    panels, vector, lane = sch.split(j, [None, vectors, lanes])
    deep, step = sch.split(k, [None, 4])
    sch.reorder(deep, panels, tiles, step, row, vector, lane)
    sch.unroll(row)
    sch.unroll(vector)
    if lanes > 1:
        sch.vectorize(lane)
    if cut:
        partition(sch, tiles)
    sch.decompose_reduction(block, deep)
    hold_sums(sch, step)
    return sch


def around_and_inside(sch):
    """Return the lines around the loop over steps, and those in it."""
    script = str(partition_loops(sch.mod))
    assert HOLD_MARK not in script
    lines = script.splitlines()
    start = next(n for n, line in enumerate(lines) if re.search(r"for .*\bk_1\b", line))
    depth = len(lines[start]) - len(lines[start].lstrip())
    after = (n for n in range(start + 1, len(lines)) if len(lines[n]) - len(lines[n].lstrip()) <= depth)
    end = next(after, len(lines))
    return lines[:start] + lines[end:], lines[start:end]


@pytest.mark.parametrize(
    ("mr", "lanes", "vectors"),
    [(3, 4, 2), (1, 4, 1), (4, 4, 2), (2, 1, 8)],  # neither two nor four rows divide nine
)
def test_a_tile_is_loaded_before_the_steps_and_stored_after(mr, lanes, vectors, assert_right):
    sch = scheduled(mr, lanes, vectors, cut=True)
    around, steps = around_and_inside(sch)
    assert "matmul[" not in "".join(steps) and "held_0" in "".join(steps)
    copies = [line for line in around if "held_" in line and "matmul[" in line]
    tiles = [mr * vectors] + ([9 % mr * vectors] if 9 % mr else [])
    assert len(copies) == 2 * sum(tiles)
    assert_right(PRODUCT, sch)


def test_sums_that_a_condition_is_about_stay_in_memory(assert_right):
    sch = scheduled(4, 4, 2, cut=False)
    around, steps = around_and_inside(sch)
    assert "matmul[" in "".join(steps) and "held_" not in "".join(around + steps)
    assert_right(PRODUCT, sch)
