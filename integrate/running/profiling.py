"""Where the time of an inference goes, function by function."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from ..lowering.choice import Choice, name_in_model

RUNTIME = "(runtime)"
"""The row of everything that is no function of the model: memory, shapes, views."""

# Suffix that TVM gives a function whose weight is packed once.
_PREPACKED = "_prepacked"

ProfileRow = dict[str, Any]
"""``function, calls, seconds (of one inference), share, gflops, roofline_fraction, origin, record,
schedule``."""


def profile(vm: Any, tensors: Sequence[Any], choices: Sequence[Choice], repeat: int) -> list[ProfileRow]:
    """Run a model ``repeat`` times and take the median time of each of its functions.

    Parameters
    ----------
    vm : VirtualMachine
        The loaded model; it stays instrumented, and so is for this alone.
    tensors : sequence
        The inputs of ``main``.
    choices : sequence of Choice
        What is known of the functions.
    repeat : int
        Inferences.
    """
    known = {choice.function: choice for choice in choices}
    vm["main"](*tensors)
    runs = [_durations(vm, tensors, known) for _ in range(repeat)]
    times = {name: median(sum(run[name]) for run in runs) for name in runs[0]}
    total = sum(times.values()) or 1.0
    rows = [_row(name, len(runs[0][name]), times[name], total, known.get(name)) for name in times]
    return sorted(rows, key=lambda row: -float(row["seconds"]))


def _durations(vm: Any, tensors: Sequence[Any], known: dict[str, Choice]) -> dict[str, list[float]]:
    """Run once and return the seconds of each call by function."""
    found: dict[str, list[float]] = defaultdict(list)
    vm["set_instrument"](_stopwatch(found, known))
    vm["main"](*tensors)
    return found


def _stopwatch(found: dict[str, list[float]], known: dict[str, Choice]) -> Callable[..., None]:
    """Make the function that TVM calls before and after each call."""
    started = 0.0

    def instrument(_func: Any, symbol: str, before: bool, _result: Any, *_args: Any) -> None:
        nonlocal started
        now = time.perf_counter()
        if before:
            started = time.perf_counter()
            return
        name = name_in_model(symbol.removesuffix(_PREPACKED))
        found[name if name in known else RUNTIME].append(now - started)

    return instrument


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
