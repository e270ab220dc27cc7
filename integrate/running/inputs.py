"""The inputs of a model: those that a caller gives, checked, or made ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...machine.arrays import array_dtype, as_numpy
from ...machine.errors import InputError, unknown_name
from ...machine.signature import ArgSpec

FILL_MODES = ("random", "zeros", "ones")
"""What inputs that are not given hold."""

Inputs = Mapping[str, Any]
"""Arrays by the names of the model's inputs: NumPy's, torch's, TVM's, or any with DLPack."""

Specs = Sequence[ArgSpec]


def filled(specs: Specs, fill: str = "random") -> list[np.ndarray]:
    """Make inputs.

    Random ones are the same every time: floating-point values uniform in [-1, 1), and integers 0 or 1, which
    a model can take for token numbers, masks and positions alike.

    Raises
    ------
    InputError
        There is no such way to fill.
    """
    if fill not in FILL_MODES:
        raise InputError(f"fill must be one of {', '.join(FILL_MODES)}: {fill!r}")
    if fill == "random":
        rng = np.random.default_rng(0)
        return [_random(rng, spec) for spec in specs]
    return [np.full(spec.shape, fill == "ones", array_dtype(spec.dtype)) for spec in specs]


def named(specs: Specs, inputs: Inputs) -> list[np.ndarray]:
    """Return inputs in the model's order, if they are all there and fit.

    Raises
    ------
    InputError
        One is missing, unknown, or of another shape or dtype.
    """
    names = [spec.name for spec in specs]
    for name in inputs:
        if name not in names:
            raise unknown_name("input", name, names)
    missing = [name for name in names if name not in inputs]
    if missing:
        raise InputError(f"the model needs all of its inputs: {', '.join(missing)} missing")
    return [_checked(spec, inputs[spec.name]) for spec in specs]


def called_with(specs: Specs, arrays: Sequence[Any], by_name: Inputs) -> dict[str, Any]:
    """Return the inputs of a call by name: the first ones by position, the others by name.

    Raises
    ------
    InputError
        There are too many, or one is given in both ways.
    """
    names = [spec.name for spec in specs]
    if len(arrays) > len(names):
        raise InputError(f"the model takes {len(names)} inputs ({', '.join(names)}): found {len(arrays)}")
    given = dict(zip(names, arrays, strict=False))
    twice = [name for name in by_name if name in given]
    if twice:
        raise InputError(f"input {twice[0]} is given twice: by position and by name")
    return {**given, **by_name}


def _random(rng: np.random.Generator, spec: ArgSpec) -> np.ndarray:
    dtype = array_dtype(spec.dtype)
    if dtype.kind in "iub":
        return rng.integers(0, 2, spec.shape).astype(dtype)
    return rng.uniform(-1.0, 1.0, spec.shape).astype(dtype)


def _checked(spec: ArgSpec, array: Any) -> np.ndarray:
    try:
        found = as_numpy(array)
    except InputError as error:
        raise InputError(f"input {spec.name}: {error}") from None
    if found.shape != spec.shape or found.dtype.name != spec.dtype:
        raise InputError(
            f"input {spec.name} must be {spec.dtype} of shape {spec.shape}: "
            f"found {found.dtype.name} of shape {found.shape}"
        )
    return found
