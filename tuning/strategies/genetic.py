"""The ``genetic`` strategy: the best trials so far are the parents of the next candidates.

The first candidates are random. From then on every candidate is a child of two parents, each the better of
two drawn from the best trials so far: each knob comes from either, and now and then a knob takes a random
value. There are no generations, so a child may be asked for while its brothers are still being measured.

References
----------
J. H. Holland, "Adaptation in Natural and Artificial Systems", 1975; D. Whitley, "The GENITOR algorithm and
selection pressure", ICGA 1989 (a population that is renewed child by child).
"""

from __future__ import annotations

import numpy as np

from ...schedules.space import KnobSpace
from ..records.candidate import Candidate, throughput
from ..records.record import Record
from .points import Points, Positions

_BATCH = 8
_POPULATION = 16
_MUTATION = 0.15
# Children to try before the untried point nearest to the last one is taken.
_TRIES = 20


class Genetic:
    """Propose children of the best trials so far.

    Parameters
    ----------
    space : KnobSpace
        The points to choose from.
    seed : int
        Equal seeds and equal measurements propose equal points.
    """

    batch = _BATCH

    def __init__(self, space: KnobSpace, seed: int) -> None:
        self._points = Points(space)
        self._rng = np.random.default_rng(seed)
        # (throughput, point), best first; trials that failed have no children.
        self._population: list[tuple[float, int]] = []

    def ask(self, count: int) -> list[Candidate]:
        """Propose random points at first, then children."""
        return [self._propose() for _ in range(min(count, self._points.left))]

    def tell(self, candidate: Candidate, record: Record) -> None:
        """Let a trial take its place among the parents."""
        index = self._points.told(candidate)
        if index is not None and record.usable:
            ranked = sorted([*self._population, (throughput(record), index)], reverse=True)
            self._population = ranked[:_POPULATION]

    def _propose(self) -> Candidate:
        tried = len(self._points) - self._points.left
        if tried < _POPULATION or len(self._population) < 2:
            return self._points.take(self._points.random_untried(self._rng))
        for _ in range(_TRIES):
            child = self._child()
            index = int(self._points.find(child))
            if index >= 0 and self._points.untried[index]:
                return self._points.take(index)
        return self._points.take(self._points.nearest_untried(child))

    def _child(self) -> Positions:
        """Mix two parents, and change a knob now and then."""
        mother, father = (self._points.positions[self._parent()] for _ in range(2))
        child = np.where(self._rng.random(len(mother)) < 0.5, mother, father)
        mutated = self._rng.random(len(child)) < _MUTATION
        return np.where(mutated, self._rng.integers(0, self._points.sizes), child)

    def _parent(self) -> int:
        """Draw two of the population, and take the better one."""
        return self._population[int(self._rng.integers(0, len(self._population), 2).min())][1]
