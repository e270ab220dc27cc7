"""Measurement: how long one call takes, found with as few calls as it needs.

The first call decides: a kernel far slower than the best so far keeps that time as its only value. Others
are measured in repetitions, each the mean of several calls, until the noise of their median is small or the
budget is spent; those that cannot become the best get no more of it than they need to show that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from sys import float_info
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ...machine.errors import InputError

Kernel = Callable[..., Any]
Flush = Callable[[], Any]


@runtime_checkable
class HasClock(Protocol):
    """A kernel that times itself, and empties caches itself where that is wanted."""

    def seconds_of(self, tensors: Sequence[Any], number: int) -> float:
        """Return seconds of one of so many calls."""


# Calls are too short for the clock until so many together last this long.
ESTIMATE_S = 1e-3
# A first call shorter than this is made again before it decides: what it pays for once may be most of it.
COLD_RUN_S = 0.05
# What is paid for once is not felt in a call of this length: the first one is a value like the others.
SURE_RUN_S = 1.0
# No further repetition begins after so long, whatever `repeat` says, unless the budget is larger.
LONGEST_S = 2.0
# A kernel whose repetitions are all slower than the best so far by more than the first is not measured more
# often than `repeat` says: if its median were better, one of them would be. By more than the second, one is
# enough: a busy neighbour seldom costs a third of the time.
_CONTENDS = 1.1
_MAY_CONTEND = 1.3
# Standard error of the median over half the distance between the 20 and 80 % quantiles, of the normal
# distribution: sqrt(pi / 2) / 0.8416.
_ERROR_OF_MEDIAN = 1.489


@dataclass(frozen=True)
class Timing:
    """How a kernel is timed.

    Parameters
    ----------
    number : int
        Calls averaged in one repetition; 0 leaves it to ``min_repeat_ms``.
    repeat : int
        Repetitions at least, each a value of its own. After 2 s and ``budget_s``, no further one begins.
    min_repeat_ms : float
        The least duration of one repetition in milliseconds: ``number`` is raised until it is reached.
    budget_s : float
        Beyond ``repeat``, repetitions go on until so many seconds are spent on them, or the noise is small.
    noise : float
        The noise that is small enough: standard error of the median over the median; see `noise_of`.
    cold_cache : bool
        Empty all caches before each call, untimed, and time each call on its own; ``min_repeat_ms`` and
        ``budget_s`` include the emptying. False: the caches hold what the call before left there.
    cooldown_ms : float
        A pause before each repetition, in milliseconds; a call that does not count follows it.

    Raises
    ------
    InputError
        A value makes no sense.
    """

    number: int = 0
    repeat: int = 3
    min_repeat_ms: float = 10.0
    budget_s: float = 0.3
    noise: float = 0.02
    cold_cache: bool = False
    cooldown_ms: float = 0.0

    def __post_init__(self) -> None:
        """Check the values."""
        _check("number", self.number, "an integer of at least 0", int)
        _check("repeat", self.repeat, "an integer of at least 1", int, least=1)
        for name in ("min_repeat_ms", "cooldown_ms"):
            _check(name, getattr(self, name), "at least 0 milliseconds, and finite", most=float_info.max)
        _check("budget_s", self.budget_s, "at least 0 seconds")
        _check("noise", self.noise, "a fraction of at least 0 (0.02 is 2 %)")
        if not isinstance(self.cold_cache, bool):
            raise InputError(f"cold_cache must be True or False: cold_cache={self.cold_cache!r}")

    @property
    def cache(self) -> str:
        """``cold`` or ``warm``, as records say it."""
        return "cold" if self.cold_cache else "warm"

    def calls(self, call_s: float) -> int:
        """Return how often to call in one repetition where one call takes about ``call_s`` seconds."""
        wanted = self.min_repeat_ms / 1000 / max(call_s, 1e-9)
        # 0.03 / 0.0002 is a little more than 150.
        return max(1, self.number, ceil(wanted * (1 - 1e-9)))


def _check(
    name: str, value: Any, rule: str, types: Any = (int, float), least: int = 0, most: float = inf
) -> None:
    """Refuse a value of a wrong type or size; NaN has none."""
    if not isinstance(value, types) or isinstance(value, bool) or not least <= value <= most:
        raise InputError(f"{name} must be {rule}: {name}={value!r}")


class Measured(NamedTuple):
    """What was measured.

    Parameters
    ----------
    run_secs : tuple of float
        Seconds of one call, one value a repetition.
    calls : int
        Calls averaged in one repetition.
    note : str
        That it was given up after one estimate; empty where it was not.
    """

    run_secs: tuple[float, ...]
    calls: int
    note: str = ""


class Quantiles(NamedTuple):
    """The middle of times and how far they spread."""

    median: float
    p20: float
    p80: float


def quantiles(seconds: Sequence[float]) -> Quantiles:
    """Return the median and the 20 and 80 % quantiles of times, interpolated linearly between values."""
    p20, middle, p80 = np.quantile(seconds, (0.2, 0.5, 0.8)).tolist()
    return Quantiles(middle, p20, p80)


def noise_of(seconds: Sequence[float]) -> float:
    """Estimate by which part of itself the median of these times would differ if they were taken again.

    ``1.489 * (p80 - p20) / 2 / sqrt(n) / median``: the standard error of the median of n values of a normal
    distribution. Outliers do not enlarge it, as they do not move the median. Of one value nothing is known:
    infinite.
    """
    if len(seconds) < 2:
        return inf
    middle, p20, p80 = quantiles(seconds)
    return _ERROR_OF_MEDIAN * (p80 - p20) / 2 / sqrt(len(seconds)) / max(middle, 1e-12)


def seconds_of(kernel: Kernel, tensors: Sequence[Any], number: int = 1, flush: Flush | None = None) -> float:
    """Time ``number`` calls, in seconds of one; each after a flush that is not timed, where there is one.

    A kernel on another machine has a clock there, its own ``seconds_of``: the network's time is not its own.
    """
    if isinstance(kernel, HasClock):
        return kernel.seconds_of(tensors, number)
    if flush is not None:
        return sum(_cold_seconds(kernel, tensors, flush) for _ in range(number)) / number
    start = time.perf_counter()
    for _ in range(number):
        kernel(*tensors)
    return (time.perf_counter() - start) / number


def _cold_seconds(kernel: Kernel, tensors: Sequence[Any], flush: Flush) -> float:
    flush()
    return seconds_of(kernel, tensors)


def warm_seconds(kernel: Kernel, tensors: Sequence[Any], at_least_s: float = ESTIMATE_S) -> float:
    """Estimate seconds of one call after a first one that does not count."""
    seconds_of(kernel, tensors)
    return _estimate(kernel, tensors, at_least_s)[0]


def _estimate(kernel: Kernel, tensors: Sequence[Any], at_least_s: float = ESTIMATE_S) -> tuple[float, int]:
    """Time 1, 4, 16, ... calls until they last long enough; return seconds of one, and how many they were."""
    number = 1
    while True:
        one = seconds_of(kernel, tensors, number)
        if one * number >= at_least_s:
            return one, number
        number *= 4


def measure(
    kernel: Kernel, tensors: Sequence[Any], timing: Timing, give_up_s: float = inf, best_s: float = inf
) -> Measured:
    """Time a kernel.

    Parameters
    ----------
    kernel : callable
        Called as ``kernel(*tensors)``; its result is dropped.
    tensors : sequence
        Its arguments, outputs included, in the form it takes without conversion.
    timing : Timing
        How often.
    give_up_s : float
        A kernel that takes longer for one call is not timed again.
    best_s : float
        Seconds of the best so far: who comes nowhere near it is not measured more often than to see that.

    Returns
    -------
    Measured
        The times.
    """
    flush = _flush_for(kernel, timing)
    estimate, calls, whole_s = _first_run(kernel, tensors, flush)
    if estimate > give_up_s:
        return Measured((estimate,), calls, "timed once: far slower than the best so far")
    number = timing.calls(whole_s)
    found = [estimate] if estimate >= SURE_RUN_S and number == 1 else []
    spent_s = sum(found)
    while not _is_enough(found, spent_s, timing, best_s):
        _cool_down(kernel, tensors, timing)
        start = time.perf_counter()
        found.append(seconds_of(kernel, tensors, number, flush))
        spent_s += time.perf_counter() - start
    return Measured(tuple(found), number)


def measure_in_turns(
    calls: Sequence[tuple[Kernel, Sequence[Any]]], timing: Timing, rounds: int
) -> list[list[float]]:
    """Time kernels in turns, one repetition of each a round: a disturbance meets all of them.

    Parameters
    ----------
    calls : sequence of (callable, sequence)
        Kernels and their arguments.
    timing : Timing
        How long a repetition is, and what comes before it.
    rounds : int
        How many repetitions.

    Returns
    -------
    list of list of float
        For each kernel seconds of one call, one value a round.
    """
    flushes = [_flush_for(kernel, timing) for kernel, _ in calls]
    numbers = [timing.calls(_first_run(*call, flush)[2]) for call, flush in zip(calls, flushes, strict=True)]
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for found, call, number, flush in zip(seconds, calls, numbers, flushes, strict=True):
            _cool_down(*call, timing)
            found.append(seconds_of(*call, number, flush))
    return seconds


def _cool_down(kernel: Kernel, tensors: Sequence[Any], timing: Timing) -> None:
    if timing.cooldown_ms:
        time.sleep(timing.cooldown_ms / 1000)
        # Threads went to sleep meanwhile.
        kernel(*tensors)


def _flush_for(kernel: Kernel, timing: Timing) -> Flush | None:
    """Return what empties this machine's caches; None where they stay warm, or the kernel does it itself."""
    if not timing.cold_cache or isinstance(kernel, HasClock):
        return None
    # It compiles a kernel and takes memory.
    from ...machine.flush import cache_flush

    return cache_flush()


def _first_run(kernel: Kernel, tensors: Sequence[Any], flush: Flush | None) -> tuple[float, int, float]:
    """Return about how long a call lasts, of how many that is the mean, and how long with its flush."""
    calls, start = 1, time.perf_counter()
    one = seconds_of(kernel, tensors, 1, flush)
    if one < COLD_RUN_S:
        start = time.perf_counter()
        one, calls = (
            _estimate(kernel, tensors) if flush is None else (seconds_of(kernel, tensors, 1, flush), 1)
        )
    return one, calls, one if flush is None else time.perf_counter() - start


def _is_enough(found: Sequence[float], spent_s: float, timing: Timing, best_s: float) -> bool:
    """Tell whether another repetition would not help."""
    if not found:
        return False
    if len(found) < timing.repeat:
        return spent_s >= max(LONGEST_S, timing.budget_s) or min(found) > _MAY_CONTEND * best_s
    return spent_s >= timing.budget_s or min(found) > _CONTENDS * best_s or noise_of(found) <= timing.noise
