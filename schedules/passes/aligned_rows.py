"""Rows that begin anywhere are written past the caches in whole lines of memory, also those that two share.

Non-temporal stores want a vector at a multiple of its size, and a line that is written by them alone: an
ordinary store to a part of it reads the line first. Rows of 333 elements begin at no such place::

    for row in order: for v: for lane: if v * 16 + lane < 333: out[row, v * 16 + lane] = f(row, v * 16 + lane)

Each becomes what it adds to the line in which it begins, whole lines, and what it leaves for the next row::

    line[16]                                                # what the row before has left
    for row in order:
        before = start_of_row % 16
        for lane: out[row, lane - before] = line[lane] if lane < before else f(row, lane - before)
        for v from 1 on: for lane: out[row, v * 16 - before + lane] = f(row, v * 16 - before + lane)
        for lane, what is left: line[lane] = f(row, ...)

All but the last are non-temporal. The first row of a chunk (`row_chunks`) begins with an ordinary store, and
the last ends with one. Where the CPU has masks these are masked vectors (`masked_vectors`). Rows of several
pieces, as of what is concatenated, are written likewise, each piece after the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, sym, tirx
from tvm_ffi import structural_equal, structural_map

from ...machine.facts import line_elements
from ..expressions import is_one
from ..restatement import in_order, replaced, statements, whole, with_marked, without_mark
from .row_chunks import IN_ORDER_MARK
from .streaming import first_of_consecutive, streamed_vector

LINES_MARK = "tunesmith.lines"
"""Annotation of a vectorized loop over elements of a row: how many of these there are."""

LEAST_LINES = 2
"""Rows of fewer lines may end in the line in which they begin."""


def write_in_lines(sch: s_tir.Schedule, vector: Any, length: int) -> None:
    """Mark a vectorized loop in a loop over a row of so many elements, to write whole lines of memory."""
    sch.annotate(vector, LINES_MARK, length)


@dataclass(frozen=True)
class _Piece:
    """Consecutive elements of a row, which one statement writes.

    Parameters
    ----------
    vector : For
        The loop over a vector's lanes.
    steps : For, optional
        The loop over vectors around it.
    others : list
        What an iteration of that does besides.
    """

    vector: Any
    steps: Any = None
    others: Sequence[Any] = ()

    @property
    def statement(self) -> Any:
        """The statement."""
        return self.vector if self.steps is None else self.steps

    @property
    def lanes(self) -> int:
        """The elements of a vector."""
        return int(self.vector.extent)

    @property
    def store(self) -> Any:
        """What is done for an element."""
        body = self.vector.body
        return body.then_case if isinstance(body, tirx.IfThenElse) else body

    @property
    def length(self) -> int:
        """The number of elements."""
        if self.steps is not None:
            return min(int(self.steps.extent) * self.lanes, int(self.vector.annotations[LINES_MARK]))
        body = self.vector.body
        return int(body.condition.b) if isinstance(body, tirx.IfThenElse) else self.lanes

    @property
    def is_short(self) -> bool:
        """Whether it may end in the line in which it begins."""
        return self.length < LEAST_LINES * self.lanes

    def start(self) -> Any:
        """Return how many elements of the array lie before the first.

        None where they do not follow each other, or what is stored does not depend on their number alone.
        """
        lane, lanes, value, analyzer = self.vector.loop_var, self.lanes, self.store.value, sym.Analyzer()
        if self.steps is None:
            return first_of_consecutive(self.store, lane, [lane], analyzer)
        step = self.steps.loop_var
        # TVM may have simplified: (step * 16 + lane) // 16 is step as long as there are 16 lanes.
        same = analyzer.simplify(replaced(value, {step: step + 1, lane: lane - lanes}))
        depends = structural_equal(same, analyzer.simplify(value))
        number = step * lanes + lane
        return first_of_consecutive(self.store, number, [step, lane], analyzer) if depends else None

    def stored(self, first: Any) -> Any:
        """Return what is stored by a vector that begins so many elements after the first."""
        begin = {} if self.steps is None else {self.steps.loop_var: whole(0)}
        return replaced(self.store, {**begin, self.vector.loop_var: self.vector.loop_var + first})

    def over_lanes(self, body: Any) -> Any:
        """Return a loop of its own over a vector's lanes."""
        lane = tirx.Var("lane", self.vector.loop_var.ty.dtype)
        body = replaced(body, {self.vector.loop_var: lane})
        return tirx.For(lane, self.vector.min, self.vector.extent, self.vector.kind, body)

    def streamed(self, store: Any, number: Any) -> Any:
        """Return the statements that write a line; number 0 is that in which the piece begins."""
        place = (tirx.floordiv(self.start(), self.lanes) + number) * self.lanes
        return streamed_vector(self.over_lanes(store), place)


def _in_lines(loop: Any) -> Any | None:
    """Return a loop over rows in order that writes whole lines, or None."""
    found = list(_rows_in(loop.body, (loop,)))
    if len(found) != 1 or not _can_be_lines(*found[0]):
        return None
    outer, pieces = found[0]
    line = tirx.decl_buffer((2 * pieces[0].lanes,), pieces[0].store.buffer.dtype, "line")
    is_first = tirx.all(*(each.loop_var == 0 for each in outer))
    is_last = tirx.all(*(each.loop_var == each.extent - 1 for each in outer))
    written = []
    for n, piece in enumerate(pieces):
        ends = (is_first if n == 0 else None, is_last if n == len(pieces) - 1 else None)
        written.append(in_order(list(_lines_of(piece, line, *ends))))

    def rewritten(each: Any) -> Any:
        at = next((n for n, piece in enumerate(pieces) if each.same_as(piece.statement)), None)
        return each if at is None else written[at]

    body = structural_map(loop.body, [(tirx.For, rewritten)])
    return tirx.SeqStmt([tirx.AllocBuffer(line), without_mark(loop, IN_ORDER_MARK, body=body)])


def _rows_in(body: Any, outer: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], list[_Piece]]]:
    """Yield the loops around rows in a body, which are serial, and the pieces of a row."""
    loops = [each for each in statements(body) if isinstance(each, tirx.For)]
    pieces = [piece for piece in map(_piece_of, loops) if piece is not None]
    if pieces:
        yield outer, pieces
        return
    for loop in loops:
        if loop.kind == tirx.ForKind.SERIAL:
            yield from _rows_in(loop.body, (*outer, loop))


def _piece_of(loop: Any) -> _Piece | None:
    """Return the piece of a row that a loop writes, or None."""
    if LINES_MARK in loop.annotations:
        return _Piece(loop)
    *others, vector = statements(loop.body)
    is_piece = isinstance(vector, tirx.For) and LINES_MARK in vector.annotations
    return _Piece(vector, loop, others) if is_piece and loop.kind == tirx.ForKind.SERIAL else None


def _can_be_lines(outer: Sequence[Any], pieces: Sequence[_Piece]) -> bool:
    """Tell whether vectors are lines, and pieces of rows follow each other, and rows; rows begin anywhere.

    The first piece is a long one, which fills the line in which a chunk begins.
    """
    lanes, analyzer = pieces[0].lanes, sym.Analyzer()
    starts = [piece.start() for piece in pieces]
    # An expression is equal to None in an expression.
    if any(start is None for start in starts) or pieces[0].is_short:
        return False
    if lanes % line_elements(str(pieces[0].store.buffer.dtype)):
        return False
    if any(piece.lanes != lanes or (piece.is_short and piece.steps is not None) for piece in pieces):
        return False
    if analyzer.can_prove(starts[0] % lanes == 0):
        return False
    ends = [start + piece.length for start, piece in zip(starts, pieces, strict=True)]
    follow = [*zip(ends, starts[1:], strict=False)]
    length: Any = whole(sum(piece.length for piece in pieces))
    for loop in (each for each in reversed(outer) if not is_one(each.extent)):
        follow.append((starts[0] + length, replaced(starts[0], {loop.loop_var: loop.loop_var + 1})))
        length = length * loop.extent
    return all(analyzer.can_prove_equal(end, start) for end, start in follow)


def _lines_of(piece: _Piece, line: Any, is_first: Any | None, is_last: Any | None) -> Iterator[Any]:
    """Yield the statements that write a piece.

    ``line``: what is left of the pieces before, and room for a vector behind it. ``is_first``, ``is_last``:
    the conditions that the piece is the first of a chunk, or the last; None: it never is.
    """
    start, lanes, lane = piece.start(), piece.lanes, piece.vector.loop_var
    # As elements, of which TVM does not know that the row says what they are: nothing that is read under a
    # mask may say which lanes it has.
    ends = tirx.decl_buffer((2,), "int64", "ends")
    before, left = (tirx.BufferLoad(ends, [whole(n)]) for n in range(2))
    yield tirx.AllocBuffer(ends)
    yield tirx.BufferStore(ends, tirx.floormod(start, lanes), [whole(0)])
    yield tirx.BufferStore(ends, tirx.floormod(start + piece.length, lanes), [whole(1)])
    if piece.is_short:
        yield from _added(piece, line, before)
    else:
        yield _joined(piece, line, before, is_first)
        yield from _whole_lines(piece, before)
        last = piece.stored(piece.length - left)
        yield piece.over_lanes(tirx.BufferStore(line, _where(lane < left, last.value), [lane]))
    if is_last is not None:
        last = piece.stored(piece.length - left)
        kept = tirx.BufferStore(last.buffer, tirx.BufferLoad(line, [lane]), last.indices)
        yield tirx.IfThenElse(is_last, piece.over_lanes(tirx.IfThenElse(lane < left, kept, None)), None)


def _added(piece: _Piece, line: Any, before: Any) -> Iterator[Any]:
    """Yield the statements that add a short piece to the line, and write that if it is complete."""
    lanes, lane = piece.lanes, piece.vector.loop_var
    value = piece.store.value if piece.length == lanes else _where(lane < piece.length, piece.store.value)
    yield piece.over_lanes(tirx.BufferStore(line, value, [before + lane]))
    complete = tirx.BufferStore(piece.store.buffer, tirx.BufferLoad(line, [lane]), piece.store.indices)
    rest = tirx.BufferStore(line, tirx.BufferLoad(line, [lane + lanes]), [lane])
    written = in_order([piece.streamed(complete, 0), piece.over_lanes(rest)])
    yield tirx.IfThenElse(before >= lanes - piece.length, written, None)


def _joined(piece: _Piece, line: Any, before: Any, is_first: Any | None) -> Any:
    """Return the statement that writes the line in which a piece begins, what is left before it first."""
    lanes, lane = piece.lanes, piece.vector.loop_var
    # In one choice between what is left and the piece TVM would take the mask for true, and read all lanes.
    begun = tirx.decl_buffer((lanes,), line.dtype, "begun")
    there = _where(before <= lane, piece.stored(-before).value)
    either = tirx.Select(lane < before, tirx.BufferLoad(line, [lane]), tirx.BufferLoad(begun, [lane]))
    joined = tirx.SeqStmt(
        [
            tirx.AllocBuffer(begun),
            piece.over_lanes(tirx.BufferStore(begun, there, [lane])),
            piece.streamed(tirx.BufferStore(piece.store.buffer, either, piece.store.indices), 0),
        ]
    )
    if is_first is None:
        return joined
    alone = tirx.IfThenElse(lane < lanes - before, piece.stored(whole(0)), None)
    return tirx.IfThenElse(is_first, piece.over_lanes(alone), joined)


def _whole_lines(piece: _Piece, before: Any) -> Iterator[Any]:
    """Yield the statements that write the lines that a piece fills, after that in which it begins."""
    lanes, steps, step = piece.lanes, piece.steps, piece.steps.loop_var

    def line_of(number: Any) -> Any:
        return piece.streamed(piece.stored(number * lanes - tirx.floormod(piece.start(), lanes)), number)

    count = piece.length // lanes - 1
    between = in_order([*piece.others, line_of(step + 1)])
    yield tirx.For(step, steps.min, whole(count), steps.kind, between, annotations=steps.annotations)
    for number in range(count, int(steps.extent)):
        yield from (replaced(each, {step: whole(number)}) for each in piece.others)
    yield tirx.IfThenElse(before >= lanes - piece.length % lanes, line_of(whole(count + 1)), None)


def _where(condition: Any, value: Any) -> Any:
    """Return a value where a condition holds, else 0; it is read only there."""
    return tirx.if_then_else(condition, value, tirx.const(0, str(value.ty.dtype)))


def _align(func: Any, _mod: Any, _context: Any) -> Any:
    return with_marked(func, IN_ORDER_MARK, _in_lines)


align_rows = tirx.transform.prim_func_pass(_align, opt_level=0)
"""The pass that has rows of functions of plain loops written in whole lines of memory, where marked."""
