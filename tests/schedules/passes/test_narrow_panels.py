"""The last panel of a weight: no wider than its columns, and results are the same."""

import re
from itertools import product

import pytest
import tunesmith as ts
from tunesmith.schedules.cpu.conv2d import CONV2D
from tunesmith.schedules.cpu.matmul import MATMUL
from tunesmith.schedules.passes.loop_partition import partition_loops
from tunesmith.schedules.passes.narrow_panels import NARROW_MARK


def tile(target, columns, vectors=2, **knobs):
    """Return how many columns so many vectors are, and knobs of tiles of ``vectors``."""
    space = MATMUL.space(ts.workload("matmul", m=64, n=1024, k=16).func, target)
    lanes = space.default["lanes"]
    return round(columns * lanes), {"lanes": lanes, "nr": vectors * lanes, "mr": 3, **knobs}


def widths(schedule):
    """Return how many vectors the tiles have that are summed, one number for each such loop nest."""
    script = str(partition_loops(schedule.mod))
    return [int(each) for each in re.findall(r"for j_2 in T\.unroll\(T\.int64\((\d+)\)\)", script)]


@pytest.mark.parametrize(
    ("columns", "vectors", "summed"),
    [
        (5, 2, [2, 1]),
        (4.25, 2, [2, 1]),  # a vector that ends within
        (6.5, 4, [4, 3]),
        (4, 2, [2]),
        (3.5, 2, [2]),  # no vector without columns
    ],
)
def test_vectors_without_columns_are_not_computed(columns, vectors, summed, target, assert_right):
    columns, knobs = tile(target, columns, vectors, mr=2, block_columns=1, split_columns=1, pack=1)
    workload = ts.workload("matmul", m=8, n=columns, k=33)
    schedule = MATMUL.scheduled(workload.func, target, {**knobs, "block_rows": 4})
    assert widths(schedule) == summed
    assert (NARROW_MARK in schedule.mod.script()) == (len(summed) == 2)
    assert_right(workload, schedule)


UNPACKED = [
    {"pack": 0, "split_columns": 0, "block_columns": 2, "block_rows": 1},
    {"pack": 0, "split_columns": 1, "block_columns": 4, "block_rows": 4},
]
PACKED = [
    {"pack": 1, "split_columns": 1, "block_columns": 1, "block_rows": 2},
    {"pack": 1, "split_columns": 1, "block_columns": 3, "block_rows": 4, "pad": 1},
    {"pack": 2, "split_columns": 0, "block_columns": 4, "block_rows": 2, "fetch": 1},
]


@pytest.mark.parametrize(
    ("transpose", "blocks"),
    [*product(("NN", "TN"), UNPACKED + PACKED), *product(("NT",), PACKED)],
)
def test_all_who_share_and_pack(transpose, blocks, target, assert_right):
    """Rows are left after whole tiles, too."""
    columns, knobs = tile(target, 6.25, **blocks)
    rows, sums = (12, 32) if blocks.get("fetch") else (11, 37)
    workload = ts.workload("matmul", m=rows, n=columns, k=sums, transpose=transpose)
    assert_right(workload, MATMUL.scheduled(workload.func, target, knobs))


@pytest.mark.parametrize(
    ("operator", "vectors", "shape"),
    [
        ("linear", 2, {"m": 7, "k": 20, "activation": "gelu", "bias": 1, "residual": 1}),
        ("batch_matmul", 2, {"b": 3, "m": 9, "k": 20}),
        ("conv2d", 2, {"n": 2, "h": 5, "w": 6, "ci": 5, "kh": 3, "kw": 3, "padding": 1, "relu": 1}),
        (
            "conv2d_transpose",
            4,
            {"n": 1, "h": 3, "w": 5, "ci": 5, "kh": 3, "kw": 3, "stride": 2},
        ),  # 10 vectors
    ],
)
def test_what_is_around_a_product(operator, vectors, shape, target, assert_right):
    columns, knobs = tile(target, 2.5, vectors, mr=2, block_rows=1, block_columns=1, split_columns=0, pack=2)
    rule = CONV2D if operator.startswith("conv") else MATMUL
    workload = ts.workload(operator, **shape, **{"co" if rule is CONV2D else "n": columns})
    schedule = rule.scheduled(workload.func, target, knobs)
    assert NARROW_MARK in schedule.mod.script()
    assert_right(workload, schedule)
