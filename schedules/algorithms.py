"""Other algorithms for the same result: how a schedule begins with one, and how its trace says so.

A schedule changes the order of a computation, never what is computed. Where another algorithm needs fewer
operations, the function is first put into that algorithm's form. The name of the form is a note in the trace,
so that a trace replayed on the original function begins with the same form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import signature
from typing import Any

from tvm import s_tir

from ..machine.errors import InputError
from .analysis import root_block
from .forms import (
    attention,
    buffered_squares,
    channels_last,
    flat_pixels,
    flat_rows,
    grouped,
    im2col,
    interpolated,
    left_pixels,
    lines,
    parted_sums,
    pooled,
    repeated,
    separable,
    shared_keys,
    short_rows,
    skewed_squares,
    squares,
    swapped,
    whole_rows,
    widened,
    winograd,
)

_NOTE = "tunesmith.algorithm."
_NOTED = re.compile(re.escape(_NOTE) + r"(\w+)")
_NAMED = re.compile(r"([a-z][a-z0-9_]*?)((?:_[1-9]\d{0,5}(?:_(?:0|[1-9]\d{0,5}))*)?)", re.ASCII)

ALGORITHMS: dict[str, Callable[..., Any]] = {
    "winograd": winograd.restate,
    "channels_last": channels_last.restate,
    "flat_pixels": flat_pixels.restate,
    "flat_rows": flat_rows.restate,
    "grouped": grouped.restate,
    "im2col": im2col.restate,
    "whole_rows": whole_rows.restate,
    "whole_values": whole_rows.restate_with_values,
    "short_rows": short_rows.restate,
    "separable": separable.restate,
    "left_pixels": left_pixels.restate,
    "lines": lines.restate,
    "interpolated": interpolated.restate,
    "parted_sums": parted_sums.restate,
    "pooled": pooled.restate,
    "attention": attention.restate,
    "padded_attention": attention.restate,  # the names in traces from before scores were bounded,
    "padded_keys": attention.restate,  # and from before columns were padded too
    "shared_keys": shared_keys.restate,
    "repeated": repeated.restate,
    "squares": squares.restate,
    "buffered_squares": buffered_squares.restate,
    "skewed_squares": skewed_squares.restate,
    "swapped": swapped.restate,
    "widened": widened.restate,
}
"""Functions from a PrimFunc and numbers to another with the same parameters and result, by name.

An algorithm is named together with its numbers, if it has any: ``winograd_4``, ``im2col``. One in the form of
another comes after it: ``channels_last_16__winograd_4``.
"""

THEN = "__"
"""What is between the names of two."""


def begin(func: Any, algorithm: str) -> s_tir.Schedule:
    """Return a schedule of a function in the form of an algorithm, noted as the first step of its trace."""
    sch = s_tir.Schedule(_form(algorithm)(func))
    sch.annotate(root_block(sch), _NOTE + algorithm, 1)
    return sch


def _form(algorithm: str) -> Callable[[Any], Any]:
    """Return the function that puts another into the form of an algorithm, or of one in that of another."""
    first, *others = algorithm.split(THEN, 1)
    if others:
        outer, inner = _form(first), _form(others[0])
        return lambda func: inner(outer(func))
    found = _NAMED.fullmatch(algorithm)
    restate = ALGORITHMS.get(found[1]) if found else None
    numbers = [int(number) for number in found[2].split("_")[1:]] if found else []
    wanted = list(signature(restate).parameters.values())[1:] if restate else []
    if restate is None or len(numbers) < sum(each.default is each.empty for each in wanted):
        raise InputError(f"the trace begins with an algorithm that is unknown here: {algorithm}")
    if len(numbers) > len(wanted):
        raise InputError(f"the trace begins with an algorithm that has not so many numbers: {algorithm}")
    return lambda func: restate(func, *numbers)


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
    form = _form(noted[1])
    try:
        return form(func)
    except InputError as error:
        raise InputError(
            f"the trace begins with the algorithm {noted[1]}, which does not fit: {error}"
        ) from None
