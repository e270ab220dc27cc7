"""Progress: how a tuning's events look on a terminal, as a line for each trial or as a live bar."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, TextIO

from tqdm import tqdm

from ...machine.errors import unknown_name
from .events import Event, GainSoFar, Learned, Progress, Started, TrialEnded, TuneResult, quiet
from .wording import (
    HEADING,
    MESSAGE_WIDTH,
    Failures,
    clock,
    duration,
    gain_line,
    learned_line,
    started_lines,
    summary_lines,
    trial_line,
)

__all__ = [
    "PROGRESS",
    "Event",
    "Learned",
    "Progress",
    "ProgressBar",
    "ProgressLines",
    "Started",
    "TrialEnded",
    "TuneResult",
    "duration",
    "progress_named",
    "quiet",
]

PROGRESS: dict[str, str] = {
    "auto": "a bar on a terminal, lines elsewhere",
    "lines": "a line for each trial",
    "bar": "a live bar",
    "quiet": "nothing",
}
"""The ways to show progress, with a line for people."""


def progress_named(name: str, stream: TextIO | None = None) -> Progress:
    """Return one of the ways to show progress.

    Parameters
    ----------
    name : str
        One of `PROGRESS`.
    stream : text stream, optional
        Where to; stderr by default.

    Raises
    ------
    InputError
        There is no such way.
    """
    stream = stream or sys.stderr
    if stream is None:
        # Whoever started this process has closed it.
        return quiet
    if name == "auto":
        name = "bar" if stream.isatty() and os.environ.get("TERM") != "dumb" else "lines"
    if name not in PROGRESS:
        raise unknown_name("way to show progress", name, PROGRESS)
    ways: dict[str, Progress] = {"lines": ProgressLines(stream), "bar": ProgressBar(stream), "quiet": quiet}
    return ways[name]


class _Workloads:
    """What is known about each workload of a call; their trials may come in turns."""

    def __init__(self) -> None:
        self._started: dict[str, Started] = {}
        self._failures: dict[str, Failures] = {}

    def announced(self, event: Started | Learned | TuneResult) -> list[str]:
        """Write how a workload begins, what its search starts from, or how it ends."""
        key = event.workload.hash
        if isinstance(event, Started):
            if self._started.get(key, event).space == event.space:
                self._failures.pop(key, None)
            self._started[key] = event
            lines = started_lines(event)
        elif isinstance(event, Learned):
            lines = [learned_line(event)]
        else:
            lines = summary_lines(event, self.failures(key))
        return [f"{self.place(key)}{line}" for line in lines]

    def failures(self, key: str) -> Failures:
        """Return the failed trials of a workload."""
        return self._failures.setdefault(key, Failures())

    def place(self, key: str) -> str:
        """Say which of how many a workload is; nothing where it is the only one."""
        event = self._started.get(key)
        return f"{event.workload_number}/{event.workloads}  " if event and event.workloads > 1 else ""


class ProgressLines:
    """Write one aligned line a trial, and a summary at the end of each workload.

    Parameters
    ----------
    stream : text stream, optional
        Where to; stderr by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._workloads = _Workloads()
        self._heading_due = True

    def __call__(self, event: Event) -> None:
        """Write the lines of one event."""
        if isinstance(event, TrialEnded):
            lines = self._trial(event)
        elif isinstance(event, GainSoFar):
            lines = [gain_line(event)]
        else:
            lines = self._workloads.announced(event)
        if not isinstance(event, GainSoFar):
            self._heading_due = not isinstance(event, TrialEnded)
        print("\n".join(lines), file=self._stream, flush=True)

    def _trial(self, event: TrialEnded) -> list[str]:
        key = event.record.workload_hash
        self._workloads.failures(key).take(event.record)
        place = self._workloads.place(key)
        heading = [" " * len(place) + HEADING] if self._heading_due else []
        return [*heading, place + trial_line(event)]


class ProgressBar:
    """Keep one bar over all workloads; the first failure of each kind and the summaries stay above it.

    Parameters
    ----------
    stream : text stream, optional
        Where to; stderr by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._workloads = _Workloads()
        self._bar: tqdm[Any] | None = None
        self._gain = ""

    def __call__(self, event: Event) -> None:
        """Move the bar, and write above it what stays."""
        if isinstance(event, Started | Learned):
            self._write(self._workloads.announced(event))
        elif isinstance(event, TrialEnded):
            self._trial(event)
        elif isinstance(event, GainSoFar):
            self._gain = f", {gain_line(event)}"
        else:
            self._close()
            self._write(self._workloads.announced(event))

    def _trial(self, event: TrialEnded) -> None:
        record = event.record
        failures = self._workloads.failures(record.workload_hash)
        if failures.take(record):
            self._write([f"{record.status}: {record.message[:MESSAGE_WIDTH]}"])
        failed = f", {failures.count} failed" if failures.count else ""
        bar = self._opened()
        # Windows change; and where the size is unknown, tqdm itself shows nothing.
        bar.ncols = shutil.get_terminal_size().columns
        bar.total, bar.n = event.trials, min(event.number, event.trials)
        bar.set_description_str(
            f"{self._workloads.place(record.workload_hash)}{record.operator}", refresh=False
        )
        bar.set_postfix_str(
            f"best {duration(event.best_s)}{failed}{self._gain}, {clock(event.elapsed_s)}, "
            f"ETA {clock(event.eta_s)}",
            refresh=False,
        )
        bar.refresh()

    def _opened(self) -> tqdm[Any]:
        if self._bar is None:
            self._bar = tqdm(
                file=self._stream,
                leave=False,
                bar_format="{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{postfix}",
            )
        return self._bar

    def _close(self) -> None:
        """Take the bar away; the next trial brings it back."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None

    def _write(self, lines: list[str]) -> None:
        tqdm.write("\n".join(lines), file=self._stream)
