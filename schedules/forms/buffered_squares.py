"""A transposition whose output's rows begin anywhere, by way of a buffer: it is written past the caches.

The columns of a square lie in the output at other distances from a line each. So many squares are transposed
into a buffer that stays in the cache, and its rows, parts of the output's, are written in whole lines from
their first on (`aligned_rows`)::

    for parts of i, blocks of j:
        for squares along i, squares along j:  16 vectors of x become 16 of a buffer
        for j: for i:  y[j, i] = buffer[j, i]                            # past the caches

Where parts or blocks do not divide an axis, the last reaches back, as squares do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from tvm import tirx
from tvm.tirx import ForKind

from ...machine.element import element_bits
from ...machine.errors import InputError
from ...machine.facts import line_elements
from ...machine.streaming_store import streams
from ..passes.aligned_rows import LINES_MARK
from ..passes.row_chunks import IN_ORDER_MARK
from ..passes.row_prefetch import fetch
from ..passes.streaming import STREAM_MARK
from ..restatement import block_nest, in_order, vector_start, whole, with_nests
from .flat_indices import flat, unflat
from .squares import PARTS, Transposition, find_transposition, moved_place, turned_square

# The ends of a part are masked vectors; of narrower types they are single elements, too many.
_LEAST_BITS = 32

# Rows of fewer lines would be ends for the most part.
_LEAST_LINES_OF_A_ROW = 16

# A smaller buffer LLVM 22 takes apart into registers, and breaks its own code.
_LEAST_LINES = 64
_WIDEST_SQUARES = 32


def can_restate(found: Transposition) -> bool:
    """Tell whether the output is written in lines: its rows are many of them, or follow each other."""
    line, rows = line_elements(found.dtype), found.extents[found.row]
    wide = found.extents[-1] >= _LEAST_LINES_OF_A_ROW * line
    long = (rows - rows % _WIDEST_SQUARES) * found.extents[-1] >= _LEAST_LINES * line
    bits = element_bits(found.dtype)
    return streams(found.dtype) and bits >= _LEAST_BITS and long and (wide or _has_rows_together(found))


def _has_rows_together(found: Transposition) -> bool:
    """Tell whether the rows of the output that a block has follow each other."""
    return found.row == len(found.axes) - 2


def restate(func: Any, lanes: int, squares: int, stretch: int, ahead: int = 0) -> Any:
    """Put buffered squares in the place of a transposition's elements.

    Parameters
    ----------
    func, lanes
        As of `forms.squares.restate`.
    squares : int
        Squares in a buffer along the output's rows, fewer than twice as many.
    stretch : int
        Squares in a buffer along the input's rows, or more, up to twice as many where there are.
    ahead : int
        1: while a block is written, what the next one reads is fetched.

    Raises
    ------
    InputError
        There is no such copy: a trace may name a form that is not one of its function.
    """
    found = find_transposition(func)
    if found is None or lanes > min(found.sides) or not can_restate(found):
        raise InputError(f"the function is no transposition by way of a buffer of squares of {lanes}")
    return with_nests(func, [_blocks(found, lanes, squares, stretch).nest(bool(ahead))])


def _blocks(found: Transposition, lanes: int, squares: int, stretch: int) -> _Blocks:
    row, column = found.row, len(found.axes) - 1
    length, count = found.extents[column], found.extents[row]
    # Parts of the same length, of many lines, of whole vectors unless there is one only.
    parts = max(1, length // max(squares * lanes, _LEAST_LINES_OF_A_ROW * line_elements(found.dtype)))
    part = length if parts == 1 else ceil(length / parts / lanes) * lanes
    least = ceil(_LEAST_LINES * line_elements(found.dtype) / part)
    blocks = _count_of_blocks(count, max(stretch * lanes, least), lanes)
    return _Blocks(found, lanes, part, ceil(count / blocks), parts, blocks)


def _count_of_blocks(rows: int, least: int, lanes: int) -> int:
    """Return how many blocks to cut rows into, of at least so many and at most twice: for the least work.

    The last block reaches back, and the last squares of each: what they share with others is done twice.
    """

    def work(blocks: int) -> int:
        block = ceil(rows / blocks)
        return blocks * (block + ceil(block / lanes) * lanes)

    return min(range(max(1, rows // least), ceil(rows / (2 * least)) - 1, -1), key=work)


@dataclass(frozen=True)
class _Blocks:
    """The blocks of a transposition that pass through a buffer.

    Parameters
    ----------
    found : Transposition
        What is copied.
    lanes : int
        Rows and columns of a square.
    part, block : int
        What a block has of the output's rows, and of how many of them.
    parts, blocks : int
        How many there are of both.
    """

    found: Transposition
    lanes: int
    part: int
    block: int
    parts: int
    blocks: int

    @property
    def line(self) -> int:
        """Elements in a line of memory."""
        return line_elements(self.found.dtype)

    @property
    def whole_rows(self) -> bool:
        """Whether the rows of a block follow each other, as one."""
        return self.part == self.found.extents[-1] and _has_rows_together(self.found)

    @property
    def pitch(self) -> int:
        """Elements from a row in the buffer to the next: a line more, or rows of a page collide."""
        return self.part if self.whole_rows else ceil(self.part / self.line) * self.line + self.line

    def nest(self, ahead: bool) -> Any:
        """Return the loops over all blocks; ``ahead``: what the next one reads is fetched."""
        others = [n for n in range(len(self.found.axes) - 1) if n != self.found.row]
        counts = [*(self.found.extents[n] for n in others), self.parts, self.blocks]

        def begin(at: Sequence[Any]) -> list[Any]:
            row, column = self.found.row, len(self.found.axes) - 1
            place = dict(zip([*others, column, row], at, strict=True))
            place[column] = vector_start(place[column], self.found.extents[column], self.part)
            place[row] = vector_start(place[row], self.found.extents[row], self.block)
            return [place[n] for n in range(column + 1)]

        def body(at: list[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
            first, *inner = at
            following = unflat(counts[1:], flat(counts[1:], first, inner) + 1)
            return self._block(begin(at), begin(following) if ahead else None), {}

        return block_nest(PARTS, counts, (self.found.input, self.found.output), body)

    def _block(self, place: Sequence[Any], later: Sequence[Any] | None) -> list[Any]:
        """Return the statements that transpose what begins at a place into a buffer, and write its rows.

        ``later``: where what is read next begins, which is fetched meanwhile; or None.
        """
        buffer, row = tirx.decl_buffer((self.block * self.pitch,), self.found.dtype, "turned"), _index("row")
        rows, length = (1, self.block * self.part) if self.whole_rows else (self.block, self.part)
        lines = length // self.line

        def written(n: Any) -> Any:
            at, column = (n // self.part, n % self.part) if self.whole_rows else (row, n)
            there = moved_place(self.found, place, {self.found.row: at, len(place) - 1: column})
            value = tirx.BufferLoad(buffer, [at * self.pitch + column])
            return tirx.BufferStore(self.found.output, value, there)

        def fetched(number: Any) -> list[Any]:
            return [] if later is None else [self._fetched(later, number)]

        # About as many lines are read as written: what is more is fetched before.
        first, more = _index("fetched"), self.part * ceil(self.block / self.line) - rows * lines
        before = [_loop(first, more, each) for each in fetched(rows * lines + first) if more > 0]
        copied = _in_lines(length, self.line, written, lambda step: fetched(row * lines + step))
        return [tirx.AllocBuffer(buffer), self._squares(place, buffer), *before, _loop(row, rows, copied)]

    def _squares(self, place: Sequence[Any], buffer: Any) -> Any:
        """Return the loops over the squares of a block."""
        across, along = _index("across"), _index("along")
        row = vector_start(across, self.block, self.lanes)
        start = vector_start(along, self.part, self.lanes)
        at = [p + {self.found.row: row, len(place) - 1: start}.get(n, 0) for n, p in enumerate(place)]
        steps, rows = turned_square(self.found, at, self.lanes)
        turned = [buffer.vstore([(row + n) * self.pitch + start], vector) for n, vector in enumerate(rows)]
        along_rows = _loop(along, ceil(self.part / self.lanes), tirx.SeqStmt([*steps, *turned]))
        return _loop(across, ceil(self.block / self.lanes), along_rows)

    def _fetched(self, place: Sequence[Any], number: Any) -> Any:
        """Return the statement that asks for one of the lines that the block at a place reads."""
        of_row = ceil(self.block / self.line)
        moves = {self.found.row: number % of_row * self.line, len(place) - 1: number // of_row}
        there = moved_place(self.found, place, moves)
        return fetch(self.found.input[tuple(self.found.read_for(there))])


def _in_lines(
    count: int, line: int, written: Callable[[Any], Any], beside: Callable[[Any], Sequence[Any]]
) -> Any:
    """Return the loops that write so many elements, line by line past the caches, and what is left.

    ``beside``: what is done beside a line, given its number.
    """
    step, lane, last, alone = map(_index, ("step", "lane", "last", "alone"))
    vectors, rest = divmod(count, line)
    pieces = []
    if vectors:
        vector = _loop(
            lane, line, written(step * line + lane), ForKind.VECTORIZED, {STREAM_MARK: 1, LINES_MARK: count}
        )
        pieces.append(_loop(step, vectors, in_order([*beside(step), vector])))
    if rest:
        left = tirx.IfThenElse(last < rest, written(last + vectors * line), None)
        pieces.append(_loop(last, line, left, ForKind.VECTORIZED, {LINES_MARK: count}))
    # No line is shared with what is written before or after.
    return _loop(alone, 1, in_order(pieces), notes={IN_ORDER_MARK: 1})


def _index(name: str) -> Any:
    return tirx.Var(name, "int64")


def _loop(variable: Any, count: int, body: Any, kind: Any = ForKind.SERIAL, notes: Any = None) -> Any:
    return tirx.For(variable, whole(0), whole(count), kind, body, annotations=notes or {})
