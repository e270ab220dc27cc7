"""What schedules ask about a computation."""

import pytest
import tunesmith as ts
from tunesmith.kernels.operator import as_prim_func
from tunesmith.schedules.analysis import main_extents, steps_of_reading
from tvm import s_tir, te, tirx


@pytest.mark.parametrize(
    "name, shape, extents",
    [
        ("matmul", {"m": 3, "n": 5, "k": 7}, (1, 3, 5, 7)),
        ("batch_matmul", {"b": 2, "m": 3, "n": 5, "k": 7}, (2, 3, 5, 7)),
        ("matmul", {"m": 3, "n": 1, "k": 7}, (1, 3, 1, 7)),
        ("softmax", {"m": 3, "n": 5}, (1, 1, 3, 5)),
        ("relu", {"m": 3, "n": 5}, (1, 3, 5, 1)),
    ],
)
def test_main_extents_are_those_of_the_largest_block(name, shape, extents):
    found = main_extents(ts.workload(name, **shape).func)
    assert found == dict(zip(("outer", "row", "column", "sums"), extents, strict=True))


def test_main_extents_of_a_convolution_sum_over_its_window():
    workload = ts.workload("conv2d", n=2, h=8, w=6, ci=4, co=16, kh=3, kw=3, stride=1, padding=1)
    assert main_extents(workload.func) == {"outer": 2 * 8, "row": 6, "column": 16, "sums": 3 * 3 * 4}


def reading(extent, index, function=lambda value: value):
    """Return a schedule of a block named y that reads x where an index says."""
    x = te.placeholder((64,), name="x")
    y = te.compute((extent,), lambda i: function(x[index(i)]), name="y")
    return s_tir.Schedule(as_prim_func([x, y]))


@pytest.mark.parametrize(
    ("extent", "index", "steps"),
    [
        (32, lambda i: i // 2, 2),
        (36, lambda i: i // 3 + 1, 3),
        (32, lambda i: (2 * i + 3) // 4, 2),
        (32, lambda i: i, 1),
        (32, lambda i: 0, 1),
        (33, lambda i: i // 2, 1),  # the last has no neighbour
        (32, lambda i: 2 * i, 1),
        (32, lambda i: tirx.max(2 * i - 1, 0) // 4, 1),
    ],
)
def test_neighbours_that_read_the_same_are_counted(extent, index, steps):
    assert steps_of_reading(reading(extent, index), "y") == steps
    assert steps_of_reading(reading(extent, index, te.exp), "y") == 1
