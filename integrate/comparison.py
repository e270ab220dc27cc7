"""Before and after: whether two ways to run a model give the same outputs, and which is faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from ..machine.errors import InputError
from ..machine.target import as_target
from ..tuning.measuring.verdict import compare
from .lowering.choice import FALLBACK, Choice
from .lowering.functions import prim_funcs
from .model import Model
from .package import Inputs, Package, build_package, filled

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


@dataclass(frozen=True)
class Comparison:
    """Two packages of one model, run in turn.

    Parameters
    ----------
    outputs : tuple of OutputCheck
        Whether the second computes what the first does.
    before_s, after_s : float
        Median seconds of one inference.
    """

    outputs: tuple[OutputCheck, ...]
    before_s: float
    after_s: float

    @property
    def ok(self) -> bool:
        """Whether all outputs are equal within the tolerance."""
        return all(check.ok for check in self.outputs)

    @property
    def speedup(self) -> float:
        """How many times faster the second is."""
        return self.before_s / self.after_s


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


def compare_packages(
    before: Package, after: Package, inputs: Inputs | None = None, *, rounds: int = 5, number: int = 1
) -> Comparison:
    """Run two packages of one model on the same inputs, in turn, so that both see the same machine.

    Parameters
    ----------
    before, after : Package
        With the same inputs and outputs.
    inputs : mapping, optional
        By name; random ones if left out.
    rounds : int
        How often each is timed.
    number : int
        Inferences averaged in one round.
    """
    if before.inputs != after.inputs:
        raise InputError(f"the packages take different inputs: {before.inputs} and {after.inputs}")
    given = inputs or {s.name: a for s, a in zip(before.inputs, filled(before.inputs), strict=True)}
    outputs = compare_outputs(after.run(given), before.run(given))
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for package, found in zip((before, after), seconds, strict=True):
            found.append(float(package.time(given, number=number, repeat=1)["median_s"]))
    return Comparison(outputs, median(seconds[0]), median(seconds[1]))


def unscheduled_package(model: Model, target: Any = "host") -> Package:
    """Compile a model with its plain loop nests: slow, and right for comparison."""
    target = as_target(target)
    mod = model.prepared(target)
    choices = [Choice(name, FALLBACK, "none", "unscheduled on purpose") for name, _ in prim_funcs(mod)]
    return build_package(model, mod, target, choices)
