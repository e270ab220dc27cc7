"""A package's file, checked from the outside in, and what it holds made ready to run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...machine.arrays import array_dtype, as_tensor
from ...machine.errors import InputError, last_line
from ...machine.runtime import load_library
from ...machine.temporary import new_folder
from .archive import (
    LIBRARY,
    MANIFEST,
    WEIGHTS,
    manifest_of_any_format,
    mapped,
    members,
    require_checksum,
    require_seal,
)
from .manifest import Contents, Manifest, StoredTensor, read_manifest, require_this_format
from .requirements import require_runnable


def read_package(path: str | Path) -> tuple[Any, list[Any], Manifest]:
    """Check a package and load its library.

    Weights stay in the file and are read as they are used: replace a package that is in use by another file
    (as an export does); do not write into it.

    Returns
    -------
    Module
        The loaded library.
    list of Tensor
        The weights.
    Manifest
        What it says about itself.

    Raises
    ------
    InputError
        There is no such file; it is no package, is damaged, or cannot run on this machine.
    """
    with _opened(path) as file:
        return _load(file, str(path))


def package_manifest(path: str | Path) -> Manifest:
    """Return what a package says about itself; nothing of it is loaded.

    Raises
    ------
    InputError
        There is no such file; it is no package, or is damaged.
    """
    with _opened(path) as file:
        _, _, manifest, _ = _described(file, str(path))
        return manifest


@contextmanager
def _opened(path: str | Path) -> Iterator[IO[bytes]]:
    if not Path(path).is_file():
        raise InputError(f"no such package: {path}")
    try:
        with Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _described(file: IO[bytes], source: str) -> tuple[np.ndarray, dict[str, slice], Manifest, Contents]:
    """Return a file's bytes, where its members are, and what the manifest says of them."""
    try:
        found = members(file)
        data = mapped(file)
        require_seal(data, found)
    except InputError as error:
        require_this_format(manifest_of_any_format(file), source)
        raise InputError(f"not a tunesmith package, or a damaged one: {source}: {error}") from None
    text = data[found[MANIFEST]].tobytes().decode("utf-8", errors="replace")
    return data, found, *read_manifest(text, source)


def _load(file: IO[bytes], source: str) -> tuple[Any, list[Any], Manifest]:
    data, found, manifest, contents = _described(file, source)
    require_runnable(manifest, source)
    code, values = data[found[LIBRARY]], data[found[WEIGHTS]]
    try:
        require_checksum(code, contents.library, LIBRARY)
        require_checksum(values, contents.weights, WEIGHTS)
        weights = [as_tensor(_stored(values, tensor)) for tensor in contents.tensors]
    except InputError as error:
        raise InputError(f"a damaged package: {source}: {error}") from None
    return _loaded(code, source), weights, manifest


def _stored(values: np.ndarray, tensor: StoredTensor) -> np.ndarray:
    """Return a weight where it lies."""
    element = array_dtype(tensor.dtype)
    if element.hasobject:
        raise InputError(f"a weight is of dtype {element}")
    count = int(np.prod(tensor.shape, dtype=object))
    part = values[tensor.offset : tensor.offset + count * element.itemsize]
    if part.nbytes != count * element.itemsize:
        raise InputError(f"a weight of shape {tensor.shape} is not all there")
    return part.view(element).reshape(tensor.shape)


def _loaded(code: np.ndarray, source: str) -> Any:
    """Load the library from a file of its own, which may go then: it stays mapped."""
    folder = new_folder()
    try:
        path = Path(folder, LIBRARY)
        code.tofile(path)
        return load_library(path)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"cannot load the code of {source} from {folder}: {last_line(error)}; "
            "set TMPDIR to a folder with room, from which programs may run"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
