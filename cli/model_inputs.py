"""Inputs of a model on the command line: files of arrays, and images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import is_zipfile

import click

from ..machine.errors import InputError, unknown_name

if TYPE_CHECKING:
    import numpy as np

    from ..integrate.running.images import Normalization
    from ..machine.signature import ArgSpec

inputs_option = click.option(
    "-i", "--inputs", "inputs_path", metavar="FILE.npz", help="Inputs by name.  [default: filled]"
)


def read_inputs(
    words: Sequence[str], specs: Sequence[ArgSpec], resize: str, normalize: str | None
) -> dict[str, np.ndarray]:
    """Read inputs: each word is a file of arrays by name, or ``[NAME=]FILE``, an array or an image.

    Raises
    ------
    InputError
        A file is not there or of another kind, or an input is unknown or given twice.
    """
    from ..integrate.running.images import parse_normalization

    normalization = parse_normalization(normalize) if normalize else None
    found: dict[str, np.ndarray] = {}
    for word in words:
        given = _given(word, specs, resize, normalization)
        twice = [name for name in given if name in found]
        if twice:
            raise InputError(f"input {twice[0]} is given twice")
        found |= given
    return found


def _given(
    word: str, specs: Sequence[ArgSpec], resize: str, normalization: Normalization | None
) -> dict[str, np.ndarray]:
    """Read what one word stands for."""
    from ..integrate.running.images import read_image

    if word.endswith(".npz") or is_zipfile(word):
        return read_arrays(word)
    spec, path = _named_file(word, specs)
    array = _read_array(path) if path.endswith(".npy") else read_image(path, spec, resize, normalization)
    return {spec.name: array}


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """Read the arrays of an .npz file; nothing in it is executed.

    Raises
    ------
    InputError
        There is no such file, or it is no .npz file of plain arrays.
    """
    import numpy as np

    if not Path(path).is_file():
        raise InputError(f"no such file of inputs: {path}")
    if not is_zipfile(path):
        raise InputError(f"{path} is no .npz file; write one with numpy.savez")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # NumPy fails in many ways on a damaged file
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path} is no .npz file of arrays ({reason}); write one with numpy.savez"
        ) from error


def _named_file(word: str, specs: Sequence[ArgSpec]) -> tuple[ArgSpec, str]:
    """Return the input that a word names, or the only one, and the file."""
    by_name = {spec.name: spec for spec in specs}
    name, _, path = word.partition("=")
    if path and name in by_name:
        return by_name[name], path
    if path and not Path(word).exists():
        raise unknown_name("input", name, by_name)
    if len(specs) != 1:
        raise InputError(f"say which input {word} is for: NAME={word}, of {', '.join(by_name)}")
    return specs[0], word


def _read_array(path: str) -> np.ndarray:
    """Read the array of an .npy file."""
    import numpy as np

    if not Path(path).is_file():
        raise InputError(f"no such file of inputs: {path}")
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except Exception as error:  # NumPy fails in many ways on a damaged file
        raise InputError(
            f"{path} is no .npy file ({' '.join(str(error).split())}); write one with numpy.save"
        ) from error
