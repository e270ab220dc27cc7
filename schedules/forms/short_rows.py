"""Rows of a few elements, as many at a time as a vector has lanes: each vector holds a column of these rows.

What is computed row by row, as a softmax of 3 classes, then has no vector that a row does not fill, and no
sum over lanes. Rows are brought into columns in registers, and back (`vector_columns`); where blocks of rows
do not divide them, the last one reaches back::

    for blocks of 16 rows:
        x0, x1, x2 = the columns of 3 vectors of x
        row_max = max(x0, x1, x2)
        e0, e1, e2 = exp(x0 - row_max), exp(x1 - row_max), exp(x2 - row_max)
        ...
        3 vectors of y = the rows of the columns y0, y1, y2
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from math import ceil, prod
from typing import Any

from tvm import tirx
from tvm.sym import Analyzer
from tvm.tirx import IterVar

from ...machine.errors import InputError
from ...machine.streaming_store import IMPORT_LLVM, streaming_store
from ..analysis import gathered_buffers
from ..expressions import are_just, chooses, index_variables, loads_of
from ..nests.rows import find_rows
from ..restatement import (
    block_nest,
    held_block,
    nests,
    replaced,
    vector_start,
    whole,
    with_nests,
    without_buffers,
)
from .flat_indices import flat
from .vector_columns import columns_of_rows, rows_of_columns
from .vector_expressions import FUNCTIONS, NO_VECTORS, can_evaluate, evaluated

BLOCK = "short_rows"
"""The block of the form: as many rows as lanes an iteration."""


@dataclass(frozen=True)
class ShortRows:
    """A function that works row by row: its steps read elements of a row, and what they computed of it.

    Parameters
    ----------
    blocks : tuple of SBlock
        Its steps, the last of which writes the output.
    lead : tuple of int
        The axes that count rows: the first of each step's.
    dtype : str
        The type that is reduced in.
    """

    blocks: tuple[Any, ...]
    lead: tuple[int, ...]
    dtype: str

    @property
    def rows(self) -> int:
        """How many there are."""
        return prod(self.lead)

    @property
    def output(self) -> Any:
        """The buffer of the output."""
        return self.blocks[-1].body.buffer

    @property
    def inputs(self) -> list[Any]:
        """The buffers that are read row by row, but for those between steps."""
        written = {block.body.buffer for block in self.blocks}
        read = [load.source for block in self.blocks for load in self.loads_by_row(block)]
        return list(dict.fromkeys(buffer for buffer in read if buffer not in written))

    @property
    def length(self) -> int:
        """Elements of the longest row that is read or written."""
        return max(self.columns(buffer) for buffer in (*self.inputs, self.output))

    def columns(self, buffer: Any) -> int:
        """Count the elements of a row of a buffer."""
        return prod(self.row_shape(buffer))

    def row_shape(self, buffer: Any) -> list[int]:
        """Return the extents of a row of a buffer."""
        return [int(extent) for extent in buffer.shape[len(self.lead) :]]

    def loads_by_row(self, block: Any) -> list[Any]:
        """Return what a step loads that depends on the row."""
        rows = {axis.var for axis in self._row_axes(block)}
        return [load for load in loads_of(block.body.value) if index_variables(load.indices) & rows]

    def fits(self, block: Any) -> bool:
        """Tell whether a step is one of these: each of its loads is of its row, or the same for all rows."""
        store, axes = block.body, self._row_axes(block)
        if not isinstance(store, tirx.BufferStore) or chooses(store) or gathered_buffers(store):
            return False
        loads, rows = loads_of(store.value), [axis.var for axis in axes]
        of_row = [(store.buffer, store.indices), *((x.source, x.indices) for x in self.loads_by_row(block))]
        return (
            can_evaluate(store.value, FUNCTIONS)
            and all(axis.iter_type == IterVar.DataPar for axis in axes)
            and tuple(int(axis.dom.extent) for axis in axes) == self.lead
            and NO_VECTORS not in {str(buffer.dtype) for buffer in (store.buffer, *(x.source for x in loads))}
            and all(self._is_of_row(rows, *each) for each in of_row)
        )

    def _row_axes(self, block: Any) -> Sequence[Any]:
        return [*block.iter_vars][: len(self.lead)]

    def _is_of_row(self, rows: list[Any], buffer: Any, indices: Any) -> bool:
        rank = len(self.lead)
        leads = tuple(map(int, buffer.shape[:rank])) == self.lead and are_just(indices[:rank], rows)
        return leads and not index_variables(indices[rank:]) & {*rows}


@lru_cache(maxsize=16)  # a rule's space asks, and then the restatement
def find_short_rows(func: Any) -> ShortRows | None:
    """Find the rows of an unscheduled function, of any length, if all it does can be done with columns."""
    nest = find_rows(func)
    if nest is None or not nest.contiguous or any(neighbours > 1 for _, neighbours in nest.rows):
        return None
    blocks = tuple(held_block(each) for each in nests(func))
    reduction = next(block for block in blocks if block.name_hint in nest.reductions)
    lead = tuple(int(v.dom.extent) for v in reduction.iter_vars if v.iter_type == IterVar.DataPar)
    found = ShortRows(blocks, lead, nest.dtype)
    whole_rows = blocks[-1].name_hint == nest.output and lead and all(map(found.fits, blocks))
    return found if whole_rows else None


def restate(func: Any, lanes: int, streamed: int) -> Any:
    """Put steps on whole columns in the place of a function's elements.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_short_rows` finds rows.
    lanes : int
        Rows at a time, a power of two; there are at least so many.
    streamed : int
        1 writes the output past the caches; its elements are then a multiple of ``lanes``.

    Raises
    ------
    InputError
        There are no such rows: a trace may name a form that is not one of its function.
    """
    found = find_short_rows(func)
    if found is None or lanes > found.rows or lanes & (lanes - 1):
        raise InputError(f"the function does not work on {lanes} rows or more, each by itself")
    if streamed and found.rows * found.columns(found.output) % lanes:
        raise InputError(f"the elements of the function's output are no multiple of {lanes}")
    between = {
        step: tirx.decl_buffer((found.columns(step), lanes), step.dtype, str(block.name_hint))
        for block, step in ((block, block.body.buffer) for block in found.blocks)
    }

    def body(at: list[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        block = _Block(found, vector_start(at[0], found.rows, lanes), lanes)
        for buffer in found.inputs:
            block.load(buffer)
        for step in found.blocks:
            block.compute(step, between[step.body.buffer])
        notes = block.store(bool(streamed))
        return block.statements, notes

    *read, _ = func.params
    nest = block_nest(BLOCK, [ceil(found.rows / lanes)], (*read, found.output), body)
    return with_nests(without_buffers(func), [nest], [*between.values()])


class _Block:
    """As many rows as lanes, from a first one on: the statements that compute them, and what columns are."""

    def __init__(self, found: ShortRows, first: Any, lanes: int) -> None:
        self.found, self.first, self.lanes = found, first, lanes
        self.statements: list[Any] = []
        self.columns: dict[Any, list[Any]] = {}

    def load(self, buffer: Any) -> None:
        """Read the rows of a buffer."""
        read = (buffer.vload(place, f"{buffer.dtype}x{self.lanes}") for place in self._places(buffer))
        self.columns[buffer] = columns_of_rows([*map(self._named, read)], self.lanes, self._named)

    def compute(self, step: Any, between: Any) -> None:
        """Compute a step, into a buffer whose elements LLVM keeps in registers.

        TVM would take a name of what a polynomial computes for the polynomial, and its own names for others'.
        """
        columns = self.columns[step.body.buffer] = []
        for number, value in enumerate(self._values(step)):
            place = [whole(number), whole(0)]
            self.statements.append(between.vstore(place, value))
            columns.append(between.vload(place, f"{between.dtype}x{self.lanes}"))

    def store(self, streamed: bool) -> Mapping[str, Any]:
        """Write the output; return the notes of the block."""
        output = self.found.output
        rows = rows_of_columns(self.columns[output], self.lanes, self._named)
        written = zip(self._places(output), rows, strict=True)
        if not streamed:
            self.statements += [output.vstore(place, row) for place, row in written]
            return {}
        stored, code = streaming_store(self.lanes, str(output.dtype))
        self.statements += [tirx.Evaluate(stored(output, place[-1], row)) for place, row in written]
        return {IMPORT_LLVM: code}

    def _named(self, vector: Any) -> Any:
        """Compute a vector once, whatever reads it."""
        name = tirx.Var("vector", vector.ty.dtype)
        self.statements.append(tirx.Bind(name, vector))
        return name

    def _places(self, buffer: Any) -> list[list[Any]]:
        """Return where the vectors of the rows of a buffer begin: all elements are one axis, the last."""
        length, zeros = self.found.columns(buffer), [whole(0)] * (len(buffer.shape) - 1)
        return [[*zeros, self.first * length + number * self.lanes] for number in range(length)]

    def _values(self, step: Any) -> Iterator[Any]:
        """Yield the columns that a step computes, in order."""
        axes = step.iter_vars[len(self.found.lead) :]
        kept = [axis for axis in axes if axis.iter_type == IterVar.DataPar]
        reduced = [axis for axis in axes if axis.iter_type != IterVar.DataPar]
        for place in _points(kept):
            value = None if step.init is None else tirx.Broadcast(step.init.value, self.lanes)
            for further in _points(reduced):
                at_place = replaced(step.body.value, {**place, **further})
                value = evaluated(at_place, partial(self._column, step.body.buffer, value))
            yield value

    def _column(self, result: Any, before: Any, load: Any) -> Any:
        """Return what a step loads, as a vector; ``before``: its result until now."""
        if load.source.same_as(result):
            return before
        if load.source not in self.columns:  # the same for all rows
            return tirx.Broadcast(load, self.lanes)
        indices = load.indices[len(self.found.lead) :]
        place = [int(Analyzer().simplify(index)) for index in indices]
        return self.columns[load.source][flat(self.found.row_shape(load.source), 0, place)]


def _points(axes: Sequence[Any]) -> Iterator[dict[Any, Any]]:
    """Yield the places along some axes, in order."""
    for point in product(*(range(int(axis.dom.extent)) for axis in axes)):
        yield dict(zip((axis.var for axis in axes), map(whole, point), strict=True))
