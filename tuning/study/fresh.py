"""Programs of a study: each runs in a Python process of its own from start to end, and answers in JSON."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...machine.temporary import new_folder
from ..processes.worker_process import death, die_with

Job = Mapping[str, Any]
"""What a program is asked for, or answers: what JSON can hold."""

_WATCH_EVERY_S = 0.25
_TAIL = 500


def run_fresh(
    module: str,
    job: Job,
    environment: Mapping[str, str] | None = None,
    watch: Callable[[int], object] | None = None,
) -> tuple[dict[str, Any], float]:
    """Run a module of this folder as a program and wait for its end.

    Parameters
    ----------
    module : str
        The module's name; it calls `answer` when it is run.
    job : mapping
        What it is asked for.
    environment : mapping, optional
        Variables to set besides this process's own.
    watch : callable, optional
        Called with the process id four times a second. The program's stderr is then this one's; without
        it, whatever the program prints is shown only if it fails.

    Returns
    -------
    answer : dict
        What it answered.
    seconds : float
        From before the process was started until after it had ended.

    Raises
    ------
    RuntimeError
        The program failed.
    """
    with study_folder() as folder, tempfile.TemporaryFile("w+b") as output:
        start = time.perf_counter()
        words = [json.dumps(job), str(folder / "answer"), str(os.getpid())]
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.{module}", *words],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if watch else output,
            start_new_session=True,
        )
        _wait(process, watch)
        seconds = time.perf_counter() - start
        if process.returncode:
            raise RuntimeError(f"{module} failed: {death(process.returncode)}{_tail(output)}")
        return json.loads((folder / "answer").read_text()), seconds


def answer(run: Callable[[Job], Job]) -> None:
    """Be a program: do the job of the command line and write what comes of it; end with the study."""
    job, path, parent = sys.argv[1:]
    die_with(int(parent))
    Path(path).write_text(json.dumps(run(json.loads(job))))
    # As the command does it.
    gc.freeze()


@contextlib.contextmanager
def study_folder() -> Iterator[Path]:
    """Make a folder for temporary files and remove it at the end."""
    folder = Path(new_folder())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], watch: Callable[[int], object] | None) -> None:
    """Wait for the end; where this is interrupted, nothing that was started goes on."""
    try:
        while watch is not None and process.poll() is None:
            watch(process.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_WATCH_EVERY_S)
        process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def _tail(output: Any) -> str:
    """Return the last of what a program printed, on one line."""
    output.seek(0)
    text = " ".join(output.read().decode(errors="replace").split())
    return f"; its last output: {text[-_TAIL:]}" if text else ""
