"""Folders for temporary files, one for each process that needs them; nothing of one that was killed stays."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from .errors import InputError

_PREFIX = "tunesmith-"
# The process's number, when it started where the system tells, and what makes the folder's name its own.
_NAME = re.compile(rf"{_PREFIX}(\d+)-(?:(\d+)-)?[^-]+")


def new_folder() -> str:
    """Make a folder, and remove those of processes that were killed before they could.

    Raises
    ------
    InputError
        It cannot be made.
    """
    try:
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            match = _NAME.fullmatch(folder.name)
            if match and folder.is_dir() and not is_running(int(match[1]), match[2]):
                shutil.rmtree(folder, ignore_errors=True)
        process = os.getpid()
        return tempfile.mkdtemp(prefix="-".join([f"{_PREFIX}{process}", *_start_of(process), ""]))
    except OSError as error:
        raise InputError(
            f"cannot make a folder for temporary files: {error}; set TMPDIR to a folder where you may write"
        ) from error


def is_running(process: int, started: str | None = None) -> bool:
    """Tell whether there is a process of this number, and if it is said when it started, that one.

    Numbers are used again, for threads as well: of 32768, after seconds on a busy machine.
    """
    with contextlib.suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return not started or _start_of(process) in ([], [started])


def _start_of(process: int) -> list[str]:
    """Return when a process started, in ticks since the machine did; nothing where no system tells."""
    with contextlib.suppress(OSError):
        # The second field, in brackets, is the name of the program, with spaces or more; this is the 22nd.
        return [Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]]
    return []
