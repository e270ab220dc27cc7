"""The budget: which of several workloads, and which of the spaces of one, gets the next trials.

First every workload's default schedule is measured, then that of each other space it has, then each gets a
first share. From then on the next turn goes to where most time is expected to be saved: calls in the model,
times seconds of the best schedule, times the part of it that one more trial is expected to save. That part
is the larger of what the latest trials saved and of what is left to the roofline, spread over the trials so
far (and as many again): a workload that has gained nothing for long, or is near its limit, waits. A space
whose best is slower than another's counts for less, the more so the slower it is. So that no workload is
starved by a wrong expectation, every fourth turn goes to the one with the fewest trials.

References
----------
L. Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning", OSDI 2020, section 6
(gradient descent over tasks by weight, recent gain and similarity).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf, isfinite

TURN = 8
"""Trials of one turn."""

_LATEST = 16
_FAIR_EVERY = 4
# Of half the speed of another space, one is expected to gain a sixteenth of what the roofline leaves.
_BEHIND_POWER = 4
# A space gets a first share, and fair turns, where its best has at least this part of the speed of another.
_RIVAL = 0.6
# Of the least share of the time: who takes less than so many of it waits for turns instead of a first share.
_FIRST_SHARE = 4
# Another algorithm may need fewer operations than the roofline counts: some part of the time is always left.
_LEAST_LEFT = 0.05


@dataclass(frozen=True)
class Standing:
    """How far the tuning of a workload in one space has come.

    Parameters
    ----------
    weight : float
        How often the workload is called.
    trials : int
        How many there were.
    best_after : sequence of float
        Seconds of the best of this space after each trial; infinite before one was right.
    roofline_s : float
        The least seconds that the machine allows.
    best_s : float
        Seconds of the workload's best, be it of another space.
    alternative : bool
        Whether the workload's default schedule belongs to another space.
    ended : bool
        Whether no further trial makes sense.
    """

    weight: float
    trials: int
    best_after: Sequence[float]
    roofline_s: float
    best_s: float = inf
    alternative: bool = False
    ended: bool = False

    @property
    def own_s(self) -> float:
        """Seconds of the best of this space; infinite before there is one."""
        return self.best_after[-1] if self.best_after else inf

    @property
    def total_s(self) -> float:
        """Seconds of the workload's best over all calls."""
        return self.weight * min(self.own_s, self.best_s)

    @property
    def relative_speed(self) -> float:
        """The speed of the space's best as a part of that of the workload's best, 0 to 1."""
        return min(1.0, self.best_s / self.own_s) if isfinite(self.own_s) else float(self.best_s == inf)

    @property
    def rivals(self) -> bool:
        """Whether the space has the workload's best, or comes close to it."""
        return self.relative_speed >= _RIVAL

    @property
    def expected_gain(self) -> float:
        """Return the seconds, over all calls, that one more trial is expected to save."""
        best = min(self.own_s, self.best_s)
        if best == inf:
            return inf
        latest = [seconds for seconds in self.best_after[-_LATEST:] if seconds != inf]
        saved = (latest[0] - latest[-1]) / len(latest) if latest else 0.0
        possible = max(_LEAST_LEFT * best, best - self.roofline_s) / (self.trials + _LATEST)
        return self.weight * max(saved, possible) * self.relative_speed**_BEHIND_POWER


def negligible(standings: Sequence[Standing], least_share: float) -> list[int]:
    """Return the positions of those whose workload takes less than a share of the time of all."""
    times = [s.total_s for s in standings if not s.alternative and isfinite(s.total_s)]
    return [i for i, s in enumerate(standings) if s.total_s < least_share * sum(times)]


def worth_trials(standings: Sequence[Standing], least_share: float) -> list[int]:
    """Return the positions of those that may get trials.

    These are the workloads' defaults until all of them are known, then the defaults of their other spaces,
    then all whose workload takes at least a share of the time of all.
    """
    going = [i for i, standing in enumerate(standings) if not standing.ended]
    untried = [i for i in going if not standings[i].best_after]
    defaults = [i for i in untried if not standings[i].alternative]
    few = set(negligible(standings, least_share))
    return defaults or [i for i in untried if i not in few] or [i for i in going if i not in few]


def first_shares(
    standings: Sequence[Standing], worth: Sequence[int], served: Collection[int], least_share: float = 0.0
) -> list[int]:
    """Return those of some positions whose default is due, else those that had no first share yet.

    Where small parts of the time are to cost little, those that take little more have none.
    """
    defaults = [i for i in worth if not standings[i].best_after]
    passed = {*served, *negligible(standings, _FIRST_SHARE * least_share)}
    return defaults or [
        i for i in worth if i not in passed and standings[i].trials < TURN and standings[i].rivals
    ]


def next_turn(standings: Sequence[Standing], turn: int) -> int:
    """Choose whose turn it is, by its position; turns are counted from 0."""
    positions = range(len(standings))
    if turn % _FAIR_EVERY == _FAIR_EVERY - 1:
        fair = [i for i in positions if standings[i].rivals] or positions
        return min(fair, key=lambda i: standings[i].trials)
    return max(positions, key=lambda i: standings[i].expected_gain)
