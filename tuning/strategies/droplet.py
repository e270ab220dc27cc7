"""The ``droplet`` strategy: coordinate descent that moves only to what is faster beyond the noise.

It starts from the default, or from the best trial known. The neighbours of where it stands are proposed,
first those one step away, then those two steps away and so on; it moves to a neighbour as soon as Welch's
t-test on the repetitions finds it faster. Where no neighbour is, a local optimum is found: the next descent
starts at random.

References
----------
M. Canesche, V. Rosário, E. Borin, F. Pereira, "The Droplet Search Algorithm for Kernel Scheduling", ACM TACO
21(2), 2024.
"""

from __future__ import annotations

from itertools import combinations
from math import sqrt

import numpy as np

from ...schedules.space import KnobSpace
from ..records.candidate import Candidate
from ..records.record import Record
from .points import Points

_BATCH = 8
# The chance of taking noise for a gain.
_P_VALUE = 0.05


class Droplet:
    """Propose the neighbours of the best point, nearest first.

    Parameters
    ----------
    space : KnobSpace
        The points to choose from; the first descent starts at its default.
    seed : int
        What decides where later descents start.
    """

    batch = _BATCH

    def __init__(self, space: KnobSpace, seed: int) -> None:
        self._points = Points(space)
        self._rng = np.random.default_rng(seed)
        self._units = np.eye(len(self._points.sizes), dtype=np.int64)[np.array(self._points.sizes) > 1]
        self._proposed: set[int] = set()
        self._start_from(self._points.index(space.default))

    def ask(self, count: int) -> list[Candidate]:
        """Propose neighbours; none while the last ones of a descent are unanswered."""
        asked: list[Candidate] = []
        while len(asked) < count and self._points.left:
            index = self._next()
            if index is None:
                if self._proposed:
                    break
                self._start_from(self._points.random_untried(self._rng))
            else:
                self._proposed.add(index)
                asked.append(self._points.take(index))
        return asked

    def tell(self, candidate: Candidate, record: Record) -> None:
        """Move to a candidate that is faster beyond the noise."""
        index = self._points.told(candidate)
        if index is None:
            return
        self._proposed.discard(index)
        seconds = record.run_secs if record.usable else ()
        if index == self._here:
            self._seconds = seconds
        elif seconds and faster(seconds, self._seconds):
            self._start_from(index, seconds)

    def _start_from(self, index: int | None, seconds: tuple[float, ...] = ()) -> None:
        self._here, self._seconds = index, seconds
        self._width = 0
        self._queue: list[int] = []

    def _next(self) -> int | None:
        """Return the nearest untried neighbour along the coordinates, or None where there is none left."""
        if self._here is None:
            return None
        while True:
            while self._queue:
                index = self._queue.pop(0)
                if self._points.untried[index]:
                    return index
            if self._width >= max(self._points.sizes):
                return None
            self._queue = [self._here] if self._width == 0 else self._neighbours(self._here, self._width)
            self._width += 1

    def _neighbours(self, here: int, width: int) -> list[int]:
        """Return the points where some knobs are ``width`` steps further, those of one knob first.

        Constraints tie knobs to each other: alone, neither of two may be able to move.
        """
        one = [sign * unit for unit in self._units for sign in (1, -1)]
        two = [a + b for a, b in combinations(one, 2) if (a + b).any()]
        found = self._points.find(self._points.positions[here] + width * np.array([*one, *two]))
        return [int(index) for index in found if index >= 0]


def faster(seconds: tuple[float, ...], than: tuple[float, ...], p_value: float = _P_VALUE) -> bool:
    """Tell whether a mean time is smaller beyond the noise, by Welch's t-test (one-sided).

    With a single repetition on either side there is no noise to know: the smaller mean decides. Anything is
    faster than what has no time.
    """
    if not than:
        return bool(seconds)
    gain = float(np.mean(than) - np.mean(seconds))
    if gain <= 0 or min(len(seconds), len(than)) < 2:
        return gain > 0
    from scipy.special import stdtr

    errors = [float(np.var(s, ddof=1)) / len(s) for s in (seconds, than)]
    if sum(errors) == 0:
        return True
    spread = sum(e**2 / (len(s) - 1) for e, s in zip(errors, (seconds, than), strict=True))
    freedom = sum(errors) ** 2 / spread
    return float(stdtr(freedom, -gain / sqrt(sum(errors)))) <= p_value
