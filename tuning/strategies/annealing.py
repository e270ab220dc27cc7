"""The ``annealing`` strategy: a walk that goes downhill, and uphill the less the longer it lasts.

Each candidate is a neighbour of where the walk stands. Told its time, the walk moves there if it is faster,
and otherwise with probability exp(-slowdown / temperature), where the slowdown is the logarithm of the ratio
of the times. The temperature falls with every trial. A candidate that fails is never moved to. Neighbours
are proposed while others are unanswered: answers are taken in their order, from wherever the walk stands.

References
----------
S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, "Optimization by Simulated Annealing", Science 220, 1983.
"""

from __future__ import annotations

from math import exp, log

import numpy as np

from ...schedules.space import KnobSpace
from ..records.candidate import Candidate, throughput
from ..records.record import Record
from .points import Points, Positions

_BATCH = 4
# At first three of ten candidates twice as slow are moved to; after 64 trials one of ten 5 % slower.
_FIRST_TEMPERATURE = 0.6
_COOLING = 0.95
# A knob steps to the value beside it, or in this share of the cases to any value.
_LEAP = 0.3
# Neighbours to draw before the nearest untried point is taken.
_TRIES = 20


class Annealing:
    """Propose neighbours of where the walk stands.

    Parameters
    ----------
    space : KnobSpace
        The points to choose from; the walk starts at its default.
    seed : int
        Equal seeds and equal measurements propose equal points.
    """

    batch = _BATCH

    def __init__(self, space: KnobSpace, seed: int) -> None:
        self._points = Points(space)
        self._rng = np.random.default_rng(seed)
        self._temperature = _FIRST_TEMPERATURE
        self._here = self._points.index(space.default)
        self._throughput = 0.0

    def ask(self, count: int) -> list[Candidate]:
        """Propose neighbours that were not tried, the nearest untried points where there are none."""
        return [self._points.take(self._next()) for _ in range(min(count, self._points.left))]

    def tell(self, candidate: Candidate, record: Record) -> None:
        """Move to a candidate, or stay."""
        index = self._points.told(candidate)
        if index is None:
            return
        self._temperature *= _COOLING
        found = throughput(record)
        if found and self._moves(found):
            self._here, self._throughput = index, found

    def _moves(self, found: float) -> bool:
        if found >= self._throughput:
            return True
        slowdown = log(self._throughput / found)
        return self._rng.random() < exp(-slowdown / max(self._temperature, 1e-9))

    def _next(self) -> int:
        if self._here is None:
            return self._points.random_untried(self._rng)
        here = self._points.positions[self._here]
        if self._points.untried[self._here]:
            return self._here
        for _ in range(_TRIES):
            index = int(self._points.find(self._neighbour(here)))
            if index >= 0 and self._points.untried[index]:
                return index
        return self._points.nearest_untried(here)

    def _neighbour(self, here: Positions) -> Positions:
        """Change one knob, in every fourth case two: constraints tie knobs to each other."""
        there = here.copy()
        open_knobs = np.flatnonzero(np.array(self._points.sizes) > 1)
        count = min(len(open_knobs), 1 if self._rng.random() < 0.75 else 2)
        for knob in self._rng.choice(open_knobs, count, replace=False):
            if self._rng.random() < _LEAP:
                there[knob] = self._rng.integers(self._points.sizes[knob])
            else:
                there[knob] += self._rng.choice((-1, 1))
        return there
