"""How large the weights of a model are."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import tvm
from tvm import relax

from ..machine.arrays import array_dtype


class Parameters(NamedTuple):
    """How many elements the weights have, and how many bytes they take."""

    elements: int
    bytes: int


def count_parameters(main: Any, weights: Mapping[str, Any]) -> Parameters:
    """Count the constants of a function and the weights beside it; each that is used twice counts once."""
    found = {tensor.data_ptr(): tensor for tensor in weights.values()} | _constants(main)
    sizes = [prod(int(d) for d in tensor.shape) for tensor in found.values()]
    widths = [array_dtype(str(tensor.dtype)).itemsize for tensor in found.values()]
    return Parameters(sum(sizes), sum(size * width for size, width in zip(sizes, widths, strict=True)))


def _constants(main: Any) -> dict[int, Any]:
    """Return the arrays in a function by their address; single numbers are no weights."""
    found: dict[int, Any] = {}

    def note(expr: Any) -> None:
        if isinstance(expr, tvm.ir.GenericConst) and isinstance(expr.value, tvm.runtime.Tensor):
            if expr.value.shape:
                found[expr.value.data_ptr()] = expr.value

    relax.analysis.post_order_visit(main, note)
    return found
