"""What takes the default's place at the end of a tuning: only what clearly beats it in the same rounds."""

from __future__ import annotations

import pytest
from tunesmith.tuning.confirmation import clearly_faster

DEFAULT = (1.0, 1.1, 0.9, 2.0, 1.0)


@pytest.mark.parametrize(
    ("factor", "expected"), [(0.9, True), (0.985, True), (0.995, False), (1.0, False), (1.1, False)]
)
def test_a_percent_in_the_shared_rounds_decides(factor: float, expected: bool) -> None:
    assert clearly_faster([factor * s for s in DEFAULT], DEFAULT) is expected


def test_one_lucky_round_does_not_decide() -> None:
    assert not clearly_faster((0.1, 1.1, 0.9, 2.0, 1.0), DEFAULT)


def test_a_disturbance_that_meets_both_does_not_decide() -> None:
    assert clearly_faster((0.9, 0.95, 0.8, 3.5, 0.95), (1.0, 1.05, 0.9, 4.0, 1.05))
