"""Measurement: how long one call takes.

``repeat`` values are measured; each is the mean of ``number`` calls one after another. Before them come one
call that does not count (it wakes the thread pool and fills the caches), and as many more as it takes to
know to a millisecond how long a call lasts. A trial of a tuning also runs once on each of its test cases.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any


@dataclass(frozen=True)
class Timing:
    """How a kernel is timed.

    Parameters
    ----------
    number : int
        Calls averaged in one repetition; 0 chooses it so that one lasts ``min_repeat_ms``.
    repeat : int
        Repetitions, each a value of its own.
    min_repeat_ms : float
        The least duration of one repetition in milliseconds: ``number`` is raised until it is reached.
    limit_s : float
        No further repetition begins after this many seconds, so that slow kernels stay within a timeout.
    """

    number: int = 0
    repeat: int = 3
    min_repeat_ms: float = 30.0
    limit_s: float = 2.0

    def calls(self, call_s: float) -> int:
        """Return how often to call in one repetition where one call takes about ``call_s`` seconds."""
        return max(1, self.number, ceil(self.min_repeat_ms / 1000 / max(call_s, 1e-9)))


def seconds_of(kernel: Callable[..., Any], tensors: Sequence[Any], number: int = 1) -> float:
    """Time ``number`` calls, in seconds of one."""
    start = time.perf_counter()
    for _ in range(number):
        kernel(*tensors)
    return (time.perf_counter() - start) / number


def measure(
    kernel: Callable[..., Any], tensors: Sequence[Any], timing: Timing, call_s: float | None = None
) -> list[float]:
    """Warm up and time a kernel.

    Parameters
    ----------
    kernel : callable
        Called as ``kernel(*tensors)``; its result is dropped.
    tensors : sequence
        Its arguments, outputs included, in the form it takes without conversion.
    timing : Timing
        How often.
    call_s : float or None
        About how long a warm call takes, where that is known: then nothing is run to find out.

    Returns
    -------
    list of float
        Seconds of one call, one value a repetition.
    """
    number = timing.calls(warm_seconds(kernel, tensors) if call_s is None else call_s)
    end = time.perf_counter() + timing.limit_s
    found: list[float] = []
    while len(found) < timing.repeat and (not found or time.perf_counter() < end):
        found.append(seconds_of(kernel, tensors, number))
    return found


def warm_seconds(kernel: Callable[..., Any], tensors: Sequence[Any], at_least_s: float = 1e-3) -> float:
    """Estimate seconds of one call after a first one that does not count.

    Short calls are repeated until they are long enough for the clock.
    """
    seconds_of(kernel, tensors)
    number = 1
    while True:
        one = seconds_of(kernel, tensors, number)
        if one * number >= at_least_s:
            return one
        number *= 4
