"""The runner: one isolated worker for one device, and a lock so that one measurement at a time uses it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .record import Status
from .tasks import CompareJob, Ran, RunJob, compare_candidates, run_candidate
from .worker import Worker, WorkerCrash, WorkerError, WorkerTimeout


class Runner:
    """A worker that runs candidates one after another.

    Parameters
    ----------
    timeout_s : float
        The longest that running, checking and timing one candidate may take.
    worker : Worker
        Who runs them.
    """

    def __init__(self, timeout_s: float, worker: Worker) -> None:
        self.timeout_s = timeout_s
        self._worker = worker

    def run(self, job: RunJob) -> Ran:
        """Run one candidate; a hang or a crash ends its process and is told in the status."""
        try:
            with device_lock():
                ran: Ran = self._worker.call(run_candidate, job, self.timeout_s)
            return ran
        except WorkerTimeout:
            return Ran(Status.RUN_TIMEOUT, f"not finished within {self.timeout_s:g} s")
        except WorkerCrash as error:
            return Ran(Status.CRASHED, str(error))
        except WorkerError as error:
            return Ran(Status.RUN_ERROR, str(error))

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


@contextmanager
def device_lock(device: str = "cpu") -> Iterator[None]:
    """Hold this user's lock on a device: measurements of several processes wait for each other."""
    path = Path(tempfile.gettempdir()) / f"tunesmith-{os.getuid()}-{device}.lock"
    with open(path, "a") as file:
        # Released by the system when the file is closed or the process ends.
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
