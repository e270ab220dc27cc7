import math

import numpy as np
import pytest
from tunesmith.tuning.measuring import verdict as verdict_file
from tunesmith.tuning.measuring.verdict import Expected, compare

NAN, INF = math.nan, math.inf


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("got", "want", "ok"),
    [
        (f32(1, 2), f32(1, 2), True),
        (f32(1, 2.1), f32(1, 2), False),
        (f32(1, NAN), f32(1, 2), False),
        (f32(1, 2), f32(1, NAN), False),
        (f32(1, NAN), f32(1, NAN), True),
        (f32(1, INF), f32(1, INF), True),
        (f32(1, -INF), f32(1, INF), False),
        (f32(1, INF), f32(1, 2), False),
        (f32(1, 3e38), f32(1, INF), False),
        (f32(NAN, NAN), f32(NAN, NAN), True),
        (f32(NAN, 1), f32(NAN, NAN), False),
        (f32(0, 0), f32(0, 0), True),
        (f32(0, 1e-30), f32(0, 0), False),
        (f32(), f32(), True),
    ],
)
def test_comparison_of_floats(got, want, ok):
    assert compare(got, want, 1e-5).ok is ok
    assert Expected(want, 1e-5).compare(got).ok is ok


def test_integers_must_be_equal():
    assert compare(np.array([1, 2], np.int32), np.array([1, 2], np.int32), 0.0).ok
    verdict = compare(np.array([1, 4], np.int8), np.array([1, 2], np.int8), 1.0)
    assert not verdict.ok and verdict.max_error == 2 and "first at (1,): 4, expected 2" in verdict.message


def test_message_counts_what_was_never_written():
    verdict = compare(f32(NAN, NAN, 3), f32(1, 2, 3), 1e-5)
    assert "2 of 3 elements are wrong, first at (0,)" in verdict.message
    assert "2 are NaN (perhaps never written)" in verdict.message


BIG, SMALL = 3e38, 1e-44


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (f32(BIG, 1), f32(BIG, BIG)),
        (f32(BIG, BIG), f32(-BIG, BIG)),
        (f32(SMALL, 2 * SMALL), f32(SMALL, SMALL)),
        (np.array([1e300, 1.0]), np.array([1e300, 1e300])),
        (np.array([1e-300, 0.0]), np.array([1e-300, 1e-300])),
    ],
)
def test_extreme_values_are_compared(got, want):
    assert not Expected(want, 1e-5).compare(got).ok and not compare(got, want, 1e-5).ok
    assert Expected(want, 1e-5).compare(want).ok and compare(want, want, 1e-5).ok


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_right_outputs_are_judged_quickly(dtype, monkeypatch):
    rng = np.random.default_rng(0)
    want = rng.uniform(-20, 20, (50, 60)).astype(dtype)
    got = (want.astype(np.float64) * (1 + 0.01 * rng.uniform(-1, 1, want.shape))).astype(dtype)
    careful = compare(got, want, 0.02)
    monkeypatch.setattr(verdict_file, "compare", lambda *_: pytest.fail("compared with care"))
    quick = Expected(want, 0.02).compare(got)
    assert quick.ok and quick.max_error == pytest.approx(careful.max_error, rel=1e-5)


def test_what_is_not_settled_quickly_is_compared_with_care(monkeypatch):
    want = np.linspace(-1, 1, 100, dtype=np.float32)
    got = want.copy()
    got[7] += 0.1
    exact = compare(got, want, 0.0).max_error
    assert Expected(want, exact * (1 + 1e-6)).compare(got).ok
    assert not Expected(want, exact * (1 - 1e-6)).compare(got).ok


def test_a_single_number_is_compared():
    want = np.array(2.0, np.float32)
    assert Expected(want, 1e-5).compare(want.copy()).ok
    assert not Expected(want, 1e-5).compare(np.array(2.1, np.float32)).ok
