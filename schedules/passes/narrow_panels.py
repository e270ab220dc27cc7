"""The last panel of a weight is no wider than its columns: vectors of it that have none are not computed.

196 columns are 12 vectors of 16 and a quarter of one; in panels of two vectors the last one has a vector of
nothing but padding, a fourteenth of all multiply-adds. Tiles of the last panel are narrower then::

    for panels:
        if this is not the last one:
            tiles of all its vectors
        else:
            tiles of those that have columns

Times with them over those without, on 2 threads of a Zen 5: 512 rows by 100 x 512 0.88, 8 of 100 x 100 x 100
0.89, 1024 by 196 x 256 0.92, 400 by 200 x 300 0.93, 300 cubed 0.96.

TVM's primitives know only loops of constant length, so a schedule marks the loop over panels and those over a
tile's vectors, and the body becomes two when blocks have become plain loops (`loop_partition`).
"""

from __future__ import annotations

from math import ceil
from typing import Any

from tvm import s_tir, tirx
from tvm.sym import Analyzer
from tvm_ffi import structural_map, structural_walk

from ..restatement import with_own_variables, without_mark
from .padded_taps import panel_at

NARROW_MARK = "tunesmith.narrow_panel"
"""Annotation of a loop over panels: which of the sum's axes the columns are, columns of a panel, which panel
is the last, and its vectors. Then of a statement in it, whose value is the number of the panel."""

VECTORS_MARK = "tunesmith.panel_vectors"
"""Annotation of a loop over the vectors of a tile."""


def narrow_last_panel(
    sch: s_tir.Schedule, block: Any, start: Any, panel: Any, column: int, columns: int, nr: int, lanes: int
) -> None:
    """Mark the loops of a tile whose last panel has vectors without columns, if it has.

    Parameters
    ----------
    sch : Schedule
        The schedule.
    block, start : SBlockRV
        What adds to sums, and what sets them to zero. Their innermost loops are over a panel's vectors, and
        over a vector.
    panel : LoopRV
        The loop over panels.
    column, columns : int
        Which of the block's axes the columns are, and how many there are.
    nr, lanes : int
        Columns of a panel and of a vector.
    """
    last, left = divmod(columns, nr)
    vectors = ceil(left / lanes)
    if vectors == 0 or vectors * lanes == nr:
        return
    sch.annotate(panel, NARROW_MARK, [column, nr, last, vectors])
    for each in (block, start):
        sch.annotate(sch.get_loops(each)[-2], VECTORS_MARK, 1)


def _noted(loop: Any) -> Any:
    """Note in a marked loop which panel it is at: once blocks are gone, nothing tells."""
    if NARROW_MARK not in loop.annotations:
        return loop
    column, nr, *last = (int(number) for number in loop.annotations[NARROW_MARK])
    body = tirx.AttrStmt(last, NARROW_MARK, panel_at(loop, column, nr), loop.body)
    return without_mark(loop, NARROW_MARK, body=body)


def _narrowed(note: Any) -> Any:
    """Return the tiles of all panels but the last, and of that one; another statement as it is."""
    if note.attr_key != NARROW_MARK:
        return note
    last, vectors = (int(number) for number in note.node)

    def of_width(width: int | None) -> Any:
        def chosen(loop: Any) -> Any:
            if VECTORS_MARK not in loop.annotations:
                return loop
            extent = None if width is None else tirx.const(width, loop.extent.ty.dtype)
            return without_mark(loop, VECTORS_MARK, extent=extent)

        return structural_map(note.body, [(tirx.For, chosen)])

    panel = Analyzer().simplify(note.value)
    if isinstance(panel, tirx.IntImm):
        return of_width(vectors if int(panel) == last else None)
    return tirx.IfThenElse(panel < last, of_width(None), of_width(vectors))


def _note(func: Any, _mod: Any, _context: Any) -> Any:
    return func.with_body(structural_map(func.body, [(tirx.For, _noted)]))


def _narrow(func: Any, _mod: Any, _context: Any) -> Any:
    notes: list[Any] = []
    structural_walk(func.body, [(tirx.AttrStmt, lambda note: notes.append(note.attr_key == NARROW_MARK))])
    if not any(notes):
        return func
    body = structural_map(func.body, [(tirx.AttrStmt, _narrowed)])
    # Loops and buffers of the two are others.
    return with_own_variables(func.with_body(body))


note_panels = tirx.transform.prim_func_pass(_note, opt_level=0)
"""The pass that notes, in functions of blocks, which panel marked loops are at."""

narrow_panels = tirx.transform.prim_func_pass(_narrow, opt_level=0)
"""The pass that gives functions of plain loops tiles of their own for the last panel."""
