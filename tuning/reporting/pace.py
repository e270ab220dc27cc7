"""Pace: how many trials of a call there were, and how long those to come will last, judged by the latest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import pairwise

from ..records.record import Record

# A search speeds up once hopeless candidates are dropped early, and slows down where timeouts cluster:
# the latest trials tell more than all of them.
_LATEST = 16


class Pace:
    """The trials of a call, whichever of its workloads they belong to.

    Parameters
    ----------
    start_s : float
        When the call began, on any clock that only goes forward.
    deadline_s : float
        When its time budget is spent, on the same clock.
    wanted : int
        Trials wanted in all.
    done : callable
        Returns how many there are.
    """

    def __init__(self, start_s: float, deadline_s: float, wanted: int, done: Callable[[], int]) -> None:
        self._start_s, self._deadline_s = start_s, deadline_s
        self.wanted, self.done = wanted, done
        self._ends: deque[float] = deque(maxlen=_LATEST)

    def trial_ended(self, now_s: float) -> None:
        """Note when a trial ended."""
        self._ends.append(now_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start to the end of the latest trial."""
        return self._last_s - self._start_s

    @property
    def eta_s(self) -> float:
        """Seconds until the end: of the trials that are left at the latest rate, or of the time budget."""
        # The first trial waits for workers to start: with two, the time between them tells more.
        first_s = self._ends[0] if len(self._ends) > 1 else self._start_s
        each = (self._last_s - first_s) / max(1, len(self._ends) - 1)
        left = self.wanted - self.done()
        return max(0.0, min(left * each, self._deadline_s - self._last_s))

    @property
    def _last_s(self) -> float:
        return self._ends[-1] if self._ends else self._start_s


def recorded_seconds(records: Iterable[Record], longest_s: float) -> dict[str, float]:
    """Return how long trials lasted, by record id: from the end of the one before to their own.

    The first of a session has no such time; neither has one that lasted longer than ``longest_s``, which
    is a break between sessions.
    """
    ends = sorted((datetime.fromisoformat(record.created), record.id) for record in records)
    lasted = {record_id: (end - before).total_seconds() for (before, _), (end, record_id) in pairwise(ends)}
    return {record_id: seconds for record_id, seconds in lasted.items() if seconds <= longest_s}
