"""Turns: who is measured against others runs alone, a little at a time, while the others are held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..measuring.measurement import Timing
from ..processes.worker import Worker
from ..running.runner import device_lock
from .turn_tasks import TurnJob, time_turn

TIMEOUT_S = 300.0
"""The longest that a task of such a worker may take."""


@dataclass(frozen=True)
class Entrant:
    """A worker that has something ready to be timed.

    Parameters
    ----------
    worker : Worker
        Who does it.
    call_s : float
        About how long one call takes.
    timing : Timing
        How a turn is timed.
    longest_s : float
        One so slow that its rounds would take longer takes part in fewer of them.
    """

    worker: Worker
    call_s: float
    timing: Timing
    longest_s: float = 2.0

    @property
    def number(self) -> int:
        """How often to call in one turn; once where emptying the caches takes longer than the call."""
        return 1 if self.timing.cold_cache else self.timing.calls(self.call_s)

    @property
    def rounds(self) -> int:
        """In how many rounds to take part."""
        # Each turn makes one more call, which does not count.
        turn_s = (self.number + 1) * self.call_s
        return max(1, min(self.timing.repeat, int(self.longest_s / turn_s)))


def timed_in_turns(entrants: Sequence[Entrant], rounds: int) -> list[list[float]]:
    """Measure everyone once a round; the slow ones sit out the last rounds."""
    seconds: list[list[float]] = [[] for _ in entrants]
    with device_lock():
        for turn in range(rounds):
            for entrant, found in zip(entrants, seconds, strict=True):
                if turn < entrant.rounds:
                    job = TurnJob(entrant.number, entrant.timing.cold_cache)
                    with entrant.worker.alone():
                        found.append(entrant.worker.call(time_turn, job, TIMEOUT_S))
    return seconds
