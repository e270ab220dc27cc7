"""Taps of a window that meet nothing but zeros are left out.

Of a convolution dilated by 24 with as much padding, the first line of 28 meets one line of taps of three. A
tile of outputs loops over those taps only under which some output of it meets data::

    for i from ceil((low - last) / dilation) to ceil((high - first) / dilation):
        ...

where ``first`` and ``last`` are the elements under the first tap of a tile's first and last output, and data
lie at ``low <= element < high``. Of a weight that is filled up with zeros, as a transposed convolution's may
be, a tile of columns loops over those taps only that some column of it has: the zeros come first.

TVM's primitives know only loops of constant length, so a schedule marks the loops over taps, which are cut
short when blocks have become plain loops (`loop_partition`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import s_tir, tirx
from tvm.sym import Analyzer
from tvm_ffi import structural_map, structural_walk

from .analysis import index_variables, loads_of
from .restatement import replaced, without_mark
from .window_padding import FilledAxis, PaddedAxis

TAPS_MARK = "tunesmith.taps"
"""Annotation of a loop over taps: from where to where the elements under them are data."""

FILLED_MARK = "tunesmith.filled_taps"
"""Annotation of a loop over taps: where a tile's columns are, how many, and the zeros before their taps."""

BUFFER_MARK = "tunesmith.taps_of"
"""Annotation of a loop over taps: the name of the buffer whose elements these are."""


def leave_out_padding(
    sch: s_tir.Schedule, padded: Sequence[PaddedAxis], data: str, loops: Mapping[int, Any]
) -> None:
    """Mark the loops over taps that may be shorter.

    Parameters
    ----------
    sch : Schedule
        The schedule.
    padded : sequence of PaddedAxis
        The axes along which the window slides over zeros.
    data : str
        The buffer that has the zeros.
    loops : mapping of int to LoopRV
        The loops over the taps, by what the axes call them.
    """
    for axis in padded:
        sch.annotate(loops[axis.tap], BUFFER_MARK, data)
        sch.annotate(loops[axis.tap], TAPS_MARK, [axis.low, axis.high])


def leave_out_filling(
    sch: s_tir.Schedule, filled: Sequence[FilledAxis], column: int, nr: int, loops: Mapping[int, Any]
) -> None:
    """Mark the loops over taps that are shorter where a tile's columns have zeros only.

    Parameters
    ----------
    sch : Schedule
        The schedule.
    filled : sequence of FilledAxis
        The axes along which the weight is filled up with zeros.
    column : int
        Which of the block's axes the columns are.
    nr : int
        Columns of a tile.
    loops : mapping of int to LoopRV
        The loops over the taps, by what the axes call them.
    """
    for axis in filled:
        sch.annotate(loops[axis.tap], FILLED_MARK, [column, nr, *axis.shared_zeros(nr)])


def _noted(loop: Any) -> Any:
    """Note before a marked loop which tile of columns it is for: once blocks are gone, nothing tells."""
    if FILLED_MARK not in loop.annotations:
        return loop
    column, nr, *_ = (int(number) for number in loop.annotations[FILLED_MARK])
    found: list[Any] = []
    structural_walk(loop.body, [(s_tir.SBlockRealize, found.append), (tirx.For, found.append)])
    block = next(each for each in found if isinstance(each, s_tir.SBlockRealize))
    inner = {each.loop_var: each.min for each in found if isinstance(each, tirx.For)}
    tile = tirx.floordiv(replaced(block.iter_values[column], inner), nr)
    return tirx.AttrStmt(loop.annotations[FILLED_MARK], FILLED_MARK, tile, loop)


def _without_filling(note: Any) -> Any:
    """Return the loop after a note, over the taps that its tile has; another statement as it is."""
    if note.attr_key != FILLED_MARK:
        return note
    loop, tile = note.body, note.value
    tap, (_, _, *zeros) = loop.loop_var, (int(number) for number in note.node)
    start = tirx.const(zeros[0], tap.ty.dtype)
    for at in range(1, len(zeros)):
        if zeros[at] != zeros[at - 1]:
            start = tirx.Select(tile >= at, tirx.const(zeros[at], tap.ty.dtype), start)
    body = replaced(loop.body, {tap: tap + start})
    return without_mark(loop, FILLED_MARK, extent=loop.extent - start, body=body)


def _shortened(loop: Any) -> Any:
    """Return a marked loop over the taps under which a tile meets data; another loop as it is."""
    if TAPS_MARK not in loop.annotations:
        return loop
    low, high = (int(number) for number in loop.annotations[TAPS_MARK])
    data, tap = str(loop.annotations[BUFFER_MARK]), loop.loop_var
    read = next(load for load in loads_of(loop.body) if load.source.name == data)
    index = next(i for i in read.indices if tap in index_variables([i]))
    inner: list[Any] = []
    structural_walk(loop.body, [(tirx.For, inner.append)])
    zero, one = (tirx.const(number, tap.ty.dtype) for number in (0, 1))
    dilation = Analyzer().simplify(replaced(index, {tap: one}) - replaced(index, {tap: zero}))
    first = replaced(index, {tap: zero, **{each.loop_var: each.min for each in inner}})
    last = replaced(index, {tap: zero, **{each.loop_var: each.min + each.extent - 1 for each in inner}})
    start = tirx.max(zero, tirx.floordiv(low - last + dilation - 1, dilation))
    end = tirx.min(loop.extent, tirx.floordiv(high - first + dilation - 1, dilation))
    body = replaced(loop.body, {tap: tap + start})
    return tirx.For(tap, zero, tirx.max(zero, end - start), loop.kind, body)


def _shorten(func: Any, _mod: Any, _context: Any) -> Any:
    shorter = structural_map(func.body, [(tirx.AttrStmt, _without_filling)])
    return func.with_body(structural_map(shorter, [(tirx.For, _shortened)]))


def _note(func: Any, _mod: Any, _context: Any) -> Any:
    return func.with_body(structural_map(func.body, [(tirx.For, _noted)]))


note_columns = tirx.transform.prim_func_pass(_note, opt_level=0)
"""The pass that notes, in functions of blocks, which columns marked loops are for."""

shorten_taps = tirx.transform.prim_func_pass(_shorten, opt_level=0)
"""The pass that cuts marked loops short in functions of plain loops."""
