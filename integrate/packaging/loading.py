"""A package's file, checked from the outside in, and what it holds made ready to run."""

from __future__ import annotations

import shutil
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
from .manifest import Manifest, StoredTensor, read_manifest, require_this_format
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
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no such package: {path}")
    try:
        with path.open("rb") as file:
            return _load(file, str(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _load(file: IO[bytes], source: str) -> tuple[Any, list[Any], Manifest]:
    try:
        found = members(file)
        data = mapped(file)
        require_seal(data, found)
    except InputError as error:
        require_this_format(manifest_of_any_format(file), source)
        raise InputError(f"not a tunesmith package, or a damaged one: {source}: {error}") from None
    text = data[found[MANIFEST]].tobytes().decode("utf-8", errors="replace")
    manifest, contents = read_manifest(text, source)
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
