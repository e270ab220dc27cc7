"""Whether two ways to run a model give the same outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...machine.errors import InputError
from ...tuning.measuring.verdict import compare

# float32, some fifty layers deep, summed in another order: relative to each output and its root mean square.
RELATIVE_TOLERANCE = 1e-4


@dataclass(frozen=True)
class OutputCheck:
    """The comparison of one output.

    Parameters
    ----------
    output : str
        Its name.
    ok : bool
        Whether every element is within the tolerance.
    max_error : float or None
        ``max |got - want| / (|want| + rms(want))``; None where nothing could be compared.
    message : str
        What is wrong and where.
    """

    output: str
    ok: bool
    max_error: float | None
    message: str


def compare_outputs(
    got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray], tolerance: float = RELATIVE_TOLERANCE
) -> tuple[OutputCheck, ...]:
    """Compare the outputs of a model with the expected ones, by name.

    Raises
    ------
    InputError
        They are not the same outputs.
    """
    shapes = [{name: array.shape for name, array in side.items()} for side in (got, want)]
    if shapes[0] != shapes[1]:
        raise InputError(f"the outputs differ in name or shape: {shapes[0]} and {shapes[1]}")
    return tuple(_check(name, got[name], want[name], tolerance) for name in want)


def _check(name: str, got: np.ndarray, want: np.ndarray, tolerance: float) -> OutputCheck:
    verdict = compare(got, want, tolerance)
    return OutputCheck(name, verdict.ok, verdict.max_error, verdict.message)
