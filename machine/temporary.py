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


def new_folder() -> str:
    """Make a folder, and remove those of processes that were killed before they could.

    Raises
    ------
    InputError
        It cannot be made.
    """
    try:
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            match = re.fullmatch(rf"{_PREFIX}(\d+)-.*", folder.name)
            if match and folder.is_dir() and not is_running(int(match[1])):
                shutil.rmtree(folder, ignore_errors=True)
        return tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
    except OSError as error:
        raise InputError(
            f"cannot make a folder for temporary files: {error}; set TMPDIR to a folder where you may write"
        ) from error


def is_running(process: int) -> bool:
    """Tell whether there is a process of this number."""
    with contextlib.suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True
