"""The file of a package: one uncompressed zip with the compiled library, its weights and its manifest.

A zip has its directory at the end and a checksum for each member, so that a truncated or an altered file is
found before anything in it is loaded.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm

from ..machine.errors import InputError
from .manifest import Manifest, read_manifest

_MANIFEST = "manifest.json"
_LIBRARY = "net.so"
_WEIGHTS = "weights.params"
_MEMBERS = {_MANIFEST, _LIBRARY, _WEIGHTS}


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
    """Write a package beside its place and move it there, so that no half-written file is ever seen."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        library, parameters, archive = (Path(folder, name) for name in (_LIBRARY, _WEIGHTS, "package"))
        executable.export_library(str(library))
        tvm.runtime.save_param_dict_to_file({str(i): w for i, w in enumerate(weights)}, str(parameters))
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as package:
            package.writestr(_MANIFEST, manifest.to_json())
            package.write(library, _LIBRARY)
            package.write(parameters, _WEIGHTS)
        os.replace(archive, path)


def read_package(path: str | Path) -> tuple[Any, list[Any], Manifest]:
    """Check a package and load its library.

    Returns
    -------
    tvm.runtime.Module
        The loaded library.
    list of tvm.runtime.Tensor
        The weights.
    Manifest
        What it says about itself.

    Raises
    ------
    InputError
        There is no such file; it is no package, is damaged, or cannot run on this machine.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no such package: {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            return _load(archive, str(path))
    except zipfile.BadZipFile as error:
        raise InputError(f"not a tunesmith package, or a damaged one: {path}: {error}") from None


def _load(archive: zipfile.ZipFile, source: str) -> tuple[Any, list[Any], Manifest]:
    names = archive.namelist()
    if set(names) != _MEMBERS or len(names) != len(_MEMBERS):
        strange = sorted(set(names) - _MEMBERS)
        found = f"it holds {strange[0]!r}" if strange else "it is incomplete"
        raise InputError(f"not a tunesmith package: {source}: {found}")
    manifest = read_manifest(archive.read(_MANIFEST).decode("utf-8", errors="replace"), source)
    params = tvm.runtime.load_param_dict(bytearray(archive.read(_WEIGHTS)))
    weights = [params[str(i)] for i in range(len(params))]
    with tempfile.TemporaryDirectory(prefix="tunesmith-") as folder:
        # The file may go once it is loaded: the library stays mapped.
        return tvm.runtime.load_module(archive.extract(_LIBRARY, folder)), weights, manifest
