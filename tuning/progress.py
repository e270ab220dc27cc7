"""Progress: what a tuning reports while it runs, and the lines it becomes on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from ..kernels.operator import Workload
from .record import Record, Status

_MESSAGE_WIDTH = 100
_REASONS = {
    "trials": "the number of trials",
    "exhausted": "the end of the space",
    "early_stopping": "early stopping",
    "time_budget": "the time budget",
    "interrupted": "Ctrl-C",
}


@dataclass(frozen=True)
class Started:
    """A workload's tuning begins.

    Parameters
    ----------
    workload : Workload
        What is tuned.
    space, strategy : str
        Where candidates come from and how they are chosen.
    points : int or None
        Legal points of the space, where they can be counted.
    trials, resumed : int
        Trials wanted in all, and how many of them the database holds already.
    """

    workload: Workload
    space: str
    strategy: str
    points: int | None
    trials: int
    resumed: int


@dataclass(frozen=True)
class TrialEnded:
    """One trial ended and is in the database.

    Parameters
    ----------
    number, trials : int
        Which trial it was, and how many are wanted.
    record : Record
        Its outcome.
    best_s : float or None
        Seconds of the fastest right trial so far.
    gflops : float or None
        10^9 operations a second; None where there is no time.
    roofline_fraction : float or None
        The least time that the machine's peaks allow, divided by the time.
    elapsed_s, eta_s : float
        Seconds since the start, and until the end if the trials to come last as long as those before.
    """

    number: int
    trials: int
    record: Record
    best_s: float | None
    gflops: float | None
    roofline_fraction: float | None
    elapsed_s: float
    eta_s: float


@dataclass(frozen=True)
class TuneResult:
    """What the tuning of a workload came to: the last event, and what `tune` returns.

    Parameters
    ----------
    workload : Workload
        What was tuned.
    best : Record or None
        The record that `Database.best` returns from now on.
    default : Record or None
        The default schedule's record.
    counts : mapping
        How many trials of this session ended in which status.
    trials : int
        Trials of this space in the database.
    stopped_by : str
        ``trials``, ``exhausted``, ``early_stopping``, ``time_budget`` or ``interrupted``.
    seconds : mapping
        Where the time went: search, build, run, confirm, other.
    """

    workload: Workload
    best: Record | None
    default: Record | None
    counts: dict[Status, int]
    trials: int
    stopped_by: str
    seconds: dict[str, float]


Event = Started | TrialEnded | TuneResult
Progress = Callable[[Event], None]


class ProgressLines:
    """Write one aligned line a trial, and a summary at the end.

    Parameters
    ----------
    stream : text stream, optional
        Where to; stderr by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    def __call__(self, event: Event) -> None:
        """Write the lines of one event."""
        if isinstance(event, Started):
            lines = _started_lines(event)
        elif isinstance(event, TrialEnded):
            lines = [_trial_line(event)]
        else:
            lines = _ended_lines(event)
        print("\n".join(lines), file=self._stream, flush=True)


def quiet(event: Event) -> None:
    """Report nothing."""


def _started_lines(event: Started) -> list[str]:
    points = f", {event.points} points" if event.points is not None else ""
    lines = [
        f"tuning {event.workload.label} {event.workload.dtype}: space {event.space}{points}, "
        f"strategy {event.strategy}, {event.trials} trials"
    ]
    if event.resumed:
        lines.append(f"resumed: {event.resumed} of {event.trials} trials were already in the database")
    lines.append(
        f"{'trial':>9}  {'status':<14} {'time':>10}  {'GFLOP/s':>8}  {'roofline':>8}  {'best':>10}  "
        f"{'elapsed':>7}  {'ETA':>7}"
    )
    return lines


def _trial_line(event: TrialEnded) -> str:
    record = event.record
    gflops = "" if event.gflops is None else f"{event.gflops:.1f}"
    fraction = "" if event.roofline_fraction is None else f"{event.roofline_fraction:.1%}"
    line = (
        f"{event.number:>4}/{event.trials:<4}  {record.status.value:<14} {duration(record.median_s):>10}  "
        f"{gflops:>8}  {fraction:>8}  {duration(event.best_s):>10}  "
        f"{_clock(event.elapsed_s):>7}  {_clock(event.eta_s):>7}"
    )
    note = "" if record.status is Status.OK else record.message
    return f"{line}  {note[:_MESSAGE_WIDTH]}".rstrip()


def _ended_lines(event: TuneResult) -> list[str]:
    counts = ", ".join(f"{n} {status.value}" for status, n in event.counts.items() if n) or "no new trials"
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in event.seconds.items())
    return [_best_line(event), f"ended by {_REASONS[event.stopped_by]}; {counts}; {times}"]


def _best_line(event: TuneResult) -> str:
    best, default = event.best, event.default
    if best is None or best.median_s is None:
        return "no candidate ran and was right; the default schedule will be used"
    point = "" if best.knobs is None else " " + " ".join(f"{k}={v}" for k, v in best.knobs.items())
    line = f"best {duration(best.median_s)}: {best.space}{point} (record {best.id})"
    if default is None or default.median_s is None:
        return line
    if best.id == default.id:
        return f"{line}, the default schedule: nothing faster was found"
    gain = default.median_s / best.median_s
    return f"{line}, {gain:.2f}x as fast as the default ({duration(default.median_s)})"


def duration(seconds: float | None) -> str:
    """Write seconds in the unit that suits them."""
    if seconds is None:
        return "-"
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
