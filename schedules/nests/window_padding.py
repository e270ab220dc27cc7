"""Zeros in windows: around their data, along which axes and where; in a weight, for which outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from tvm import s_tir, tirx
from tvm.sym import detect_linear_equation
from tvm.tirx import IntImm, IterVar

from ..analysis import block_of
from ..expressions import conjunction, index_variables, is_choice, loads_of


@dataclass(frozen=True)
class PaddedAxis:
    """An axis along which a window slides: elements from ``low`` to before ``high`` are data, others zeros.

    Parameters
    ----------
    extent : int
        How long it is, zeros included.
    tap : int
        The loop over the taps.
    row : int or None
        The loop over the outputs, if there are several.
    low, high : int
        Where the data lie.
    dilation, stride : int
        Elements from one tap to the next, and from one output to the next.
    taps, rows : int
        How many there are.
    """

    extent: int
    tap: int
    row: int | None
    low: int
    high: int
    dilation: int
    stride: int
    taps: int
    rows: int

    def share(self, mr: int) -> float:
        """Return the share of all taps under which tiles of mr outputs meet data."""
        tiles = range(0, self.rows, mr)
        met = sum(self._met(tile * self.stride, (mr - 1) * self.stride) for tile in tiles)
        return met / (len(tiles) * self.taps)

    def read(self, mr: int) -> tuple[int, int]:
        """Return from where to where tiles of mr outputs read, under the taps under which they meet data."""
        reach = (mr - 1) * self.stride
        return max(0, self.low - reach), min(self.extent, self.high + reach)

    def _met(self, first: int, reach: int) -> int:
        """Count the taps under which outputs meet data, the first of which is at an element."""
        start = max(0, ceil((self.low - first - reach) / self.dilation))
        return max(0, min(self.taps, ceil((self.high - first) / self.dilation)) - start)


@dataclass(frozen=True)
class FilledAxis:
    """An axis of a window along which a weight is filled up with zeros.

    Parameters
    ----------
    tap : int
        The loop over the taps.
    zeros : tuple of int
        How many zeros come before the taps, for each column.
    """

    tap: int
    zeros: tuple[int, ...]

    def shared_zeros(self, nr: int) -> list[int]:
        """Return the zeros that all columns of a panel have, for each panel of nr columns."""
        return [min(self.zeros[at : at + nr]) for at in range(0, len(self.zeros), nr)]


def filled_axes(
    sch: s_tir.Schedule, name: str | None, block: Any, index: Sequence[Any], column: int
) -> tuple[FilledAxis, ...]:
    """Return the axes along which a weight is filled up with zeros, beyond its last tap, which is read first.

    Of a transposed convolution whose stride does not divide its kernel, each phase is columns of its own,
    with as many taps as meet it.

    Parameters
    ----------
    sch : Schedule
        The schedule.
    name : str or None
        The block that lays the weight out anew, of one that may be filled up: an index of that falls with a
        tap, and depends else on the column.
    block : SBlock
        What sums.
    index : sequence of Var
        Where that reads the weight.
    column : int
        The loop over the columns.
    """
    sources = sch.get_producers(sch.get_sblock(name)) if name else []
    if len(sources) != 1:
        return ()
    source, made = sch.get(sources[0]), block_of(sch, str(name))
    loops = {v.var: position for position, v in enumerate(block.iter_vars)}
    reads = [load for load in loads_of(made.body) if load.source.same_as(source.writes[0].source)]
    at = dict(zip((v.var for v in made.iter_vars), (loops.get(i) for i in index), strict=True))
    along = next((v for v in made.iter_vars if at[v.var] == column), None)
    if len(reads) != 1 or along is None:
        return ()
    columns = int(along.dom.extent)
    found = []
    for dimension, low, high in _data_ranges(source):
        where = reads[0].indices[dimension]
        used = index_variables([where]) - {along.var}
        taps = [v for v in made.iter_vars if v.var in used]
        step = detect_linear_equation(where, [v.var for v in taps])
        if low != 0 or len(taps) != 1 or at[taps[0].var] is None:
            continue
        if not step or not isinstance(step[0], IntImm) or int(step[0]) > -1:
            continue
        firsts = _values(step[1], {along.var: np.arange(columns)})
        if firsts is not None:
            counts = np.clip((firsts - high) // -int(step[0]) + 1, 0, int(taps[0].dom.extent))
            counts = np.broadcast_to(counts, columns)
            found.append(FilledAxis(at[taps[0].var], tuple(int(count) for count in counts)))
    return tuple(found)


_OPERATIONS: dict[type, Any] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
}


def _values(expression: Any, variables: dict[Any, Any]) -> Any:
    """Evaluate an expression of integers for all values of its variables; None for other operations."""
    if isinstance(expression, IntImm):
        return int(expression)
    if isinstance(expression, tirx.Var):
        return variables.get(expression)
    if type(expression) not in _OPERATIONS:
        return None
    a, b = (_values(operand, variables) for operand in (expression.a, expression.b))
    return None if a is None or b is None else _OPERATIONS[type(expression)](a, b)


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
    found = (_padded(copy, block, indices, *data) for data in _data_ranges(copy))
    return tuple(axis for axis in found if axis is not None)


def _padded(
    copy: Any, block: Any, indices: Sequence[Any], dimension: int, low: int, high: int
) -> PaddedAxis | None:
    """Return the axis of a dimension; None where its index does not grow evenly with an output and a tap."""
    index, length = indices[dimension], int(copy.writes[0].source.shape[dimension])
    loops = {v.var: position for position, v in enumerate(block.iter_vars)}
    used = [v for v in block.iter_vars if v.var in index_variables([index])]
    taps = [v for v in used if v.iter_type == IterVar.CommReduce and int(v.dom.extent) > 1]
    rows = [v for v in used if v not in taps]
    steps = detect_linear_equation(index, [v.var for v in (*taps, *rows)])
    if len(taps) != 1 or len(rows) > 1 or not steps:
        return None
    if not all(isinstance(step, IntImm) and int(step) > 0 for step in steps[:-1]):
        return None
    dilation, stride = int(steps[0]), int(steps[1]) if rows else 0
    row, outputs = (loops[rows[0].var], int(rows[0].dom.extent)) if rows else (None, 1)
    extent = int(taps[0].dom.extent)
    tap = loops[taps[0].var]
    return PaddedAxis(length, tap, row, low, high, dilation, stride, extent, outputs)


def _data_ranges(copy: Any) -> list[tuple[int, int, int]]:
    """Return from where to where a padded copy's elements are data, for each dimension that has padding.

    Empty where it pads with something else than zeros, or by other conditions.
    """
    value: Any = getattr(copy.body, "value", None)
    value = value.value if isinstance(value, tirx.Cast) else value  # what is padded is widened then
    if not is_choice(value):
        return []
    condition, _, padding = value.args
    if getattr(padding, "value", None) != 0:
        return []
    whole = {v.var: (0, int(v.dom.extent)) for v in copy.iter_vars}
    ranges = dict(whole)
    for part in conjunction(condition):
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
