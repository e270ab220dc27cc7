"""The builder: a worker that compiles candidates, each with a timeout."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

from ... import schedules
from ...schedules.rule import ScheduleRule
from ..measuring.tasks import BuildJob, Built, build_candidate
from ..processes.portable import pickled_with_code
from ..processes.worker import Worker, WorkerCrash, WorkerError, WorkerTimeout
from ..records.record import Status

# Less than a library takes.
_LITTLE_BYTES = 1 << 16


class Builder:
    """A worker that compiles one candidate at a time.

    Parameters
    ----------
    timeout_s : float
        The longest that one candidate may take; time in which the worker is held does not count.
    worker : Worker
        Who compiles.
    """

    def __init__(self, timeout_s: float, worker: Worker) -> None:
        self.timeout_s = timeout_s
        self.deadline = float("inf")
        self._worker = worker
        self._held_at = 0.0

    @property
    def connection(self) -> Connection:
        """Becomes readable when `result` has something to return."""
        return self._worker.connection

    def start(self, job: BuildJob) -> None:
        """Have a candidate built."""
        self._folder = Path(job.library).parent
        self._worker.send(build_candidate, job)
        self.deadline = time.monotonic() + self.timeout_s

    def restart(self) -> None:
        """End what the worker does, and put a fresh process in its place."""
        self._worker.restart()

    def result(self) -> Built | None:
        """Return what became of the build; None while it goes on."""
        if time.monotonic() < self.deadline and not self.connection.poll():
            return None
        built = self._received()
        # Then neither the compiler could work nor the file take its message.
        if built.status is Status.BUILD_ERROR and shutil.disk_usage(self._folder).free < _LITTLE_BYTES:
            return replace(built, message=f"{built.message}; the disk with {self._folder} is full")
        return built

    def _received(self) -> Built:
        try:
            built: Built = self._worker.receive(0.0)
            return built
        except WorkerTimeout:
            return Built(Status.BUILD_TIMEOUT, f"not built within {self.timeout_s:g} s")
        except WorkerCrash as error:
            return Built(Status.BUILD_ERROR, f"the compiler crashed: {error}")
        except WorkerError as error:
            return Built(Status.BUILD_ERROR, str(error))

    def hold(self) -> None:
        """Stop the worker where it is."""
        self._held_at = time.monotonic()
        self._worker.hold()

    def let_go(self) -> None:
        """Let the worker go on."""
        self._worker.let_go()
        self.deadline += time.monotonic() - self._held_at


def build_all(builders: Sequence[Builder], jobs: Sequence[BuildJob]) -> list[Built]:
    """Build candidates side by side; the results are in the order of the jobs."""
    results: dict[int, Built] = {}
    waiting, idle = deque(enumerate(jobs)), deque(builders)
    busy: dict[Builder, int] = {}
    while waiting or busy:
        while waiting and idle:
            index, job = waiting.popleft()
            busy[idle[0]] = index
            idle.popleft().start(job)
        left = min(builder.deadline for builder in busy) - time.monotonic()
        wait([builder.connection for builder in busy], max(0.0, left))
        for builder in list(busy):
            if (built := builder.result()) is not None:
                results[busy.pop(builder)] = built
                idle.append(builder)
    return [results[i] for i in range(len(jobs))]


def portable_rule(rule: ScheduleRule) -> str | bytes:
    """Return a rule in a form that a worker can make it of: its name, or itself pickled with its code."""
    if schedules.is_built_in(rule):
        return rule.name
    return pickled_with_code(rule, (rule.rewrite, rule.open_space))
