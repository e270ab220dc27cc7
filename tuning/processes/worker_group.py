"""A group of workers: the processes in which candidates are built and run.

It starts as one process that imports TVM once (0.4 s) and forks each worker. When a worker dies, that first
process tells why and forks another one: 10 ms instead of a new start. When it dies itself, all is started
again. All of them end with their parent, however it ends, and none sees the terminal's Ctrl-C: the parent
decides.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from multiprocessing.connection import Connection
from types import TracebackType
from typing import BinaryIO

from ...machine.process import usable_cpus
from .worker import Worker
from .worker_process import command, death

# LLVM and libraries that are loaded again and again leak: a worker that has grown by this much is replaced.
_GROWTH_BYTES = 1 << 30
# Runs go one at a time: more builders than these would wait for them.
_MOST_BUILDERS = 8


class WorkerGroup:
    """Workers of one kind, forked from one process that has imported what they need.

    Parameters
    ----------
    count : int
        How many workers.
    environment : mapping, optional
        Variables to set besides this process's own.
    preload : tuple of str
        Modules imported once, before the first fork.
    growth_bytes : float
        A worker that has grown by more is replaced before its next task; infinite for tasks that build upon
        each other.
    """

    def __init__(
        self,
        count: int,
        environment: Mapping[str, str] | None = None,
        preload: tuple[str, ...] = ("tvm", "tunesmith.tuning.measuring.tasks"),
        growth_bytes: float = _GROWTH_BYTES,
    ) -> None:
        # What is importable here shall be importable there.
        path = os.pathsep.join(p for p in sys.path if p)
        self._environment = {**os.environ, "PYTHONPATH": path, **(environment or {})}
        self._preload = preload
        self.workers = [Worker(_output(), growth_bytes, self.restart) for _ in range(count)]
        self._start()

    def __enter__(self) -> WorkerGroup:
        """Return the group itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers."""
        self.close()

    def close(self) -> None:
        """End the workers and everything they started; safe to call twice."""
        self._end()
        for worker in self.workers:
            worker.close()

    def wait_until_ready(self) -> None:
        """Wait until no worker is starting: that would disturb a measurement."""
        for worker in self.workers:
            worker.wait_until_ready()

    def restart(self) -> None:
        """Start again after the first process was lost, and all workers with it.

        Raises
        ------
        RuntimeError
            It ended before any worker was ready: it would do so again.
        """
        reason = death(self._end())
        if not any(worker.started for worker in self.workers):
            tail = self.workers[0].output_tail()
            raise RuntimeError(f"the worker processes ended by themselves: {reason}{tail}")
        for worker in self.workers:
            worker.lose(f"the process that starts the workers ended: {reason}")
        self._start()

    def _start(self) -> None:
        """Start the first process, with a line from it to each worker's end here."""
        with ExitStack() as theirs:
            lines = [socket.socketpair() for _ in self.workers]
            ends = [theirs.enter_context(line[1]).fileno() for line in lines]
            outputs = [worker.output.fileno() for worker in self.workers]
            self._process = subprocess.Popen(
                command(ends, outputs, self._preload),
                env=self._environment,
                pass_fds=[*ends, *outputs],
                stdin=subprocess.DEVNULL,
                stdout=outputs[0],
                stderr=outputs[0],
                start_new_session=True,
            )
        for worker, line in zip(self.workers, lines, strict=True):
            worker.listen(Connection(line[0].detach(), writable=False))

    def _end(self) -> int:
        """Kill whatever there is of the group, and return the first process's return code."""
        if self._process.returncode is None:
            # Not yet reaped: no other process has got its number.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()


def _output() -> BinaryIO:
    """Make a file for a worker's output; it has no name, so nothing of it is left behind."""
    output = tempfile.TemporaryFile("w+b", buffering=0)
    # Written to at its end, wherever that is after the parent emptied it.
    fcntl.fcntl(output, fcntl.F_SETFL, fcntl.fcntl(output, fcntl.F_GETFL) | os.O_APPEND)
    return output


def start_workers(builders: int | None = None, runners: int = 1) -> WorkerGroup:
    """Start the workers of a tuning: those that measure, and others that compile, one a usable CPU.

    They import TVM meanwhile; who starts them before importing it here saves that time.
    """
    return WorkerGroup(runners + (builders or min(usable_cpus(), _MOST_BUILDERS)))
