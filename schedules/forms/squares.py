"""A transposition as squares that are transposed in registers, for axes of any length.

Axes that stay next to each other are one. Where squares do not divide an axis, the last one reaches back::

    y[j, i] = x[i, j]                                                   # i < 100, j < 49

    for r < 7, c < 4:                                                   # squares of 16
        i0, j0 = min(16 r, 84), min(16 c, 33)
        16 vectors of x, from x[i0, j0] on, become 16 of y, from y[j0, i0] on

Elements that two squares share are written twice, with the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil, prod
from typing import Any

from tvm import tirx
from tvm.tirx import Var

from ...machine.errors import InputError
from ...machine.streaming_store import IMPORT_LLVM, streaming_store
from ..analysis import plain_copy
from ..passes.streaming import elements_before
from ..restatement import block_nest, vector_start, whole, with_nests
from ..transposition import moved, transposed

SQUARES = "squares"
"""The block of the form: one square an iteration, of other axes, rows of squares and columns of squares."""

PARTS = "parts"
"""That of forms with loops of their own: other axes, parts of the output's rows, and blocks of rows."""


@dataclass(frozen=True)
class Finish:
    """What becomes of the vectors of a transposition's output.

    Parameters
    ----------
    value : callable
        From a vector and the output's indices of its first element to what is stored there.
    read : tuple of Buffer
        What it reads.
    """

    value: Callable[[Any, Sequence[Any]], Any]
    read: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Transposition:
    """A copy whose input is contiguous along another axis than its output.

    Parameters
    ----------
    input, output : Buffer
        What is copied, and what it becomes.
    order : tuple of int
        The output's dimension of each of the input's.
    axes : tuple of tuple of int
        The output's dimensions longer than 1, in order; those that follow each other in the input too are
        together.
    """

    input: Any
    output: Any
    order: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]

    @property
    def dtype(self) -> str:
        """The elements' type."""
        return str(self.input.dtype)

    @property
    def extents(self) -> tuple[int, ...]:
        """How long the axes are."""
        return tuple(prod(int(self.output.shape[i]) for i in axis) for axis in self.axes)

    @property
    def row(self) -> int:
        """The axis along which the input is contiguous; the output is along the last."""
        last = next(i for i in reversed(self.order) if int(self.output.shape[i]) > 1)
        return next(n for n, axis in enumerate(self.axes) if last in axis)

    @property
    def sides(self) -> tuple[int, int]:
        """How long the axes are along which the output and the input are contiguous."""
        return self.extents[-1], self.extents[self.row]

    def indices(self, place: Sequence[Any]) -> list[Any]:
        """Return the output's indices of a place, which is given along the axes."""
        result: list[Any] = [whole(0)] * len(self.order)
        for axis, position in zip(self.axes, place, strict=True):
            for i in reversed(axis[1:]):
                extent = int(self.output.shape[i])
                result[i], position = position % extent, position // extent
            result[axis[0]] = position
        return result

    def read_for(self, indices: Sequence[Any]) -> list[Any]:
        """Return the input's indices of what has these in the output."""
        return [indices[i] for i in self.order]


@lru_cache(maxsize=16)  # a rule's space asks, and then the restatement
def find_transposition(func: Any) -> Transposition | None:
    """Find the one copy that a PrimFunc consists of, if its axes change places and the last is another."""
    block = plain_copy(func)
    if block is None:
        return None
    variables, load = [v.var for v in block.iter_vars], block.body.value
    if not all(isinstance(i, Var) for i in load.indices) or len(set(load.indices)) != len(variables):
        return None
    order = tuple(variables.index(i) for i in load.indices)
    found = transposition(load.source, block.body.buffer, order)
    return found if found.axes and found.row != len(found.axes) - 1 else None


def transposition(input: Any, output: Any, order: tuple[int, ...]) -> Transposition:
    """Return the copy of a buffer to another, whose dimension of each of the input's is in ``order``."""
    return Transposition(input, output, order, _axes(order, [int(extent) for extent in output.shape]))


def _axes(order: Sequence[int], extents: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the dimensions longer than 1, put together where one follows the other in both tensors."""
    follows = set(pairwise(i for i in order if extents[i] > 1))
    axes: list[tuple[int, ...]] = []
    for i in (i for i, extent in enumerate(extents) if extent > 1):
        if axes and (axes[-1][-1], i) in follows:
            axes[-1] += (i,)
        else:
            axes.append((i,))
    return tuple(axes)


def restate(func: Any, lanes: int, streamed: int) -> Any:
    """Put squares in the place of a transposition's elements.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_transposition` finds a copy.
    lanes : int
        Rows and columns of a square, at most the length of both its axes.
    streamed : int
        1 writes the output past the caches; its rows are then multiples of ``lanes``.

    Raises
    ------
    InputError
        There is no such copy: a trace may name a form that is not one of its function.
    """
    found = find_transposition(func)
    if found is None or lanes > min(found.sides) or (streamed and found.sides[0] % lanes):
        raise InputError(f"the function is no transposition that consists of squares of {lanes}")
    nest = squares_nest(found, lanes, streamed=bool(streamed))
    return with_nests(func, [nest])


def squares_nest(
    found: Transposition,
    lanes: int,
    *,
    name: str = SQUARES,
    streamed: bool = False,
    finish: Finish | None = None,
) -> Any:
    """Return the loop nest of a transposition in squares.

    Parameters
    ----------
    found : Transposition
        What is copied.
    lanes : int
        Rows and columns of a square, at most the length of both its axes.
    name : str
        The block's name.
    streamed : bool
        Whether the output is written past the caches; its rows are then multiples of ``lanes``.
    finish : Finish or None
        What becomes of each vector of the output before it is stored.
    """
    row, column = found.row, len(found.axes) - 1
    order = [n for n in range(column) if n != row] + [row, column]
    counts = [ceil(found.extents[n] / lanes) if n in (row, column) else found.extents[n] for n in order]

    def body(at: list[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        place = dict(zip(order, at, strict=True))
        for n in (row, column):
            place[n] = vector_start(place[n], found.extents[n], lanes)
        return square(found, [place[n] for n in range(column + 1)], lanes, streamed=streamed, finish=finish)

    read = [] if finish is None else finish.read
    return block_nest(name, counts, (found.input, *read, found.output), body)


def square(
    found: Transposition,
    place: Sequence[Any],
    lanes: int,
    *,
    streamed: bool = False,
    finish: Finish | None = None,
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the statements that transpose the square that begins at a place, and their notes."""
    steps, rows = turned_square(found, place, lanes)
    targets = [moved_place(found, place, {found.row: n}) for n in range(lanes)]
    if finish is not None:
        rows = [finish.value(row, there) for row, there in zip(rows, targets, strict=True)]
    if not streamed:
        return [*steps, *map(found.output.vstore, targets, rows)], {}
    stored, notes = stored_past_caches(found, targets, rows)
    return [*steps, *stored], notes


def turned_square(found: Transposition, place: Sequence[Any], lanes: int) -> tuple[Sequence[Any], list[Any]]:
    """Return the statements that transpose the square that begins at a place, and its rows as vectors."""
    steps, rows = transposed(input_rows(found, place, range(lanes), lanes))
    return steps, [moved(row, found.dtype) for row in rows]


def moved_place(found: Transposition, place: Sequence[Any], moves: Mapping[int, Any]) -> list[Any]:
    """Return the output's indices of what lies so much further than a place along some axes."""
    return found.indices([p + moves[n] if n in moves else p for n, p in enumerate(place)])


def input_rows(found: Transposition, place: Sequence[Any], numbers: Sequence[int], lanes: int) -> list[Any]:
    """Return vectors of the input, which lie so many places after one along the output's rows."""
    columns = [moved_place(found, place, {len(place) - 1: n}) for n in numbers]
    vector = f"{found.dtype}x{lanes}"
    return [moved(found.input.vload(found.read_for(there), vector)) for there in columns]


def stored_past_caches(
    found: Transposition, targets: Sequence[Sequence[Any]], rows: Sequence[Any]
) -> tuple[list[Any], Mapping[str, Any]]:
    """Return the statements that write vectors of the output past the caches, and their notes."""
    stored, code = streaming_store(len(rows), found.dtype)
    places = [elements_before(found.output, there) for there in targets]
    calls = [stored(found.output, *each) for each in zip(places, rows, strict=True)]
    return [tirx.Evaluate(call) for call in calls], {IMPORT_LLVM: code}
