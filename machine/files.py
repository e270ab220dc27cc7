"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .errors import InputError


@contextmanager
def written_aside(path: Path) -> Iterator[IO[str]]:
    """Write a text file aside; it takes its name at the end, and what had that name before is replaced.

    Raises
    ------
    InputError
        The file cannot be written; nothing of it is left behind.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("x", encoding="utf-8") as file:
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
