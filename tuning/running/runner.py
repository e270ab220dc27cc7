"""The runner: one isolated worker for one device, and a lock so that one measurement at a time uses it."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...machine.errors import InputError
from ..measuring.tasks import CompareJob, Ran, RunJob, check_candidate, compare_candidates, time_candidate
from ..processes.worker import Task, Worker, WorkerCrash, WorkerError, WorkerTimeout
from ..records.record import Status

# How a worker ends that was not waited for any more.
_ALARM = signal.SIGALRM.name


class Runner:
    """A worker that checks and times candidates one after another, on this machine.

    Parameters
    ----------
    timeout_s : float
        The longest that checking one candidate may take, and that timing it may take.
    worker : Worker
        Who does it.
    """

    def __init__(self, timeout_s: float, worker: Worker) -> None:
        self.timeout_s = timeout_s
        self._worker = worker

    def restart(self) -> None:
        """End what the worker does, and put a fresh process in its place."""
        self._worker.restart()

    def check(self, job: RunJob) -> Ran:
        """Run a candidate on its test cases; hangs and crashes are told in the status."""
        return self._alone(check_candidate, job)

    def time(self, job: RunJob, checked: Ran) -> Ran:
        """Time a candidate that was right, and return the outcome of both."""
        ran = self._alone(time_candidate, job)
        error = checked.max_error if ran.status is Status.OK else ran.max_error
        return dataclasses.replace(ran, max_error=error)

    def compare(self, job: CompareJob) -> list[list[float]] | None:
        """Measure finalists against each other in a fresh process; None where one of them takes it down."""
        self._worker.restart()
        try:
            with device_lock():
                found: list[list[float]] = self._worker.call(
                    compare_candidates, job, self.timeout_s * len(job.libraries)
                )
            return found
        except (WorkerTimeout, WorkerCrash, WorkerError):
            return None

    def _alone(self, task: Task, job: RunJob) -> Ran:
        """Do a task, and hold the worker afterwards: its threads would spin on CPUs that builders need."""
        try:
            with self._worker.alone():
                ran: Ran = self._worker.call(task, job, self.timeout_s)
            return ran
        except WorkerTimeout:
            return Ran(Status.RUN_TIMEOUT, f"not finished within {self.timeout_s:g} s")
        except WorkerCrash as error:
            if str(error).startswith(_ALARM):
                times = f"{job.deadline_s / job.best_s:.0f} times the best so far"
                return Ran(Status.RUN_TIMEOUT, f"stopped after {job.deadline_s:.2g} s, {times}")
            return Ran(Status.CRASHED, str(error))
        except WorkerError as error:
            return Ran(Status.RUN_ERROR, str(error))


@contextmanager
def device_lock(device: str = "cpu") -> Iterator[None]:
    """Hold this user's lock on a device: measurements of several processes wait for each other.

    Raises
    ------
    InputError
        The lock's file cannot be used.
    """
    path = Path(tempfile.gettempdir()) / f"tunesmith-{os.getuid()}-{device}.lock"
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("a"))
            # Released by the system when the file is closed or the process ends.
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise InputError(
                f"cannot lock {path}, so that one measurement at a time uses the device: {error.strerror}; "
                "remove it, or set TMPDIR to another folder"
            ) from error
        yield
