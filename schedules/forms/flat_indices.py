"""Several axes as one, and one as several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def flat(extents: Sequence[int], first: Any, place: Sequence[Any]) -> Any:
    """Return the position of a place along axes of these extents, after an axis that ``first`` counts."""
    for extent, at in zip(extents, place, strict=True):
        first = first * extent + at
    return first


def unflat(extents: Sequence[int], position: Any) -> list[Any]:
    """Return the place of a position: along an axis before those of these extents, and along these."""
    place: list[Any] = []
    for extent in reversed(extents):
        place.insert(0, position % extent)
        position = position // extent
    return [position, *place]
