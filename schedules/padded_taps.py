"""Taps of a window that meet nothing but zeros are left out.

Of a convolution dilated by 24 with as much padding, the first line of 28 meets one line of taps of three. A
tile of outputs loops over those taps only under which some output of it meets data::

    for i from ceil((low - last) / dilation) to ceil((high - first) / dilation):
        ...

where ``first`` and ``last`` are the elements under the first tap of a tile's first and last output, and data
lie at ``low <= element < high``. TVM's primitives know only loops of constant length, so a schedule marks the
loops over taps, which are cut short when blocks have become plain loops (`loop_partition`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import s_tir, tirx
from tvm.sym import Analyzer
from tvm_ffi import structural_map, structural_walk

from .analysis import index_variables, loads_of
from .restatement import replaced
from .window_padding import PaddedAxis

TAPS_MARK = "tunesmith.taps"
"""Annotation of a loop over taps: from where to where the elements under them are data."""

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
    return func.with_body(structural_map(func.body, [(tirx.For, _shortened)]))


shorten_taps = tirx.transform.prim_func_pass(_shorten, opt_level=0)
"""The pass that cuts marked loops short in functions of plain loops."""
