"""A transposition whose output's rows begin anywhere: past the caches it is written in squares that do, too.

The rows of a square begin at other distances from a line each, known where the first of them begins at a
line. So of each column of the square some elements are taken a square further on, which are those that the
lines have and the square has not. The columns of 4, where an output's rows are 4 n + 3 long::

    x0a x0b x0c x0d                x0a x4b x4c x4d      x0a x1a x2a x3a      0: x0a x1a x2a x3a
    x1a x1b x1c x1d   x4a ...      x1a x1b x5c x5d      x4b x1b x2b x3b      1: x1b x2b x3b x4b
    x2a x2b x2c x2d   x5a ...  ->  x2a x2b x2c x6d  ->  x4c x5c x2c x3c  ->  2: x2c x3c x4c x5c
    x3a x3b x3c x3d   ...          x3a x3b x3c x3d      x4d x5d x6d x3d      3: x3d x4d x5d x6d

That is a blend as rows are loaded, a square transposed in registers, and a rotation of each of its rows. What
is left at a row's ends is transposed in ordinary squares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, gcd, prod
from typing import Any

from tvm import tirx

from ...machine.errors import InputError
from ...machine.streaming_store import streams
from ..passes.row_prefetch import fetch
from ..restatement import block_nest, in_order, serial_loop, vector_start, with_nests
from ..transposition import moved, shuffled, transposed
from .squares import (
    PARTS,
    Transposition,
    find_transposition,
    input_rows,
    moved_place,
    square,
    stored_past_caches,
)


@dataclass(frozen=True)
class Skew:
    """Where the lines of an output's rows lie, of a transposition in squares of so many lanes.

    Parameters
    ----------
    found, lanes
        As of `squares.squares_nest`.
    """

    found: Transposition
    lanes: int

    @property
    def strides(self) -> list[int]:
        """The elements of the output from one place to the next along each axis."""
        return [prod(self.found.extents[n + 1 :]) for n in range(len(self.found.extents))]

    @cached_property
    def shifts(self) -> list[int]:
        """How much further a row's line begins than that of the square's first row."""
        return [-n * self.strides[self.found.row] % self.lanes for n in range(self.lanes)]

    @property
    def reach(self) -> int:
        """The most elements of a row before the first of its lines that a square has."""
        *others, _ = self.strides
        count = self.found.extents[self.found.row]
        others[self.found.row] *= count if count % self.lanes else self.lanes
        return max(self.shifts) + self.lanes - gcd(self.lanes, *others)

    @property
    def count(self) -> int:
        """Skewed squares along a row."""
        return max(0, self.found.extents[-1] - self.reach) // self.lanes

    @property
    def heads(self) -> int:
        """Ordinary squares at the beginning of a row."""
        return ceil(self.reach / self.lanes)

    @property
    def tails(self) -> int:
        """Ordinary squares at the end of a row."""
        return ceil((self.found.extents[-1] - self.count * self.lanes) / self.lanes)


def can_restate(found: Transposition, lanes: int) -> bool:
    """Tell whether squares do not divide the output's rows, which have lines to write past the caches."""
    uneven = lanes <= min(found.sides) and found.extents[-1] % lanes > 0
    return streams(found.dtype) and uneven and Skew(found, lanes).count > 0


def restate(func: Any, lanes: int, squares: int, stretch: int, ahead: int = 0) -> Any:
    """Put skewed squares in the place of a transposition's elements.

    Parameters
    ----------
    func, lanes
        As of `forms.squares.restate`.
    squares : int
        The most squares in a block along the output's rows.
    stretch : int
        The most squares in a block along the input's rows.
    ahead : int
        1: a block also asks for what the next one reads.

    Raises
    ------
    InputError
        There is no such copy: a trace may name a form that is not one of its function.
    """
    found = find_transposition(func)
    if found is None or not can_restate(found, lanes):
        raise InputError(f"the function is no transposition in skewed squares of {lanes}")
    return with_nests(func, [_parts_nest(Skew(found, lanes), squares, stretch, bool(ahead))])


def _parts_nest(skew: Skew, squares: int, stretch: int, ahead: bool) -> Any:
    found, lanes, rows, length = skew.found, skew.lanes, *skew.found.sides[::-1]
    column = len(found.axes) - 1
    parts = ceil(skew.count / squares)
    part, block = ceil(skew.count / parts), min(stretch, rows // lanes)
    others = [n for n in range(column) if n != found.row]
    counts = [*(found.extents[n] for n in others), parts, ceil(rows / (block * lanes))]

    def body(at: list[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        *outer, which, number = at
        elsewhere = dict(zip(others, outer, strict=True))
        across, along, begin = (tirx.Var(name, "int64") for name in ("across", "along", "begin"))

        def place(number: Any, furthest: Any) -> list[Any]:
            first = vector_start(number, rows, block * lanes) + across * lanes
            return [(elsewhere | {found.row: first, column: furthest})[n] for n in range(column + 1)]

        before = sum(p * stride for p, stride in zip(place(number, 0), skew.strides, strict=True))
        further = (vector_start(which, skew.count, part) + along) * lanes
        steps, notes = _skewed_square(skew, place(number, begin))
        fetches = _fetches(skew, place(number + 1, begin)) if ahead else []
        lines = [tirx.Bind(begin, further + tirx.floormod(-before, lanes)), *fetches, *steps]

        def ends(part: int, count: int, first: int) -> list[Any]:
            if not count:
                return []
            end = tirx.Var("end", "int64")
            left, _ = square(found, place(number, end * lanes + first), lanes)
            return [tirx.IfThenElse(which == part, serial_loop(end, count, in_order(left)), None)]

        head, tail = ends(0, skew.heads, 0), ends(parts - 1, skew.tails, length - skew.tails * lanes)
        whole_lines = serial_loop(along, part, in_order(lines))
        return [serial_loop(across, block, in_order([whole_lines, *head, *tail]))], notes

    return block_nest(PARTS, counts, (found.input, found.output), body)


def _skewed_square(skew: Skew, place: Sequence[Any]) -> tuple[list[Any], Mapping[str, Any]]:
    """Return the statements that write the lines of a square's rows, and their notes."""
    found, lanes, shifts = skew.found, skew.lanes, skew.shifts
    near, far = (input_rows(found, place, range(n, n + lanes), lanes) for n in (0, lanes))
    blended = [
        shuffled(rows, [k + lanes * (shift > n) for k, shift in enumerate(shifts)])
        if n < max(shifts)
        else rows[0]
        for n, rows in enumerate(zip(near, far, strict=True))
    ]
    steps, turned = transposed(blended)
    rotated = [
        shuffled([row], [(n + shift) % lanes for n in range(lanes)])
        for row, shift in zip(turned, shifts, strict=True)
    ]
    moves = [{found.row: n, len(place) - 1: shift} for n, shift in enumerate(shifts)]
    targets = [moved_place(found, place, each) for each in moves]
    stored, notes = stored_past_caches(found, targets, [moved(row, found.dtype) for row in rotated])
    return [*steps, *stored], notes


def _fetches(skew: Skew, place: Sequence[Any]) -> list[Any]:
    """Return the statements that ask for the rows that a square reads and the one before it does not.

    Of each its last element: the line of the first is also one of the squares' beside it.
    """
    found, lanes = skew.found, skew.lanes
    moves = [{found.row: lanes - 1, len(place) - 1: lanes * any(skew.shifts) + n} for n in range(lanes)]
    places = [moved_place(found, place, move) for move in moves]
    return [fetch(found.input[tuple(found.read_for(each))]) for each in places]
