"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .errors import InputError


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
        with aside.open(mode, encoding=encoding) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(aside, path)
            except BaseException:
                aside.unlink()
                raise
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
