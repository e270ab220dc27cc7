"""The processes of a worker group: the first one, which imports and forks, and the workers.

``python -m`` runs this module; who gives the workers their tasks is `worker.WorkerGroup`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


def command(lines: Iterable[int], outputs: Iterable[int], modules: Iterable[str]) -> list[str]:
    """Return the command that starts the first process of a group.

    Parameters
    ----------
    lines : iterable of int
        For each worker the file descriptor on which to tell what becomes of it.
    outputs : iterable of int
        For each worker that of the file its output goes to.
    modules : iterable of str
        What to import before the first fork.
    """
    return [sys.executable, "-m", __name__, *map(_listed, (lines, outputs, [os.getpid()], modules))]


def _listed(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


def death(returncode: int) -> str:
    """Say how a process ended, from its return code (negative: a signal)."""
    if returncode >= 0:
        return f"exit status {returncode}"
    if returncode == -signal.SIGKILL:
        return "SIGKILL (perhaps out of memory)"
    with contextlib.suppress(ValueError):
        return signal.Signals(-returncode).name
    return f"signal {-returncode}"


def main(arguments: list[str]) -> None:
    """Run as the first process of a group: import, fork the workers, and fork again whichever dies."""
    lines, outputs, (parent,) = ([int(n) for n in text.split(",")] for text in arguments[:3])
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_all([name for name in arguments[3].split(",") if name])
    tell = [Connection(line, readable=False) for line in lines]
    running: dict[int, int] = {}
    missing = list(range(len(tell)))
    with contextlib.suppress(OSError):
        while True:
            for worker in missing:
                running[_forked(worker, outputs[worker], tell)] = worker
            process, status = os.waitpid(-1, 0)
            # What a module started may end here too.
            missing = [running.pop(process)] if process in running else []
            for worker in missing:
                tell[worker].send(("died", death(os.waitstatus_to_exitcode(status))))


def _forked(worker: int, output: int, tell: Sequence[Connection]) -> int:
    """Fork a worker, hand the parent a channel to it, and return its process id."""
    # A channel of its own: no task meant for the one before, and no half of one, can reach it.
    theirs, mine = socket.socketpair()
    here = os.getpid()
    process = os.fork()
    if process == 0:
        die_with(here)
        theirs.close()
        for line in tell:
            line.close()
        os.dup2(output, 1)
        os.dup2(output, 2)
        _work(Connection(mine.detach()))
    with theirs, mine:
        tell[worker].send(("started", process))
        send_handle(tell[worker], theirs.fileno(), None)
    return process


def _import_all(modules: list[str]) -> None:
    from ...machine.process import import_tvm

    gc.disable()
    if "tvm" in modules:
        import_tvm()
    for name in modules:
        importlib.import_module(name)
    # What was imported stays: looking through it in every worker would find nothing and copy its pages.
    gc.freeze()
    gc.enable()


def die_with(parent: int) -> None:
    """Ask Linux to kill this process when its parent ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _work(connection: Connection) -> NoReturn:
    """Do tasks until the parent closes the channel."""
    with contextlib.suppress(OSError):
        # Where memory runs out, Linux shall end the candidate and nothing else.
        Path("/proc/self/oom_score_adj").write_text("1000")
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
