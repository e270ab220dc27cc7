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
        Squares in a buffer along the input's rows.
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
    return with_nests(func, [_parts_nest(found, lanes, squares, stretch, bool(ahead))])


def _parts_nest(found: Transposition, lanes: int, squares: int, stretch: int, ahead: bool) -> Any:
    row, column = found.row, len(found.axes) - 1
    length, count = found.extents[column], found.extents[row]
    # Parts of the same length, of many lines, of whole vectors unless there is one only.
    parts = max(1, length // max(squares * lanes, _LEAST_LINES_OF_A_ROW * line_elements(found.dtype)))
    part = length if parts == 1 else ceil(length / parts / lanes) * lanes
    least = ceil(_LEAST_LINES * line_elements(found.dtype) / part / lanes)
    block = min(max(stretch, least), count // lanes) * lanes
    others = [n for n in range(column) if n != row]
    counts = [*(found.extents[n] for n in others), parts, ceil(count / block)]

    def body(at: list[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        place = dict(zip([*others, column, row], at, strict=True))
        place[column] = vector_start(place[column], length, part)
        following = place | {row: vector_start(place[row] + 1, count, block)}
        place[row] = vector_start(place[row], count, block)
        here, later = ([p[n] for n in range(column + 1)] for p in (place, following))
        return _part(found, here, lanes, part, block, later if ahead else None), {}

    return block_nest(PARTS, counts, (found.input, found.output), body)


def _part(
    found: Transposition,
    place: Sequence[Any],
    lanes: int,
    part: int,
    block: int,
    later: Sequence[Any] | None,
) -> list[Any]:
    """Return the statements that transpose what begins at a place into a buffer, and write its rows.

    ``later``: where what is read next begins, which is fetched meanwhile; or None.
    """
    line, whole_rows = line_elements(found.dtype), part == found.extents[-1] and _has_rows_together(found)
    # Whole rows that follow each other are one. Else a line more: rows of a page would displace each other.
    pitch = part if whole_rows else ceil(part / line) * line + line
    buffer = tirx.decl_buffer((block * pitch,), found.dtype, "turned")

    def written(row: Any, column: Any) -> Any:
        there = moved_place(found, place, {found.row: row, len(place) - 1: column})
        return tirx.BufferStore(found.output, tirx.BufferLoad(buffer, [row * pitch + column]), there)

    along, across, row = (tirx.Var(name, "int64") for name in ("along", "across", "row"))
    first, start = across * lanes, vector_start(along, part, lanes)
    at = [p + {found.row: first, len(place) - 1: start}.get(n, 0) for n, p in enumerate(place)]
    steps, rows = turned_square(found, at, lanes)
    turned = [buffer.vstore([(first + n) * pitch + start], vector) for n, vector in enumerate(rows)]
    square = tirx.SeqStmt([*steps, *turned])
    squares = _loop(across, block // lanes, _loop(along, ceil(part / lanes), square))
    fetched = [] if later is None else [_fetches(found, later, part, row)]
    if whole_rows:
        copied = [_loop(row, block, each) for each in fetched]
        copied.append(_in_lines(block * part, line, lambda n: written(n // part, n % part)))
    else:
        lines = _in_lines(part, line, lambda n: written(row, n))
        copied = [_loop(row, block, in_order([*fetched, lines]))]
    return [tirx.AllocBuffer(buffer), squares, *copied]


def _fetches(found: Transposition, later: Sequence[Any], part: int, row: Any) -> Any:
    """Return the loop that asks for a share of what is read later: a line of each so many of its rows."""
    line, step = line_elements(found.dtype), tirx.Var("fetched", "int64")
    moves = {found.row: row // line * line, len(later) - 1: step * line + row % line}
    there = moved_place(found, later, moves)
    return _loop(step, ceil(part / line), fetch(found.input[tuple(found.read_for(there))]))


def _in_lines(count: int, line: int, written: Callable[[Any], Any]) -> Any:
    """Return the loops that write so many elements, line by line past the caches, and what is left."""
    step, lane, last, alone = (tirx.Var(name, "int64") for name in ("step", "lane", "last", "alone"))
    vectors, rest = divmod(count, line)
    pieces = []
    if vectors:
        vector = _loop(
            lane, line, written(step * line + lane), ForKind.VECTORIZED, {STREAM_MARK: 1, LINES_MARK: count}
        )
        pieces.append(_loop(step, vectors, vector))
    if rest:
        left = tirx.IfThenElse(last < rest, written(last + vectors * line), None)
        pieces.append(_loop(last, line, left, ForKind.VECTORIZED, {LINES_MARK: count}))
    # No line is shared with what is written before or after.
    return _loop(alone, 1, in_order(pieces), notes={IN_ORDER_MARK: 1})


def _loop(variable: Any, count: int, body: Any, kind: Any = ForKind.SERIAL, notes: Any = None) -> Any:
    return tirx.For(variable, whole(0), whole(count), kind, body, annotations=notes or {})
