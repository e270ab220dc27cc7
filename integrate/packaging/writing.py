"""Writing a package's file: checked before the work, linked elsewhere, put in place when it is whole."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...machine.errors import InputError, last_line
from ...machine.linking import export_library
from ...machine.temporary import new_folder
from ..lowering.choice import require_one_file
from .archive import LIBRARY, write_archive
from .manifest import Manifest


def require_writable(path: str | Path) -> Path:
    """Check that a file can be written before the work that makes its content.

    Raises
    ------
    InputError
        The folder does not exist or cannot be written, or the path is a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder; give a file name")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {path.parent}")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            return path
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another folder") from None


def write_package(path: Path, executable: Any, weights: Sequence[Any], manifest: Manifest) -> None:
    """Link the code and write the package; what has its name is replaced at the end, or not at all.

    Raises
    ------
    InputError
        The code cannot be linked, some of it is in this process only, or the file cannot be written.
    """
    require_one_file(manifest.name, manifest.choices)
    folder = new_folder()
    try:
        library = Path(folder, LIBRARY)
        try:
            export_library(executable, str(library))
        except (OSError, RuntimeError) as error:
            raise InputError(f"cannot link the code of {path} in {folder}: {last_line(error)}") from error
        write_archive(path, library, weights, manifest)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
