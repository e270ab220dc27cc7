"""Other algorithms for the same result: how a schedule begins with one, and how its trace says so.

A schedule changes the order of a computation, never what is computed. Where another algorithm needs fewer
operations, the function is first put into that algorithm's form. The name of the form is a note in the trace,
so that a trace replayed on the original function begins with the same form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import s_tir

from ..machine.errors import InputError
from . import winograd_form
from .analysis import root_block

_NOTE = "tunesmith.algorithm."
_NOTED = re.compile(re.escape(_NOTE) + r"(\w+)")

ALGORITHMS: dict[str, Callable[[Any], Any]] = {
    f"winograd_{m}": partial(winograd_form.restate, m=m) for m in winograd_form.POINTS
}
"""Functions from a PrimFunc to another with the same parameters and result, by the algorithm's name."""


def begin(func: Any, algorithm: str) -> s_tir.Schedule:
    """Return a schedule of a function in the form of an algorithm, noted as the first step of its trace."""
    sch = s_tir.Schedule(ALGORITHMS[algorithm](func))
    sch.annotate(root_block(sch), _NOTE + algorithm, 1)
    return sch


def has_algorithm(trace: str) -> bool:
    """Tell whether a trace begins with another algorithm."""
    return _NOTED.search(trace) is not None


def in_form(func: Any, trace: str) -> Any:
    """Return a function in the form of the algorithm that a trace begins with, as it is where there is none.

    Raises
    ------
    InputError
        The algorithm is unknown here, or not one for this function.
    """
    noted = _NOTED.search(trace)
    if noted is None:
        return func
    if noted[1] not in ALGORITHMS:
        raise InputError(f"the trace begins with an algorithm that is unknown here: {noted[1]}")
    try:
        return ALGORITHMS[noted[1]](func)
    except InputError as error:
        raise InputError(
            f"the trace begins with the algorithm {noted[1]}, which does not fit: {error}"
        ) from None
