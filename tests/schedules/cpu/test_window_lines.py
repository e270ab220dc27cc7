"""Blocks of rows that each copy the lines which their windows slide over."""

from dataclasses import replace
from math import ceil

import pytest
import tunesmith as ts
from tunesmith.kernels.shapes import parse_shape
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules.cpu.conv2d import CONV2D
from tunesmith.schedules.cpu.tile_choice import TileChoice
from tunesmith.schedules.cpu.tile_space import block_of_own_lines
from tunesmith.schedules.nests.contraction import find_contraction

AVX512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
MACHINE = replace(facts(AVX512), l2_bytes=1 << 20, l3_bytes=32 << 20)


def choice(n=1, **shape):
    return TileChoice(find_contraction(ts.workload("conv2d", n=n, kh=3, kw=3, **shape).func), MACHINE)


@pytest.mark.parametrize(
    ("shape", "stages"),
    [
        ({"h": 320, "w": 320, "ci": 32, "co": 64, "stride": 2, "padding": 1}, True),
        ({"h": 80, "w": 80, "ci": 32, "co": 64, "stride": 2, "padding": 1}, False),  # L2 holds the copy
        ({"h": 640, "w": 640, "ci": 3, "co": 16, "stride": 2, "padding": 1}, False),  # pixels are no vectors
        ({"h": 320, "w": 320, "ci": 32, "co": 64, "stride": 2}, False),  # nothing is padded
    ],
)
def test_blocks_copy_their_own_lines_where_l2_would_lose_those_of_all(shape, stages):
    assert choice(**shape).is_worth_staging(32) == stages


@pytest.mark.parametrize(
    ("images", "lines", "own"),
    [(8, 24, 16), (8, 30, 28), (8, 250, 224), (1, 40, 28), (2, 40, 28), (3, 112, 112), (1, 1, 1)],
)
def test_lines_of_a_block_divide_an_image_or_are_whole_ones(images, lines, own):
    """112 lines; one image is shared by two threads in even parts."""
    made = choice(n=images, h=112, w=112, ci=48, co=64, padding=1)
    tiles = made.nest.tiles_in_line(8)
    assert block_of_own_lines(made, 8, lines * tiles) == own * tiles


@pytest.mark.parametrize(
    ("op", "shape", "knobs"),
    [
        ("conv2d", "n=2,h=12,w=9,ci=24,co=40,kh=3,kw=3,padding=1", {"mr": 3, "block_rows": 9}),
        ("conv2d", "n=1,h=15,w=15,ci=5,co=7,kh=5,kw=3,stride=2,padding=2", {}),
        ("conv2d", "n=1,h=10,w=10,ci=16,co=16,kh=3,kw=3,dilation=2,padding=2", {}),
        ("conv1d", "n=3,l=40,ci=8,co=12,kernel=3,padding=1", {}),
        ("conv2d_transpose", "n=1,h=7,w=7,ci=8,co=16,kh=4,kw=4,stride=2,padding=1", {}),
    ],
)
def test_blocks_that_copy_their_own_lines_are_right(op, shape, knobs, target, assert_right):
    workload = ts.workload(op, **parse_shape(shape))
    nest, default = find_contraction(workload.func), CONV2D.space(workload.func, target).default
    shared_rows = {"split_columns": 0, "block_columns": ceil(nest.columns / default["nr"]), "stage": 1}
    schedule = CONV2D.scheduled(workload.func, target, {**shared_rows, **knobs})
    assert_right(workload, schedule)
    copy, sums = (schedule.get_sblock(name) for name in (nest.staged, f"{nest.block}_update"))
    outermost = [schedule.get(schedule.get_loops(block)[0]) for block in (copy, sums)]
    assert outermost[0].same_as(outermost[1])
