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

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import s_tir, tirx
from tvm.sym import Analyzer
from tvm.tirx import IterVar
from tvm_ffi import structural_map, structural_walk

from ..analysis import block_names, written_buffer
from ..expressions import index_variables, loads_of
from ..nests.contraction import Contraction
from ..nests.window_padding import FilledAxis, PaddedAxis
from ..restatement import replaced, without_mark

TAPS_MARK = "tunesmith.taps"
"""Annotation of a loop over taps, or over tiles: from where to where the elements under them are data."""

FIRST_MARK = "tunesmith.first_element"
"""Statement around such a loop: the element under the first tap, of a tile's first output."""

FILLED_MARK = "tunesmith.filled_taps"
"""Annotation of a loop over taps: where a tile's columns are, how many, and the zeros before their taps."""

READ_MARK = "tunesmith.read_range"
"""Annotation of the block that pads: a dimension, from where to where it is read, and so on."""

BUFFER_MARK = "tunesmith.taps_of"
"""Annotation of a loop over taps with `TAPS_MARK`: the name of the buffer whose elements these are."""


# Where more than this part is read all is padded, without a condition.
_WORTH_CONDITIONS = 7 / 8


def leave_out_padding(
    sch: s_tir.Schedule, block: Any, nest: Contraction, mr: int, loops: Mapping[int, Any]
) -> None:
    """Mark the loops over taps that may be shorter, and what pads where much of it is not read then.

    Parameters
    ----------
    sch : Schedule
        The schedule.
    block : SBlockRV
        What sums windows.
    nest : Contraction
        Its axes, among them those along which windows slide over zeros.
    mr : int
        Outputs of a tile.
    loops : mapping of int to LoopRV
        The loops over the taps, by what the axes call them.
    """
    if not nest.padded:
        return
    node = sch.get(block)
    source = _data_of(node, nest)
    read = next(load for load in loads_of(node.body) if load.source.name == source)
    ranges: list[int] = []
    for axis, limits in zip(nest.padded, nest.ranges_read(mr), strict=True):
        _mark(sch, loops[axis.tap], source, axis)
        tap = node.iter_vars[axis.tap].var
        ranges += next(d for d, at in enumerate(read.indices) if tap in index_variables([at])), *limits
    if nest.share_read(mr) < _WORTH_CONDITIONS:
        pad = next(name for name in block_names(sch) if written_buffer(sch, name) == source)
        sch.annotate(sch.get_sblock(pad), READ_MARK, ranges)


def leave_out_tiles(sch: s_tir.Schedule, block: Any, nest: Contraction, loops: Mapping[int, Any]) -> None:
    """Mark the loops over tiles that may be shorter, where the loops over taps are outside.

    Parameters
    ----------
    sch : Schedule
        The schedule.
    block : SBlockRV
        What sums windows, after its sums were set to zero elsewhere.
    nest : Contraction
        Its axes, among them those along which windows slide over zeros.
    loops : mapping of int to LoopRV
        The loops over outputs or tiles of them, by what the axes call them.
    """
    source = _data_of(sch.get(block), nest)
    for axis in nest.padded:
        if axis.row is not None and axis.rows > 1:
            _mark(sch, loops[axis.row], source, axis)


def _data_of(block: Any, nest: Contraction) -> str:
    """Return the name of the data of a block, which may read the sums it adds to as well."""
    operands = [read.source for read in block.reads if not read.source.same_as(block.writes[0].source)]
    return str(operands[nest.data].name)


def _mark(sch: s_tir.Schedule, loop: Any, source: str, axis: PaddedAxis) -> None:
    """Mark a loop that is shorter where the elements of a buffer are not data."""
    sch.annotate(loop, BUFFER_MARK, source)
    sch.annotate(loop, TAPS_MARK, [axis.low, axis.high])


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


def _as_far_as_read(realize: Any) -> Any:
    """Return a marked block, which pads, as far as it is read; another block as it is."""
    ranges = [int(number) for number in realize.block.annotations.get(READ_MARK, ())]
    if not ranges:
        return realize
    values = dict(zip((v.var for v in realize.block.iter_vars), realize.iter_values, strict=True))
    here = [realize.predicate]
    for dimension, low, high in zip(ranges[::3], ranges[1::3], ranges[2::3], strict=True):
        at = replaced(realize.block.body.indices[dimension], values)
        here += at >= low, at < high
    return s_tir.SBlockRealize(realize.iter_values, tirx.all(*here), realize.block)


def _noted(loop: Any) -> Any:
    """Note around a marked loop what it is for: once blocks are gone, nothing tells."""
    noted = loop
    if FILLED_MARK in loop.annotations:
        column, nr, *_ = numbers = [int(number) for number in loop.annotations[FILLED_MARK]]
        noted = tirx.AttrStmt(numbers, FILLED_MARK, panel_at(loop, column, nr), noted)
    if TAPS_MARK in loop.annotations:
        first, *steps = _elements_under(loop)
        noted = tirx.AttrStmt([*loop.annotations[TAPS_MARK], *steps, loop.extent], FIRST_MARK, first, noted)
    return noted


def panel_at(loop: Any, column: int, nr: int) -> Any:
    """Return which panel of nr columns a loop is at, in which there are sums; ``column``: their axis."""
    block, inner = _block_in(loop, _sums)
    return tirx.floordiv(replaced(block.iter_values[column], {each.loop_var: each.min for each in inner}), nr)


def _sums(block: Any) -> bool:
    return any(axis.iter_type == IterVar.CommReduce for axis in block.iter_vars)


def _elements_under(loop: Any) -> tuple[Any, int, int]:
    """Return the element under the first tap of a tile's first output, and how far it is to others.

    These are that under the next tap, and that of the last output.
    """
    data, tap = str(loop.annotations[BUFFER_MARK]), loop.loop_var
    realize, inner = _block_in(loop, lambda block: any(each.source.name == data for each in block.reads))
    values = dict(zip((v.var for v in realize.block.iter_vars), realize.iter_values, strict=True))
    read = next(load for load in loads_of(realize.block.body) if load.source.name == data)
    indices = (replaced(index, values) for index in read.indices)
    index = next(each for each in indices if tap in index_variables([each]))
    zero, one = (tirx.const(number, tap.ty.dtype) for number in (0, 1))
    begin = {tap: zero, **{each.loop_var: each.min for each in inner}}
    end = {tap: zero, **{each.loop_var: each.min + each.extent - 1 for each in inner}}
    first, simplify = replaced(index, begin), Analyzer().simplify
    return first, *(simplify(replaced(index, other) - first) for other in ({**begin, tap: one}, end))


def _block_in(loop: Any, wanted: Callable[[Any], bool]) -> tuple[Any, list[Any]]:
    """Return the realisation of the first wanted block in a loop, and all loops in there."""
    found: list[Any] = []
    structural_walk(loop.body, [(s_tir.SBlockRealize, found.append), (tirx.For, found.append)])
    blocks = (each for each in found if isinstance(each, s_tir.SBlockRealize) and wanted(each.block))
    return next(blocks), [each for each in found if isinstance(each, tirx.For)]


def _shortened(note: Any) -> Any:
    """Return the loop after a note, over the taps that its tile has or meets; another statement as it is."""
    if note.attr_key not in (FILLED_MARK, FIRST_MARK):
        return note
    # Of a loop that was cut to one iteration TVM leaves a zero of 32 bits, to which nothing can be added.
    value = Analyzer().simplify(note.value)
    if note.attr_key == FILLED_MARK:
        return _without_filling(note.body, value, [int(number) for number in note.node[2:]])
    return _without_padding(note.body, value, *(int(number) for number in note.node))


def _without_filling(loop: Any, tile: Any, zeros: Sequence[int]) -> Any:
    """Return a loop over the taps after the zeros of its tile."""
    tap = loop.loop_var
    start = tirx.const(zeros[0], tap.ty.dtype)
    for at in range(1, len(zeros)):
        if zeros[at] != zeros[at - 1]:
            start = tirx.Select(tile >= at, tirx.const(zeros[at], tap.ty.dtype), start)
    body = replaced(loop.body, {tap: tap + start})
    return without_mark(loop, FILLED_MARK, extent=loop.extent - start, body=body)


def _without_padding(
    loop: Any, first: Any, low: int, high: int, dilation: int, reach: int, extent: int
) -> Any:
    """Return a loop over the taps under which a tile meets data.

    ``reach``: how far the element under its last output is from that under its first. Of ``extent`` taps
    those that are only filled up may be gone already.
    """
    tap, zero = loop.loop_var, tirx.const(0, loop.loop_var.ty.dtype)
    first = first + dilation * (extent - loop.extent)
    start = tirx.max(zero, tirx.floordiv(low - first - reach + dilation - 1, dilation))
    end = tirx.min(loop.extent, tirx.floordiv(high - first + dilation - 1, dilation))
    body = replaced(loop.body, {tap: tap + start})
    return tirx.For(tap, zero, tirx.max(zero, end - start), loop.kind, body)


def _shorten(func: Any, _mod: Any, _context: Any) -> Any:
    return func.with_body(structural_map(func.body, [(tirx.AttrStmt, _shortened)]))


def _note(func: Any, _mod: Any, _context: Any) -> Any:
    noted = structural_map(func.body, [(s_tir.SBlockRealize, _as_far_as_read)])
    return func.with_body(structural_map(noted, [(tirx.For, _noted)]))


note_taps = tirx.transform.prim_func_pass(_note, opt_level=0)
"""The pass that notes, in functions of blocks, what marked loops are for."""

shorten_taps = tirx.transform.prim_func_pass(_shorten, opt_level=0)
"""The pass that cuts marked loops short in functions of plain loops."""
