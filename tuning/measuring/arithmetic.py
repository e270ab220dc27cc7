"""The arithmetic of a trial: how often a right candidate is called, and how long that takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from .cases import check_runs
from .measurement import COLD_RUN_S, ESTIMATE_S, LONGEST_S, SURE_RUN_S, Timing


@dataclass(frozen=True)
class Calls:
    """How often a candidate is called that is right and not given up.

    Parameters
    ----------
    checks : int
        On each test case once, or twice where that is quick.
    estimate : int
        To find out how long a call lasts.
    number : int
        Calls of one repetition.
    waking : int
        Calls before each repetition that do not count, after a pause.
    least, most : float
        Repetitions: where the noise is small at once, and where it never is. A first call of more than a
        second is a value already: it is not among them.
    """

    checks: int
    estimate: int
    number: int
    waking: int
    least: float
    most: float

    def __str__(self) -> str:
        """Write the sum."""
        repetitions = f"{self.least:g}" if self.least == self.most else f"{self.least:g} to {self.most:g}"
        each = f"({self.waking} + {self.number})" if self.waking else f"{self.number}"
        low, high = self.total
        total = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        return f"{self.checks} checks + {self.estimate} to estimate + {repetitions} x {each} timed = {total}"

    @property
    def total(self) -> tuple[float, float]:
        """The least and the most calls in all."""
        before, each = self.checks + self.estimate, self.waking + self.number
        return before + self.least * each, before + self.most * each


def calls_of_trial(call_s: float, timing: Timing, flush_s: float = 0.0) -> Calls:
    """Return how often a candidate is called of which one call takes ``call_s`` seconds.

    This is `measurement.measure` in numbers. With cold caches ``flush_s`` seconds go before each call that is
    timed.
    """
    whole_s = call_s + flush_s
    number = timing.calls(whole_s)
    counted = 1 if call_s >= SURE_RUN_S and number == 1 else 0
    within_budget = _ceil(timing.budget_s / (number * whole_s))
    least = min(timing.repeat, _ceil(max(LONGEST_S, timing.budget_s) / (number * whole_s)))
    if timing.repeat == 1:
        # Of one value the noise is not known.
        least = min(2, within_budget)
    most = max(least, within_budget)
    waking = 1 if timing.cooldown_ms else 0
    checks, estimate = check_runs(call_s), _estimating(call_s, timing)
    return Calls(checks, estimate, number, waking, least - counted, most - counted)


def seconds_of_trial(call_s: float, timing: Timing, flush_s: float = 0.0) -> float:
    """Return the least seconds that checking and timing such a candidate take."""
    calls = calls_of_trial(call_s, timing, flush_s)
    flushed = calls.estimate + calls.least * calls.number
    return calls.total[0] * call_s + flushed * flush_s + calls.least * timing.cooldown_ms / 1000


def _estimating(call_s: float, timing: Timing) -> int:
    """Count the calls before the first repetition."""
    if call_s >= COLD_RUN_S:
        return 1
    if timing.cold_cache:
        return 2
    calls, row = 1, 1
    while row * call_s < ESTIMATE_S:
        calls, row = calls + row, 4 * row
    return calls + row


def _ceil(value: float) -> float:
    """Round up, but neither below 1 nor what has no end."""
    # 0.3 / 0.0001 is a little more than 3000.
    return value if value == inf else max(1, ceil(value * (1 - 1e-9)))
