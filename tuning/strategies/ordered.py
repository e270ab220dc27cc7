"""Strategies whose order is fixed beforehand: grid and random."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import numpy as np

from ...schedules.space import KnobSpace
from ..records.candidate import Candidate, knob_candidate, knob_key
from ..records.record import Record

_BATCH = 8


class Ordered:
    """Walk through points in a given order, leaving out those already known.

    Parameters
    ----------
    points : iterable of mapping
        The points, in the order in which to try them.
    """

    batch = _BATCH

    def __init__(self, points: Iterable[Mapping[str, int]]) -> None:
        self._seen: set[str] = set()
        self._left = self._unseen(points)

    def ask(self, count: int) -> list[Candidate]:
        """Propose the next points."""
        return list(islice(self._left, count))

    def tell(self, candidate: Candidate, record: Record) -> None:
        """Remember that a candidate is known."""
        del record
        self._seen.add(candidate.key)

    def _unseen(self, points: Iterable[Mapping[str, int]]) -> Iterator[Candidate]:
        for point in points:
            if knob_key(point) not in self._seen:
                yield knob_candidate(point)


def grid(space: KnobSpace, seed: int) -> Ordered:
    """Try every point in the order of the knobs' values."""
    del seed
    return Ordered(space.points)


def random(space: KnobSpace, seed: int) -> Ordered:
    """Try the points in a random order, none twice."""
    order = np.random.default_rng(seed).permutation(len(space))
    return Ordered(space.points[i] for i in order)
