"""Before and after: whether two ways to run a model give the same outputs, and which is faster."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from ...machine.errors import InputError
from .inputs import Inputs, filled
from .outputs import OutputCheck, compare_outputs
from .package import Package


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
