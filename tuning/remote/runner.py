"""The runner of remote devices: as `Runner` to its callers, but each job goes to the next free server.

Who loses its server asks for another one: the tracker does not hand out a server that is dead or silent.
"""

from __future__ import annotations

import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ...machine.errors import InputError
from ..measuring.tasks import CompareJob, Ran, RunJob
from ..processes.worker import Task, Worker, WorkerCrash, WorkerError, WorkerTimeout
from ..records.record import Status
from .tasks import (
    Failed,
    Lost,
    Machine,
    Missing,
    RemoteJob,
    compare_on_server,
    look_at_server,
    request_server,
    run_on_server,
)
from .tracker import Remote, Server

# A candidate that so many servers did not survive is not given to another one.
_SERVERS = 2
# A server ends a session that takes too long, and says so; one that has not by so much later is silent.
_SILENCE_S = 5.0


class RemoteRunner:
    """A worker that has candidates checked and timed on servers, one after another.

    Parameters
    ----------
    timeout_s : float
        The longest that checking one candidate may take, and that timing it may take.
    worker : Worker
        Who talks to the servers.
    remote : Remote
        Where they are.
    """

    def __init__(self, timeout_s: float, worker: Worker, remote: Remote) -> None:
        self.timeout_s = timeout_s
        self.deadline = float("inf")
        self.device = remote.device
        self._worker, self._remote = worker, remote
        self._job: RunJob | None = None
        self._server: Server | None = None
        self._lost: list[str] = []

    @property
    def connection(self) -> Connection:
        """Becomes readable when `result` has something to look at."""
        return self._worker.connection

    def start_check(self, job: RunJob) -> None:
        """Have a candidate checked, and timed in the same session if it is right."""
        self._job, self._lost = job, []
        self._ask()

    def restart(self) -> None:
        """End what the worker does, and put a fresh process in its place; the server ends that session."""
        self._worker.restart()

    def result(self) -> Ran | None:
        """Return what became of the candidate; None while it goes on, perhaps on another server.

        Raises
        ------
        InputError
            No server could be had.
        """
        if time.monotonic() < self.deadline and not self.connection.poll():
            return None
        if self._server is None:
            server = self._received(0.0)
            if not isinstance(server, Server):
                raise InputError(server.message)
            self._use(server)
            return None
        done = self._received(0.0)
        if not isinstance(done, Lost):
            ran = Ran(done.status, done.message) if isinstance(done, Failed) else done
            return replace(ran, message="; before that, ".join(filter(None, [ran.message, *self._lost])))
        self._lost.append(done.message)
        if len(self._lost) == _SERVERS:
            return Ran(Status.CRASHED, f"{_SERVERS} servers were lost with it: {'; '.join(self._lost)}")
        self._ask()
        return None

    def time(self, job: RunJob, checked: Ran) -> Ran:
        """Return what `result` did: it was timed already."""
        return checked

    def compare(self, job: CompareJob) -> list[list[float]] | None:
        """Measure finalists against each other on one server; None where one of them takes it down."""
        folder, timeout_s = str(Path(job.libraries[0]).parent), self.timeout_s * len(job.libraries)
        for _ in range(_SERVERS):
            found = self._do(compare_on_server, folder, timeout_s, compared=job)
            if not isinstance(found, Lost):
                return None if isinstance(found, Failed) else found
        return None

    def machine(self, folder: str) -> Machine:
        """Find out what the next free server's machine is; the guard's library goes into a folder.

        Raises
        ------
        InputError
            No server could be had, or none that works.
        """
        for _ in range(_SERVERS):
            found = self._do(look_at_server, folder, self.timeout_s)
            if isinstance(found, Machine):
                return found
        raise InputError(
            f"the servers of key {self._remote.key} do not work: {found.message}; "
            f"see: tunesmith doctor --rpc-tracker {self._remote.tracker} --rpc-key {self._remote.key}"
        )

    def _ask(self) -> None:
        self._server = None
        self._send(request_server, self._remote, self._remote.wait_s)

    def _use(self, server: Server) -> None:
        assert self._job is not None
        self._server = server
        folder, timeout_s = str(Path(self._job.library).parent), 2 * self.timeout_s
        job = RemoteJob(self._remote, server, folder, timeout_s, run=self._job)
        self._send(run_on_server, job, timeout_s)

    def _do(self, task: Task, folder: str, timeout_s: float, compared: CompareJob | None = None) -> Any:
        """Do one task on the next free server, and wait for it."""
        self._ask()
        server = self._received(self._remote.wait_s + _SILENCE_S)
        if not isinstance(server, Server):
            raise InputError(server.message)
        self._server = server
        self._send(task, RemoteJob(self._remote, server, folder, timeout_s, compared=compared), timeout_s)
        return self._received(timeout_s + _SILENCE_S)

    def _send(self, task: Task, payload: Any, timeout_s: float) -> None:
        self._worker.send(task, payload)
        self.deadline = time.monotonic() + timeout_s + _SILENCE_S

    def _received(self, timeout_s: float) -> Any:
        """Return the worker's answer; where it has none, the server is to blame, or the tracker."""
        try:
            return self._worker.receive(timeout_s)
        except WorkerError as error:
            return Failed(Status.RUN_ERROR, str(error)) if self._server else Missing(str(error))
        except WorkerTimeout:
            reason = "is silent"
        except WorkerCrash as error:
            reason = f"was not heard to the end: {error}"
        if self._server is None:
            return Missing(f"the tracker at {self._remote.tracker} {reason}")
        return Lost(self._server, f"{self._server} {reason}")
