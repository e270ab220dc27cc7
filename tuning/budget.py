"""The budget: which of several workloads gets the next trials.

Every workload gets a first share. From then on the next turn goes to the workload from which most time is
expected to be saved: calls in the model, times seconds of its best schedule, times the part of it that one
more trial is expected to save. That part is the larger of what its latest trials saved and of what is left
to its roofline, spread over the trials so far (and as many again): a workload that has gained nothing for
long, or is near its limit, waits. So that none is starved by a wrong expectation, every fourth turn goes to
the one with the fewest trials.

References
----------
L. Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning", OSDI 2020, section 6
(gradient descent over tasks by weight, recent gain and similarity).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TURN = 8
"""Trials of one turn."""

_LATEST = 16
_FAIR_EVERY = 4


@dataclass(frozen=True)
class Standing:
    """How far the tuning of a workload has come.

    Parameters
    ----------
    weight : float
        How often it is called.
    trials : int
        How many there were.
    best_after : sequence of float
        Seconds of the best after each trial of this session; infinite before one was right.
    roofline_s : float
        The least seconds that the machine allows.
    """

    weight: float
    trials: int
    best_after: Sequence[float]
    roofline_s: float

    @property
    def expected_gain(self) -> float:
        """Return the seconds, over all calls, that one more trial is expected to save."""
        if not self.best_after or self.best_after[-1] == float("inf"):
            return float("inf")
        best = self.best_after[-1]
        latest = [seconds for seconds in self.best_after[-_LATEST:] if seconds != float("inf")]
        saved = (latest[0] - best) / len(latest)
        possible = max(0.0, best - self.roofline_s) / (self.trials + _LATEST)
        return self.weight * max(saved, possible)


def next_turn(standings: Sequence[Standing], turn: int) -> int:
    """Choose the workload of a turn, by its position; turns are counted from 0."""
    positions = range(len(standings))
    waiting = [i for i in positions if not standings[i].best_after]
    if waiting:
        return waiting[0]
    if turn % _FAIR_EVERY == _FAIR_EVERY - 1:
        return min(positions, key=lambda i: standings[i].trials)
    return max(positions, key=lambda i: standings[i].expected_gain)
