"""Pace: how long the trials to come will last, judged by the latest ones."""

from __future__ import annotations

from collections import deque

# A search speeds up once hopeless candidates are dropped early, and slows down where timeouts cluster:
# the latest trials tell more than all of them.
_LATEST = 16


class Pace:
    """The rate of the latest trials, and the time that may be used at all.

    Parameters
    ----------
    start_s : float
        When the first trial began, on any clock that only goes forward.
    deadline_s : float
        When the time budget is spent, on the same clock.
    """

    def __init__(self, start_s: float, deadline_s: float = float("inf")) -> None:
        self._deadline_s = deadline_s
        self._ends = deque([start_s], maxlen=_LATEST + 1)

    def trial_ended(self, now_s: float) -> None:
        """Note when a trial ended."""
        self._ends.append(now_s)

    def eta_s(self, left: int) -> float:
        """Return seconds until the end: of ``left`` trials at the latest rate, or of the time budget."""
        first, last = self._ends[0], self._ends[-1]
        each = (last - first) / max(1, len(self._ends) - 1)
        return max(0.0, min(left * each, self._deadline_s - last))
