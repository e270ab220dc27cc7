"""What schedules ask about a computation."""

import pytest
import tunesmith as ts
from tunesmith.schedules.analysis import main_extents


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
