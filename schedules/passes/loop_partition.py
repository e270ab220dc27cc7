"""Loops whose last iteration is incomplete are cut before it, so that the others have no condition.

TVM's own pass does it, but where it stands in TVM's pipeline it comes too late: integers of 64 bits have been
narrowed to 32 by then, with new loop variables, and the marks still name the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm_ffi import structural_map, structural_walk

from ..expressions import index_variables, is_one, ranges_of, with_zero
from ..restatement import with_functions, without_mark
from .aligned_rows import align_rows
from .bfloat16_bits import BITS_MARK, keep_marked_bfloat16
from .filled_copies import COPY_MARK, read_directly
from .held_sums import HOLD_MARK, hold_marked_sums
from .line_phases import PHASES_MARK, take_phases
from .loop_bounds import BOUNDING_MARK, shorten_loops
from .matrix_tiles import THREADS_MARK, use_matrix_tiles
from .narrow_panels import NARROW_MARK, narrow_panels, note_panels
from .needless_loops import NEEDLESS_MARK, skip_needless_loops
from .padded_taps import FILLED_MARK, TAPS_MARK, note_taps, shorten_taps
from .panel_prefetch import PANELS_MARK, set_rows_apart, share_fetches
from .quotients import lessen_quotients
from .row_chunks import CHUNK_MARK, chunk_rows
from .row_prefetch import AHEAD_MARK, fetch_rows
from .streaming import STREAM_MARK, stream_vectors
from .turned_squares import SQUARE_MARK, turn_squares
from .written_behind import write_rows_behind

PARTITION_MARK = "pragma_loop_partition_hint"
"""TVM's annotation of a loop to be cut."""


# How many iterations a loop had that is cut.
_LENGTH_MARK = "tunesmith.length"


def _guard(func: Any, _mod: Any, _context: Any) -> Any:
    """Say of each iteration of a loop to be cut that it is one of the loop.

    TVM cuts where conditions begin and end to hold, also where that is before or behind the loop: of 9000
    elements in 8 parts of 2048 the last part begins 5336 behind the end, and its iterations without elements
    would begin there, in other parts. With a condition it is cut within, or the condition is left in a piece;
    pieces before what holds are cut short by `_shorten`.
    """

    def guarded(hint: Any) -> Any:
        if hint.attr_key != PARTITION_MARK:
            return hint
        loop = hint.body
        body = tirx.IfThenElse(tirx.likely(loop.loop_var >= loop.min), loop.body, None)
        length = {_LENGTH_MARK: loop.extent} if _begins_late(loop) else {}
        marks = {**loop.annotations, **length}
        held = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, annotations=marks)
        return tirx.AttrStmt(hint.node, hint.attr_key, hint.value, held)

    return func.with_body(structural_map(func.body, [(tirx.AttrStmt, guarded)]))


def _shorten(func: Any, _mod: Any, _context: Any) -> Any:
    """Let no piece that begins where its loop does be longer than the loop."""
    loops: list[Any] = []
    structural_walk(func.body, [(tirx.For, loops.append)])
    if not any(_LENGTH_MARK in loop.annotations for loop in loops):
        return func
    analyzer = ranges_of(loops)

    def shortened(piece: Any) -> Any:
        if _LENGTH_MARK not in piece.annotations:
            return piece
        length, extent = piece.annotations[_LENGTH_MARK], piece.extent
        if is_one(extent):
            # TVM leaves it because of the mark.
            return with_zero(piece.body, piece.loop_var)
        begins = isinstance(piece.body, tirx.IfThenElse) and analyzer.can_prove(piece.body.condition)
        if begins and not analyzer.can_prove(extent <= length):
            extent = tirx.min(extent, length)
        return without_mark(piece, _LENGTH_MARK, extent=extent)

    return func.with_body(structural_map(func.body, [(tirx.For, shortened)]))


def _begins_late(loop: Any) -> bool:
    """Tell whether a condition may hold for later iterations only."""
    later: list[bool] = []

    def look(comparison: Any) -> None:
        below = isinstance(comparison, (tirx.LT, tirx.LE))
        greater = comparison.b if below else comparison.a
        later.append(loop.loop_var in index_variables([greater]))

    structural_walk(loop.body, [((tirx.LT, tirx.LE, tirx.GT, tirx.GE), look)])
    return any(later)


# TVM's first steps on a scheduled function, as far as its pass needs them: blocks become plain loops.
_LOWER = tvm.ir.transform.Sequential(
    [
        note_taps,
        note_panels,
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.LowerOpaqueBlock(),
        use_matrix_tiles,
        shorten_loops,
        skip_needless_loops,
        fetch_rows,
        share_fetches,
        tirx.transform.prim_func_pass(_guard, opt_level=0),
        s_tir.transform.LoopPartition(),
        tirx.transform.prim_func_pass(_shorten, opt_level=0),
        # Not before: it passes over loops whose length depends on what it cuts.
        shorten_taps,
        narrow_panels,
        # Conditions that are now plainly true would keep vectors from being made.
        s_tir.transform.StmtSimplify(),
        read_directly,
        hold_marked_sums,
        turn_squares,
        take_phases,
        lessen_quotients,
        set_rows_apart,
        chunk_rows,
        align_rows,
        write_rows_behind,
        stream_vectors,
        keep_marked_bfloat16,
    ]
)


def partition(sch: s_tir.Schedule, loop: Any) -> None:
    """Mark a loop whose last iteration is incomplete, to be cut before it."""
    sch.annotate(loop, PARTITION_MARK, 1)


def partition_loops(mod: Any) -> Any:
    """Cut the marked loops of a module's functions; functions without any stay as they are.

    What is cut is lowered to plain loops: this is the last step before a module is compiled.
    """
    functions = {name: func for name, func in mod.functions.items() if _is_marked(func)}
    return with_functions(mod, as_plain_loops(functions))


def as_plain_loops(functions: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return functions without blocks, their marked loops cut; those that have none stay as they are."""
    blocks = {name: func for name, func in functions.items() if not is_plain(func)}
    return {**functions, **(_LOWER(tvm.IRModule(blocks)).functions if blocks else {})}


def is_plain(func: Any) -> bool:
    """Tell whether a function has been lowered to plain loops.

    TVM must not shrink its buffers a second time, each dimension to what its index reaches: it would cut off
    what an instruction's vector of several rows reaches beyond the last one.
    """
    return not isinstance(func.body, s_tir.SBlockRealize)


def _is_marked(func: Any) -> bool:
    found: set[str] = set()
    if isinstance(func, tirx.PrimFunc):
        structural_walk(func.body, (tirx.For, lambda loop: found.update(map(str, loop.annotations))))
    marks = {PARTITION_MARK, BOUNDING_MARK, TAPS_MARK, FILLED_MARK, AHEAD_MARK, PANELS_MARK, STREAM_MARK}
    marks |= {BITS_MARK, NEEDLESS_MARK, THREADS_MARK, SQUARE_MARK, NARROW_MARK, HOLD_MARK, PHASES_MARK}
    return bool(found & (marks | {COPY_MARK, CHUNK_MARK}))
