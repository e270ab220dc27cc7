"""Which schedule a function got, and why. A package carries it to where nothing of tuning is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...machine.errors import InputError

RECORD, DEFAULT, FALLBACK, REPLACED, GIVEN = "record", "default", "fallback", "replaced", "given"
"""Where a schedule comes from."""

EXTERNAL = "external"
"""The schedule of a function that is not TVM's: none that could be changed here."""

EXTERNAL_PREFIX = "tunesmith.external."
"""What the symbols of such functions begin with, where they were put in another's place."""


@dataclass(frozen=True)
class Choice:
    """The schedule that one function of a model got, and why.

    Parameters
    ----------
    function : str
        Its name in the model.
    origin : str
        ``record``; ``default``, the first rule that applies; ``fallback``, where a better one failed;
        ``replaced``, where another function was put in its place that stays as it is; or ``given``, where
        it came with the model that way.
    schedule : str
        The rule, or the record's space; ``none`` if every rule failed; ``external`` of no PrimFunc.
    reason : str
        The record's id and time for people, what failed before, and what it was replaced by.
    flops : int
        Operations of one call.
    bytes_moved : int
        The least traffic of one call: each argument once.
    dtype : str
        The output's type.
    record : str
        The record's id; empty where it comes from none.
    recorded_s : float or None
        Median seconds of one call, as the record has it.
    calls : int
        How often one inference calls it.
    workload : str
        The hash of its computation, which records are found by; empty where it is none that can be tuned.
    """

    function: str
    origin: str
    schedule: str
    reason: str
    flops: int = 0
    bytes_moved: int = 0
    dtype: str = ""
    record: str = ""
    recorded_s: float | None = None
    calls: int = 1
    workload: str = ""


def name_in_model(symbol: str) -> str:
    """Return the name of the function of a model that the symbol of an external one stands for."""
    known = symbol.startswith(EXTERNAL_PREFIX)
    return symbol.removeprefix(EXTERNAL_PREFIX).partition(".")[2] if known else symbol


def require_one_file(name: str, choices: Sequence[Choice]) -> None:
    """Check that a package holds all that its model needs.

    Raises
    ------
    InputError
        Some functions were replaced by functions of this process.
    """
    outside = [c for c in choices if (c.origin, c.schedule) == (REPLACED, EXTERNAL)]
    if outside:
        told = "; ".join(f"{c.function} was {c.reason}" for c in outside)
        raise InputError(
            f"{name} cannot be written as one file: {told}, which lives in this process only; compile the "
            "model in the program that has the function, or put a PrimFunc there"
        )
