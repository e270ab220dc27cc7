"""Files that are there whole or not at all."""

from __future__ import annotations

import fcntl
import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .errors import InputError
from .temporary import is_running


@contextmanager
def written_aside(path: Path) -> Iterator[IO[str]]:
    """Write a text file aside; it takes its name at the end, and what had that name before is replaced.

    Raises
    ------
    InputError
        The file cannot be written; nothing of it is left behind.
    """
    with _aside(path, "x", "utf-8") as file:
        yield file


@contextmanager
def bytes_written_aside(path: Path) -> Iterator[IO[bytes]]:
    """Write a file of bytes as `written_aside` writes text; it can be read and changed meanwhile."""
    with _aside(path, "x+b") as file:
        yield file


@contextmanager
def _aside(path: Path, mode: str, encoding: str | None = None) -> Iterator[IO[Any]]:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _remove_leftovers(path)
        with aside.open(mode, encoding=encoding) as file:
            try:
                with suppress(OSError):  # some file systems have no locks: nothing is removed there
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(aside, path)
            except BaseException:
                aside.unlink()
                raise
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def _remove_leftovers(path: Path) -> None:
    """Remove what processes that were killed have written aside for this file."""
    for found in path.parent.glob(f".{glob.escape(path.name)}.*"):
        number = found.name.removeprefix(f".{path.name}.")
        if not number.isdecimal() or found.is_symlink() or not found.is_file():
            continue
        # In another container its writer has a number that is none here, or ours: but it holds the lock.
        if int(number) == os.getpid() or not is_running(int(number)):
            with suppress(OSError), found.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.unlink()
