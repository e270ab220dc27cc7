"""A knob space as a grid of positions: which points are untried, and which lie near each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...schedules.space import KnobSpace
from ..records.candidate import Candidate, knob_candidate

Positions = np.ndarray[Any, np.dtype[np.int64]]
"""Of each knob the rank of its value among the knob's values; the knobs along the last axis."""


class Points:
    """The legal points of a knob space, numbered from 0, and which of them were tried.

    Parameters
    ----------
    space : KnobSpace
        The points to choose from.
    """

    def __init__(self, space: KnobSpace) -> None:
        self._points = space.points
        self._values = {k.name: np.array(sorted(set(k.values))) for k in space.knobs}
        self.sizes = tuple(len(values) for values in self._values.values())
        raw = np.array([[p[name] for name in self._values] for p in self._points], dtype=np.int64)
        raw = raw.reshape(len(self._points), len(self.sizes))
        # A schedule without knobs has one point of no coordinates.
        self.positions: Positions = np.empty(raw.shape, np.int64)
        for i, values in enumerate(self._values.values()):
            self.positions[:, i] = np.searchsorted(values, raw[:, i])
        codes = self._codes(self.positions)
        self._order = np.argsort(codes)
        self._sorted_codes = codes[self._order]
        self.untried = np.ones(len(self._points), dtype=bool)

    def __len__(self) -> int:
        """Count the points."""
        return len(self._points)

    @property
    def left(self) -> int:
        """How many points are untried."""
        return int(self.untried.sum())

    def find(self, positions: Positions) -> Positions:
        """Return the points' numbers at positions (..., knobs), -1 where there is no legal point."""
        inside = np.asarray(((positions >= 0) & (positions < self.sizes)).all(axis=-1))
        codes = self._codes(np.where(inside[..., None], positions, 0))
        at = np.minimum(np.searchsorted(self._sorted_codes, codes), len(self) - 1)
        return np.where(inside & (self._sorted_codes[at] == codes), self._order[at], -1)

    def index(self, knobs: Mapping[str, int] | None) -> int | None:
        """Return a point's number, or None where the space has no such point."""
        if knobs is None or set(knobs) != set(self._values):
            return None
        if any(knobs[name] not in values for name, values in self._values.items()):
            return None
        position = [np.searchsorted(values, knobs[name]) for name, values in self._values.items()]
        found = int(self.find(np.array(position)))
        return None if found < 0 else found

    def take(self, index: int) -> Candidate:
        """Make the candidate of a point, which counts as tried from now on."""
        self.untried[index] = False
        return knob_candidate(self._points[index])

    def told(self, candidate: Candidate) -> int | None:
        """Mark a candidate as tried and return its point's number; None for one outside the space."""
        index = self.index(candidate.knobs)
        if index is not None:
            self.untried[index] = False
        return index

    def nearest_untried(self, position: Positions) -> int:
        """Return the untried point the fewest steps away from a position, the first of several."""
        untried = np.flatnonzero(self.untried)
        return int(untried[np.abs(self.positions[untried] - position).sum(axis=1).argmin()])

    def random_untried(self, rng: np.random.Generator) -> int:
        """Draw an untried point."""
        return int(rng.choice(np.flatnonzero(self.untried)))

    def _codes(self, positions: Positions) -> Positions:
        """Give every position, legal or not, its number in the order of the grid."""
        if not self.sizes:
            return np.zeros(positions.shape[:-1], np.int64)
        return np.ravel_multi_index(tuple(np.moveaxis(positions, -1, 0)), self.sizes)
