"""A tuning in words: how it starts, each trial, and at the end the best, what failed, where the time went."""

from __future__ import annotations

import re
from collections import Counter

from ..records.record import Record, Status
from .events import GainSoFar, Learned, Started, TrialEnded, TuneResult

MESSAGE_WIDTH = 100
"""Characters of a trial's message that are shown."""

_REASONS = {
    "trials": "the number of trials",
    "exhausted": "the end of the space",
    "early_stopping": "early stopping",
    "time_budget": "the time budget",
    "roofline": "the share of the roofline asked for",
    "dead_end": "a dead end: too many trials in a row that failed",
    "negligible": "too small a share of the time of all",
    "interrupted": "Ctrl-C",
}

HINTS: dict[Status, str] = {
    Status.WRONG_RESULT: "a bug in the schedule or in TVM; a constraint keeps the search away",
    Status.SCHEDULE_ERROR: "tighten the space with a constraint",
    Status.BUILD_ERROR: "tighten the space with a constraint",
    Status.BUILD_TIMEOUT: "raise --timeout, or tighten the space with a constraint",
    Status.RUN_ERROR: "the message says why",
    Status.RUN_TIMEOUT: "raise --timeout",
    Status.CRASHED: "a bug in the schedule, often an access out of bounds, or too little memory",
}
"""What helps against each way that a trial fails."""


HEADING = (
    f"{'trial':>9}  {'status':<14} {'time':>10}  {'GFLOP/s':>8}  {'roofline':>8}  {'best':>10}  "
    f"{'elapsed':>7}  {'ETA':>7}"
)
"""What stands above the lines of trials."""


def started_lines(event: Started) -> list[str]:
    """Write what is tuned, in which space, and what is known from before."""
    points = f", {event.points} points" if event.points is not None else ""
    lines = [
        f"tuning {event.workload.label} {event.workload.dtype}: space {event.space}{points}, "
        f"strategy {event.strategy}, {event.trials} trials{' in all' if event.workloads > 1 else ''}"
    ]
    if event.resumed:
        lines.append(f"resumed: {event.resumed} of {event.trials} trials were already in the database")
    return lines


def learned_line(event: Learned) -> str:
    """Write what the search starts from besides the workload's own trials."""
    return (
        f"learned from {event.records} records of other {'shapes' if event.workload.shape else 'functions'}"
    )


def trial_line(event: TrialEnded) -> str:
    """Write one trial under `HEADING`."""
    record = event.record
    gflops = "" if event.gflops is None else f"{event.gflops:.1f}"
    fraction = "" if event.roofline_fraction is None else f"{event.roofline_fraction:.1%}"
    line = (
        f"{event.number:>4}/{event.trials:<4}  {record.status.value:<14} {duration(record.median_s):>10}  "
        f"{gflops:>8}  {fraction:>8}  {duration(event.best_s):>10}  "
        f"{clock(event.elapsed_s):>7}  {clock(event.eta_s):>7}"
    )
    note = "" if record.status is Status.OK else record.message
    return f"{line}  {note[:MESSAGE_WIDTH]}".rstrip()


class Failures:
    """The failed trials of one workload: how many of each kind, and why."""

    def __init__(self) -> None:
        self._messages: dict[Status, Counter[str]] = {}
        self._examples: dict[str, str] = {}

    def take(self, record: Record) -> bool:
        """Count a trial; tell whether it is the first that fails in this way."""
        if record.status is Status.OK:
            return False
        new = record.status not in self._messages
        # Messages differ in numbers only: element 3 is wrong, element 5 is wrong.
        alike = re.sub(r"\d[\d.e+-]*", "#", record.message)
        self._examples.setdefault(alike, record.message)
        self._messages.setdefault(record.status, Counter())[alike] += 1
        return new

    @property
    def count(self) -> int:
        """How many trials failed."""
        return sum(counter.total() for counter in self._messages.values())

    def lines(self) -> list[str]:
        """Write a line for each way of failing, the most frequent first: its message and what helps."""
        kinds = sorted(self._messages.items(), key=lambda kind: -kind[1].total())
        return [self._line(status, messages) for status, messages in kinds]

    def _line(self, status: Status, messages: Counter[str]) -> str:
        (alike, often), total = messages.most_common(1)[0], messages.total()
        share = f"{often} of them: " if often < total else ""
        message = self._examples[alike][:MESSAGE_WIDTH] or "no message"
        return f"{total} {status} ({share}{message}): {HINTS[status]}"


def gain_line(event: GainSoFar) -> str:
    """Write what all workloads came to and what they come to now."""
    ratio = event.default_s / event.best_s
    return f"all calls {duration(event.default_s)} -> {duration(event.best_s)} ({ratio:.2f}x, estimated)"


def summary_lines(result: TuneResult, failures: Failures) -> list[str]:
    """Write the best with its margin, what failed, what ended the tuning, and where the time went."""
    counts = ", ".join(f"{n} {status}" for status, n in result.counts.items() if n) or "no new trials"
    spent = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in result.seconds.items())
    return [
        best_line(result),
        *failures.lines(),
        f"ended by {_REASONS[result.stopped_by]}; {counts}; {spent}",
    ]


def best_line(result: TuneResult) -> str:
    """Write the best record and its margin over the default schedule."""
    best, default = result.best, result.default
    if best is None or best.median_s is None:
        return "no candidate ran and was right; the default schedule will be used"
    point = "" if best.knobs is None else " " + " ".join(f"{k}={v}" for k, v in best.knobs.items())
    line = f"best {duration(best.median_s)}: {best.space}{point} (record {best.id})"
    if default is None or default.median_s is None:
        return line
    if best.id == default.id:
        return f"{line}, the default schedule: nothing faster was found"
    ratio, less = default.median_s / best.median_s, default.median_s - best.median_s
    return (
        f"{line}, {ratio:.2f}x as fast as the default ({duration(default.median_s)}), "
        f"{duration(less)} less a call"
    )


def duration(seconds: float | None) -> str:
    """Write seconds in the unit that suits them."""
    if seconds is None:
        return "-"
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"


def clock(seconds: float) -> str:
    """Write a longer time as 0:05, 12:30 or 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
