"""Windows that slide over zeros around their data: along which axes, and where the data lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.sym import detect_linear_equation
from tvm.tirx import IntImm, IterVar

from .analysis import index_variables


@dataclass(frozen=True)
class PaddedAxis:
    """An axis along which a window slides: elements from ``low`` to before ``high`` are data, others zeros.

    Parameters
    ----------
    tap : int
        The loop over the taps; the element under one grows with it, by the dilation, and with the output.
    low, high : int
        Where the data lie.
    """

    tap: int
    low: int
    high: int


def padded_axes(copy: Any, block: Any, indices: Sequence[Any]) -> tuple[PaddedAxis, ...]:
    """Return the axes along which windows slide over zeros.

    Parameters
    ----------
    copy : SBlock
        What may pad the data.
    block : SBlock
        What sums its windows.
    indices : sequence of PrimExpr
        Where it reads the data: an index for each dimension.
    """
    loops = {v.var: position for position, v in enumerate(block.iter_vars)}
    found = ((_tap(block, indices[dimension]), low, high) for dimension, low, high in _data_ranges(copy))
    return tuple(PaddedAxis(loops[tap], low, high) for tap, low, high in found if tap is not None)


def _tap(block: Any, index: Any) -> Any:
    """Return the axis over taps in an index; None where that does not grow evenly with all it uses."""
    used = [v for v in block.iter_vars if v.var in index_variables([index])]
    taps = [v.var for v in used if v.iter_type == IterVar.CommReduce and int(v.dom.extent) > 1]
    steps = detect_linear_equation(index, [v.var for v in used])
    grows = bool(steps) and all(isinstance(step, IntImm) and int(step) > 0 for step in steps[:-1])
    return taps[0] if len(taps) == 1 and grows else None


def _data_ranges(copy: Any) -> list[tuple[int, int, int]]:
    """Return from where to where a padded copy's elements are data, for each dimension that has padding.

    Empty where it pads with something else than zeros, or by other conditions.
    """
    value = copy.body.value
    if str(getattr(getattr(value, "op", None), "name", "")) != "prim.if_then_else":
        return []
    condition, _, padding = value.args
    if getattr(padding, "value", None) != 0:
        return []
    whole = {v.var: (0, int(v.dom.extent)) for v in copy.iter_vars}
    ranges = dict(whole)
    for part in _conjunction(condition):
        if isinstance(part, tirx.LE) and isinstance(part.a, IntImm) and _is_one_of(part.b, ranges):
            ranges[part.b] = (int(part.a), ranges[part.b][1])
        elif isinstance(part, tirx.LT) and isinstance(part.b, IntImm) and _is_one_of(part.a, ranges):
            ranges[part.a] = (ranges[part.a][0], int(part.b))
        else:
            return []
    indices = enumerate(copy.body.indices)
    return [(d, *ranges[i]) for d, i in indices if _is_one_of(i, ranges) and ranges[i] != whole[i]]


def _is_one_of(index: Any, variables: Any) -> bool:
    return isinstance(index, tirx.Var) and index in variables


def _conjunction(condition: Any) -> Iterator[Any]:
    if isinstance(condition, tirx.And):
        yield from _conjunction(condition.a)
        yield from _conjunction(condition.b)
    else:
        yield condition
