"""A worker: a process that does one task after another, so that one that hangs or crashes costs one trial.

It is one of a `WorkerGroup`, which starts it, and forks another in its place when it dies.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any, BinaryIO

Task = Callable[[Any], Any]
"""A function of a module that the worker can import; its argument and result are picklable."""

# Starting imports TVM on a machine that may be busy.
_START_TIMEOUT_S = 120.0
# The system may take a while to clear a large process away.
_DEATH_S = 10.0
_TAIL_BYTES = 2000


class WorkerTimeout(Exception):
    """A task took longer than its timeout; the worker was killed and is ready again."""


class WorkerCrash(Exception):
    """The process that did a task died; the message names the signal or exit status and its last output."""


class WorkerError(Exception):
    """A task raised an exception; the message is its type and text."""


class Worker:
    """One worker, seen from the process that gives it tasks; made by its group.

    Parameters
    ----------
    output : file
        What the process prints.
    growth_bytes : float
        When it has grown by more, another takes its place before the next task.
    revive : callable
        Starts the whole group again, once its first process is lost.
    """

    connection: Connection
    """Becomes readable when the task sent has ended, however it has."""

    def __init__(self, output: BinaryIO, growth_bytes: float, revive: Callable[[], None]) -> None:
        self.output, self.started = output, False
        self._growth_bytes, self._revive = growth_bytes, revive
        self._line: Connection | None = None
        self._process = self._bytes_at_first = 0
        self._ready = False
        self._lost = ""

    def call(self, task: Task, payload: Any, timeout_s: float) -> Any:
        """Do a task and return its result.

        Raises
        ------
        WorkerTimeout, WorkerCrash, WorkerError
            The task hung, took its process down, or raised.
        """
        self.send(task, payload)
        return self.receive(timeout_s)

    def send(self, task: Task, payload: Any) -> None:
        """Hand a task over without waiting for it; a process that has grown too large is replaced first."""
        if self._ready and self.connection.poll():
            # It died while it had nothing to do: that is no task's fault.
            self._ready = False
        self.wait_until_ready()
        if self.resident_bytes() > self._bytes_at_first + self._growth_bytes:
            self.restart()
            self.wait_until_ready()
        os.ftruncate(self.output.fileno(), 0)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            # Where it has died just now, who waits for its answer is told.
            self.connection.send((task, payload))

    def receive(self, timeout_s: float) -> Any:
        """Wait for the result of the task sent."""
        if not self.connection.poll(timeout_s):
            self.restart()
            raise WorkerTimeout(f"no answer within {timeout_s:g} s")
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError) as error:
            cause = self._cause_of_death() + self.output_tail()
            raise WorkerCrash(cause) from error
        self._bytes_at_first = self._bytes_at_first or self.resident_bytes()
        if kind == "error":
            raise WorkerError(value)
        return value

    def wait_until_ready(self) -> None:
        """Wait until the worker has started or started again; after that it waits without using a CPU."""
        while not self._ready:
            assert self._line is not None
            if not self._line.poll(_START_TIMEOUT_S):
                raise RuntimeError(f"no worker started in {_START_TIMEOUT_S:g} s{self.output_tail()}")
            kind, value = self._news()
            if kind == "started":
                self._hang_up()
                self.connection = Connection(recv_handle(self._line))
                self._process, self._bytes_at_first = value, 0
                self._ready = self.started = True

    def hold(self) -> None:
        """Stop the process where it is; it uses no CPU until it is let go."""
        self._signal(signal.SIGSTOP)

    def let_go(self) -> None:
        """Let a process that is held go on."""
        self._signal(signal.SIGCONT)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Let the process run in here, and hold it from then on until the next time.

        The threads of OpenMP, OpenBLAS and TVM go on spinning for up to 0.3 s after a call has returned, and
        would take the CPUs from whoever is measured next.
        """
        self.wait_until_ready()
        self.let_go()
        try:
            yield
        finally:
            self.hold()

    def resident_bytes(self) -> int:
        """Return how much memory the process holds; 0 where the system does not tell."""
        try:
            pages = Path(f"/proc/{self._process}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def restart(self) -> None:
        """Put a fresh process in the place of the one that does the work."""
        self._signal(signal.SIGKILL)
        self._ready = False

    def close(self) -> None:
        """Close this end; the group ends the process."""
        self._hang_up()
        if self._line is not None:
            self._line.close()
        self.output.close()

    def listen(self, line: Connection) -> None:
        """Take over the line on which the group's first process tells what becomes of the worker."""
        if self._line is not None:
            self._line.close()
        self._line, self.started = line, False

    def lose(self, cause: str) -> None:
        """Note that the process went down with its group; who waits for its answer is told the cause."""
        self._ready, self._lost = False, cause

    def output_tail(self) -> str:
        """Return the last of what the worker printed, on one line for messages."""
        size = os.fstat(self.output.fileno()).st_size
        tail = os.pread(self.output.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        text = " ".join(tail.decode(errors="replace").split())
        return f"; its last output: {text}" if text else ""

    def _signal(self, number: signal.Signals) -> None:
        # Only one that is known to run has a process id of its own.
        if self._ready:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process, number)

    def _hang_up(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()

    def _cause_of_death(self) -> str:
        """Return why the channel to the process ended."""
        if not self._ready:
            return self._lost
        assert self._line is not None
        if not self._line.poll(_DEATH_S):
            # It has closed its end, but lives.
            self._signal(signal.SIGKILL)
        _, cause = self._news()
        self._ready = False
        return str(cause)

    def _news(self) -> tuple[str, Any]:
        """Wait for what the first process tells of this worker; where that died, start it again."""
        assert self._line is not None
        try:
            kind, value = self._line.recv()
        except (EOFError, OSError):
            self._revive()
            return "died", self._lost
        return kind, value
