"""Where the time of an inference goes, function by function."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from ..lowering.choice import Choice, name_in_model

RUNTIME = "(runtime)"
"""The row of what is no function of the model: memory, shapes, views, checks of the arguments."""

# A function never takes less: what is taken off is uncertain by a few times that.
_LEAST_S = 1e-7

# Suffix that TVM gives a function whose weight is packed once.
_PREPACKED = "_prepacked"

ProfileRow = dict[str, Any]
"""``function, calls, seconds (of one inference), share, gflops, roofline_fraction, origin, record,
schedule``."""


def profile(
    call: Callable[..., Any], vm: Any, tensors: Sequence[Any], choices: Sequence[Choice], repeat: int
) -> list[ProfileRow]:
    """Run a model ``repeat`` times, watched and unwatched in turn, and say where its time goes.

    TVM tells of a call by calling Python before and after it, which takes longer than many a call. So

    - a function's time is the median of its calls, less what Python takes: that is measured from the end of
      one call to the start of the next, where the same arguments are converted and nothing else happens;
    - the time of `RUNTIME` is what is left of an unwatched inference after the functions, at least 0, and at
      most what TVM's own calls took while they were watched: on a busy machine both medians are uncertain.

    Shares are those of the sum, which is one unwatched inference, as far as the machine lets that be known.

    Parameters
    ----------
    call : callable
        The loaded model's ``main``, unwatched.
    vm : VirtualMachine
        The model loaded once more; it stays watched, and so is for this alone.
    tensors : sequence
        The inputs of ``main``.
    choices : sequence of Choice
        What is known of the functions.
    repeat : int
        Inferences of either kind, after one of each that warms up.
    """
    known = {choice.function: choice for choice in choices}
    unwatched, watched = [], []
    for _ in range(repeat + 1):
        unwatched.append(_seconds(call, tensors))
        watched.append(_watched(vm, tensors, known))
    runs = watched[1:]
    times = {name: max(_LEAST_S, median(run.seconds[name] for run in runs)) for name in runs[0].seconds}
    if RUNTIME in times:
        left = median(unwatched[1:]) - sum(seconds for name, seconds in times.items() if name != RUNTIME)
        times[RUNTIME] = min(max(0.0, left), times[RUNTIME])
    total = sum(times.values())
    rows = [_row(name, runs[0].calls[name], times[name], total, known.get(name)) for name in times]
    return sorted(rows, key=lambda row: -float(row["seconds"]))


def _seconds(call: Callable[..., Any], tensors: Sequence[Any]) -> float:
    started = time.perf_counter()
    call(*tensors)
    return time.perf_counter() - started


def _watched(vm: Any, tensors: Sequence[Any], known: Mapping[str, Choice]) -> _Stopwatch:
    """Run once and return what was seen."""
    watch = _Stopwatch(known)
    vm["set_instrument"](watch)
    vm["main"](*tensors)
    return watch


class _Stopwatch:
    """What TVM calls before and after each call; the time of functions without it, that of others with it."""

    def __init__(self, known: Mapping[str, Choice]) -> None:
        self.calls: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._known = known
        self._callback = 0.0
        self._started = self._ended = time.perf_counter()

    def __call__(self, _func: Any, symbol: str, before: bool, _result: Any, *_args: Any) -> None:
        now = time.perf_counter()
        if before:
            self._callback = now - self._ended
            self._started = time.perf_counter()
            return
        name = name_in_model(symbol.removesuffix(_PREPACKED))
        function = name in self._known
        name = name if function else RUNTIME
        self.calls[name] += 1
        self.seconds[name] += now - self._started - self._callback * function
        self._ended = time.perf_counter()


def _row(name: str, calls: int, seconds: float, total: float, choice: Choice | None) -> ProfileRow:
    row: ProfileRow = {"function": name, "calls": calls, "seconds": seconds, "share": seconds / total}
    row |= {"gflops": None, "roofline_fraction": None, "origin": None, "record": None, "schedule": None}
    if choice is not None:
        row |= {"origin": choice.origin, "record": choice.record or None, "schedule": choice.schedule}
    if choice is not None and choice.flops:
        # It loads the compiler where this machine was never measured.
        from ...machine.peaks import roofline_seconds

        least = roofline_seconds(choice.flops, choice.bytes_moved, choice.dtype)
        row |= {"gflops": choice.flops * calls / seconds / 1e9, "roofline_fraction": least * calls / seconds}
    return row
