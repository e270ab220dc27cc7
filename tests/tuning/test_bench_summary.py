"""The comparison over many shapes: best library, geometric mean, and what is slower."""

import pytest
from tunesmith.tuning.benchmark.summary import against_best_library


def row(operator, implementation, median_s, verified=True, m=8):
    shape = {"m": m, "n": 4}
    return {
        "operator": operator,
        "shape": shape,
        "dtype": "float32",
        "implementation": implementation,
        "median_s": median_s,
        "verified": verified,
    }


def test_the_best_right_library_of_each_shape_counts():
    rows = [
        *(row("add", "default", 1.0), row("add", "numpy", 4.0), row("add", "torch", 5.0)),
        *(row("add", "default", 2.0, m=9), row("add", "numpy", 1.0, m=9), row("add", "torch", 0.5, False, 9)),
        *(row("exp", "default", 1.0), row("exp", "general", 0.1)),
    ]
    found = against_best_library(rows)
    assert found.count == 2
    assert found.ratio == pytest.approx((4.0 * 0.5) ** 0.5)
    assert found.slower == (("add m=9,n=4", 0.5, "numpy"),)


def test_without_a_library_there_is_nothing_to_say():
    assert against_best_library([row("add", "default", 1.0), row("add", "unscheduled", 2.0)]) is None
    assert against_best_library([row("add", "numpy", 1.0), row("add", "torch", 2.0)]) is None


def test_equal_within_noise_is_not_slower():
    assert against_best_library([row("add", "default", 1.0), row("add", "torch", 0.99)]).slower == ()
