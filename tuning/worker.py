"""Worker processes: where candidates are built and run, so that one that hangs or crashes costs one trial.

A group of workers starts as one process that imports TVM once (0.8 s) and forks each worker. When a
worker dies, that first process tells why and forks another one: 10 ms instead of a new start. All of them
end with their parent, however it ends, and none sees the terminal's Ctrl-C: the parent decides.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NoReturn

from ..machine.process import usable_cpus

Task = Callable[[Any], Any]
"""A function of a module that the worker can import; its argument and result are picklable."""

# Starting imports TVM on a machine that may be busy.
_START_TIMEOUT_S = 120.0
_TAIL_BYTES = 2000
# LLVM and libraries that are loaded again and again leak: a worker that has grown by this much is replaced.
_GROWTH_BYTES = 1 << 30
_PR_SET_PDEATHSIG = 1
# Runs go one at a time: more builders than these would wait for them.
_MOST_BUILDERS = 8


class WorkerTimeout(Exception):
    """A task took longer than its timeout; the worker was killed and is ready again."""


class WorkerCrash(Exception):
    """The process that did a task died; the message names the signal or exit status and its last output."""


class WorkerError(Exception):
    """A task raised an exception; the message is its type and text."""


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
    """

    def __init__(
        self,
        count: int,
        environment: Mapping[str, str] | None = None,
        preload: tuple[str, ...] = ("tvm", "tunesmith.tuning.tasks"),
    ) -> None:
        with ExitStack() as theirs:
            channels = [socket.socketpair() for _ in range(count)]
            # Temporary files have no name: nothing of them is left behind.
            outputs = [tempfile.TemporaryFile("w+b", buffering=0) for _ in range(count)]
            pipes = [theirs.enter_context(channel[1]).fileno() for channel in channels]
            files = [output.fileno() for output in outputs]
            for file in files:
                # Written to at its end, wherever that is after the parent emptied it.
                fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_APPEND)
            # What is importable here shall be importable there.
            path = os.pathsep.join(p for p in sys.path if p)
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *map(_listed, (pipes, files, [os.getpid()], preload))],
                env={**os.environ, "PYTHONPATH": path, **(environment or {})},
                pass_fds=[*pipes, *files],
                stdin=subprocess.DEVNULL,
                stdout=outputs[0],
                stderr=outputs[0],
                start_new_session=True,
            )
        self.workers = [
            Worker(Connection(channel[0].detach()), output, self._process)
            for channel, output in zip(channels, outputs, strict=True)
        ]

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
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for worker in self.workers:
            worker.close()

    def wait_until_ready(self) -> None:
        """Wait until no worker is starting: that would disturb a measurement."""
        for worker in self.workers:
            worker.wait_until_ready()


def start_workers(builders: int | None = None) -> WorkerGroup:
    """Start the workers of a tuning: one that measures, and others that compile, one a usable CPU.

    They import TVM meanwhile; who starts them before importing it here saves that time.
    """
    return WorkerGroup(1 + (builders or min(usable_cpus(), _MOST_BUILDERS)))


class Worker:
    """One worker, seen from the process that gives it tasks; made by its group."""

    def __init__(self, connection: Connection, output: BinaryIO, group: subprocess.Popen[bytes]) -> None:
        self.connection = connection
        self._output, self._group = output, group
        self._process = self._bytes_at_first = 0
        self._ready = False

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
        self.wait_until_ready()
        if self.resident_bytes() > self._bytes_at_first + _GROWTH_BYTES:
            self.restart()
            self.wait_until_ready()
        os.ftruncate(self._output.fileno(), 0)
        self.connection.send((task, payload))

    def receive(self, timeout_s: float) -> Any:
        """Wait for the result of the task sent."""
        if not self.connection.poll(timeout_s):
            self.restart()
            raise WorkerTimeout(f"no answer within {timeout_s:g} s")
        kind, value = self._next_message()
        if kind == "died":
            self._ready = False
            raise WorkerCrash(value + self._output_tail())
        self._bytes_at_first = self._bytes_at_first or self.resident_bytes()
        if kind == "error":
            raise WorkerError(value)
        return value

    def wait_until_ready(self) -> None:
        """Wait until the worker has started or started again; after that it waits without using a CPU."""
        while not self._ready:
            if not self.connection.poll(_START_TIMEOUT_S):
                raise RuntimeError(f"no worker started in {_START_TIMEOUT_S:g} s{self._output_tail()}")
            kind, value = self._next_message()
            if kind == "ready":
                self._process, self._bytes_at_first, self._ready = value, 0, True

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

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, number)

    def restart(self) -> None:
        """Put a fresh process in the place of the one that does the work."""
        self.wait_until_ready()
        self._ready = False
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Close this end; the group ends the process."""
        self.connection.close()
        self._output.close()

    def _next_message(self) -> tuple[str, Any]:
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError) as error:
            status = self._group.wait()
            tail = self._output_tail()
            raise RuntimeError(f"the worker processes ended by themselves: {death(status)}{tail}") from error
        return kind, value

    def _output_tail(self) -> str:
        """Return the last of what the worker printed, on one line for messages."""
        size = os.fstat(self._output.fileno()).st_size
        tail = os.pread(self._output.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        text = " ".join(tail.decode(errors="replace").split())
        return f"; its last output: {text}" if text else ""


def _listed(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


def death(returncode: int) -> str:
    """Say how a process ended, from its return code (negative: a signal)."""
    if returncode >= 0:
        return f"exit status {returncode}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-returncode).name
    return f"signal {-returncode}"


def main(arguments: list[str]) -> None:
    """Run as the first process of a group: import, fork the workers, and fork again whichever dies."""
    pipes, files, (parent,) = ([int(n) for n in text.split(",")] for text in arguments[:3])
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_all([name for name in arguments[3].split(",") if name])
    missing = [(Connection(pipe), file) for pipe, file in zip(pipes, files, strict=True)]
    running: dict[int, tuple[Connection, int]] = {}
    while True:
        for connection, file in missing:
            running[_forked(connection, file)] = (connection, file)
        process, status = os.waitpid(-1, 0)
        missing = [running.pop(process)]
        try:
            missing[0][0].send(("died", death(os.waitstatus_to_exitcode(status))))
        except OSError:
            return


def _forked(connection: Connection, output: int) -> int:
    """Fork a worker and return its process id."""
    here = os.getpid()
    process = os.fork()
    if process == 0:
        _die_with(here)
        os.dup2(output, 1)
        os.dup2(output, 2)
        _work(connection)
    return process


def _import_all(modules: list[str]) -> None:
    from ..machine.process import keep_torch_out

    if "tvm" in modules:
        keep_torch_out()
    for name in modules:
        importlib.import_module(name)


def _die_with(parent: int) -> None:
    """Ask Linux to kill this process when its parent ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _work(connection: Connection) -> NoReturn:
    """Do tasks until the parent closes the pipe."""
    connection.send(("ready", os.getpid()))
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            os._exit(0)
        try:
            task, payload = pickle.loads(message)
            answer = ("done", task(payload))
        except Exception as error:
            traceback.print_exc()
            answer = ("error", f"{type(error).__name__}: {error}")
        connection.send(answer)


if __name__ == "__main__":
    main(sys.argv[1:])
