from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tunesmith.integrate.lowering.reshapes import move_past_reshape


@st.composite
def _cases(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """Draw a shape, a transposition of it and another shape of as many elements."""
    factors = draw(st.lists(st.sampled_from([1, 2, 2, 3, 5]), min_size=1, max_size=6))

    def grouped() -> list[int]:
        shape = [1] * draw(st.integers(1, 5))
        for factor in draw(st.permutations(factors)):
            shape[draw(st.integers(0, len(shape) - 1))] *= factor
        return shape

    source = grouped()
    return source, draw(st.permutations(range(len(source)))), grouped()


@given(_cases())
def test_it_is_the_same_tensor(case: tuple[list[int], list[int], list[int]]) -> None:
    source, axes, target = case
    x = np.arange(np.prod(source)).reshape(source)
    first, shape, last = move_past_reshape(source, axes, target)
    got = x.transpose(first).reshape(shape).transpose(last)
    np.testing.assert_array_equal(got, x.transpose(axes).reshape(target))


@pytest.mark.parametrize(
    ("source", "target", "first", "shape", "last"),
    [
        # Channels are split into groups: nothing is moved before.
        ((1, 7, 7, 12), (1, 3, 4, 7, 7), (0, 1, 2, 3), (1, 7, 7, 3, 4), (0, 3, 4, 1, 2)),
        # All is one row: it has to be moved before.
        ((1, 7, 7, 12), (1, 588), (0, 3, 1, 2), (1, 588), (0, 1)),
        # One pixel: nothing has to be moved at all.
        ((1, 1, 1, 12), (1, 12), (0, 1, 2, 3), (1, 12), (0, 1)),
        # A dimension of extent 1 comes behind the one that it stands behind.
        ((1, 7, 7, 12), (1, 1, 12, 7, 7), (0, 1, 2, 3), (1, 1, 7, 7, 12), (0, 1, 4, 2, 3)),
    ],
)
def test_channels_last_under_channels_first(
    source: tuple[int, ...],
    target: tuple[int, ...],
    first: tuple[int, ...],
    shape: tuple[int, ...],
    last: tuple[int, ...],
) -> None:
    assert move_past_reshape(source, (0, 3, 1, 2), target) == (first, shape, last)
