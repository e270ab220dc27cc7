"""Where outputs lie among pixels, in whole numbers, against fractions of them."""

from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tunesmith.kernels.resampling import Places

HALF = Fraction(1, 2)
COORDINATES = {
    "half_pixel": lambda p, pixels, outputs: (p + HALF) * Fraction(pixels, outputs) - HALF,
    "pytorch_half_pixel": lambda p, pixels, outputs: (
        (p + HALF) * Fraction(pixels, outputs) - HALF if outputs > 1 else Fraction(0)
    ),
    "asymmetric": lambda p, pixels, outputs: p * Fraction(pixels, outputs),
    "align_corners": lambda p, pixels, outputs: p * Fraction(pixels - 1, max(1, outputs - 1)),
}
ROUNDED = {
    "floor": floor,
    "ceil": ceil,
    "round_prefer_floor": lambda x: ceil(x - HALF),
    "round_prefer_ceil": lambda x: floor(x + HALF),
}


@pytest.mark.parametrize("mode", COORDINATES)
@given(pixels=st.integers(1, 40), outputs=st.integers(1, 90))
def test_every_output_lies_where_the_standard_has_it(mode, pixels, outputs):
    places = Places.of(mode, pixels, outputs)
    left, right = places.beyond
    for p in range(outputs):
        want = COORDINATES[mode](p, pixels, outputs)
        first, part = places.before(p)
        assert first + Fraction(part, places.divided) == want
        assert 0 <= part < places.divided
        assert -left <= first
        assert first + 1 <= pixels - 1 + right
        for rounding, rounded in ROUNDED.items():
            assert int(places.nearest(p, rounding)) == min(max(rounded(want), 0), pixels - 1), rounding


def test_a_whole_factor_has_the_smallest_numbers():
    assert Places.of("asymmetric", 20, 60) == Places(20, 60, 1, 0, 3)
    assert Places.of("half_pixel", 20, 40) == Places(20, 40, 2, -1, 4)
    assert Places.of("half_pixel", 20, 40).beyond == (1, 1)
