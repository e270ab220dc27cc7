"""Fetching the next panel of a weight while tiles of rows meet this one.

A weight that exceeds L2 comes from L3 or memory, panel by panel: the first tile of rows that meets a panel
waits for each line of it, the others find it in L2. So each tile also asks for its share of the next panel,
now and then between steps of the sum. TVM's primitives cannot say that: a schedule marks the loop over panels
and the sum, and these get their prefetches when blocks have become plain loops (`loop_partition`). A prefetch
of what lies beyond the array does nothing.

The sums must stay in registers: LLVM keeps in memory what it cannot prove a prefetch not to touch, and a tile
of a KiB or more is allocated by a call. So each row of such a tile becomes a buffer of its own, on the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm.tirx import ForKind
from tvm_ffi import structural_map, structural_walk

from ..expressions import buffer_bytes, index_variables, loads_of, stores_of
from ..restatement import replaced, without_mark
from .row_prefetch import fetch, lines_of

PANELS_MARK = "tunesmith.panels_ahead"
"""Annotation of a loop over panels: tiles that meet one fetch lines of the next."""

TILES_MARK = "tunesmith.sharing_tiles"
"""Annotation of each loop in it over tiles of rows: they share the lines."""

STEPS_MARK = "tunesmith.fetching_steps"
"""Annotation of the innermost loop of the sum, between whose steps lines are fetched."""

_APART_MARK = "tunesmith.rows_apart"

# Steps of the sum between fetches: as many as tiles share a panel, up to this.
_MOST_STEPS = 16
# TVM allocates what is as large by a call.
_HEAP_BYTES = 1024


def fetch_panels(sch: s_tir.Schedule, panels: Any, tiles: Sequence[Any], steps: Any) -> None:
    """Mark a loop over panels, and in it those over tiles of rows and the innermost of the sum."""
    sch.annotate(panels, PANELS_MARK, 1)
    for each in tiles:
        sch.annotate(each, TILES_MARK, 1)
    sch.annotate(steps, STEPS_MARK, 1)


def steps_between(tiles: int, steps: int) -> int:
    """Return how many steps of the sum lie between fetches where so many tiles share a panel; 0 for none.

    They divide the steps; a tile alone asks in each. With fewer than tiles that share the panel, each line is
    asked for several times, at most as often as there are steps between.
    """
    most = min(tiles, _MOST_STEPS)
    between = next((s for s in (16, 8, 4, 2, 1) if s <= most and steps % s == 0), 0)
    return between if between**2 >= most else 0


def _fetch_panels(func: Any, _mod: Any, _context: Any) -> Any:
    return func.with_body(structural_map(func.body, [(tirx.For, _with_fetches)]))


def _with_fetches(panels: Any) -> Any:
    """Return a loop over panels whose marked sums fetch the next one."""
    if PANELS_MARK not in panels.annotations:
        return panels
    tiles: list[Any] = []

    def note(loop: Any) -> None:
        if TILES_MARK in loop.annotations:
            tiles.append(loop)

    def unmarked(loop: Any) -> Any:
        if STEPS_MARK in loop.annotations:
            return without_mark(_fetching(loop, panels, tiles), STEPS_MARK)
        return without_mark(loop, TILES_MARK)

    structural_walk(panels.body, [(tirx.For, note)])
    return without_mark(panels, PANELS_MARK, body=structural_map(panels.body, [(tirx.For, unmarked)]))


def _fetching(loop: Any, panels: Any, tiles: Sequence[Any]) -> Any:
    """Return the sum over a tile with its share of the next panel's fetches between the steps."""
    needed = {panels.loop_var, loop.loop_var}
    weight = next(load for load in loads_of(loop.body) if needed <= index_variables(load.indices))
    count = prod(int(each.extent) for each in tiles)
    steps = int(loop.extent)
    between = steps_between(count, steps)
    if not between:
        return loop
    nth = tirx.IntImm("int64", 0)
    for each in tiles:
        nth = nth * each.extent + each.loop_var
    outer, inner = (tirx.Var(f"{loop.loop_var.name}_{i}", "int64") for i in (0, 1))
    step = (nth * steps + outer * between) // count
    later = {panels.loop_var: panels.loop_var + 1, loop.loop_var: step}
    body = replaced(loop.body, {loop.loop_var: outer * between + inner})
    zero = tirx.IntImm("int64", 0)
    unrolled = tirx.For(inner, zero, tirx.IntImm("int64", between), ForKind.SERIAL, body)
    return tirx.For(
        outer,
        zero,
        tirx.IntImm("int64", steps // between),
        ForKind.SERIAL,
        tirx.SeqStmt([*(fetch(replaced(line, later)) for line in lines_of(weight, loop)), unrolled]),
        annotations={_APART_MARK: 1},
    )


def _set_rows_apart(func: Any, _mod: Any, _context: Any) -> Any:
    """Make each row of a tile whose sum fetches a buffer of its own, if the tile were not on the stack."""
    stored: list[Any] = []

    def note(loop: Any) -> None:
        if _APART_MARK in loop.annotations:
            stored.extend(store.buffer for store in stores_of(loop.body))

    structural_walk(func.body, [(tirx.For, note)])
    body = func.body
    for tile in dict.fromkeys(stored):
        if buffer_bytes(tile) >= _HEAP_BYTES:
            body = _with_rows_apart(body, tile)
    return func.with_body(body)


def _with_rows_apart(body: Any, tile: Any) -> Any:
    """Return statements in which rows of a buffer are buffers: along its first axis longer than one."""
    axis = next(i for i, extent in enumerate(tile.shape) if int(extent) > 1)
    shape = [extent for i, extent in enumerate(tile.shape) if i != axis]
    rows = [tirx.decl_buffer(shape, tile.dtype, f"{tile.name}_{r}") for r in range(int(tile.shape[axis]))]
    simplify = Analyzer().simplify
    along: set[Any] = set()

    def note(indices: Any) -> None:
        along.update(index_variables([indices[axis]]))

    def unrolled(loop: Any) -> Any:
        if loop.loop_var not in along:
            return loop
        each = range(int(loop.extent))
        return tirx.SeqStmt([replaced(loop.body, {loop.loop_var: tirx.IntImm("int64", i)}) for i in each])

    def place(indices: Any) -> tuple[Any, list[Any]]:
        return rows[int(simplify(indices[axis]))], [index for i, index in enumerate(indices) if i != axis]

    def loaded(load: Any) -> Any:
        if not load.source.same_as(tile):
            return load
        row, indices = place(load.indices)
        return row[tuple(indices)]

    def put(store: Any) -> Any:
        if not store.buffer.same_as(tile):
            return store
        row, indices = place(store.indices)
        return tirx.BufferStore(row, store.value, indices)

    def allocated(allocation: Any) -> Any:
        if not allocation.buffer.same_as(tile):
            return allocation
        return tirx.SeqStmt([tirx.AllocBuffer(row) for row in rows])

    structural_walk(
        body,
        [
            (tirx.BufferStore, lambda store: note(store.indices) if store.buffer.same_as(tile) else None),
            (TensorLoad, lambda load: note(load.indices) if load.source.same_as(tile) else None),
        ],
    )
    body = structural_map(body, [(tirx.For, unrolled)])
    return structural_map(
        body, [(TensorLoad, loaded), (tirx.BufferStore, put), (tirx.AllocBuffer, allocated)]
    )


share_fetches = tirx.transform.prim_func_pass(_fetch_panels, opt_level=0)
"""The pass that gives the marked sums of functions of plain loops their prefetches."""

set_rows_apart = tirx.transform.prim_func_pass(_set_rows_apart, opt_level=0)
"""The pass after it, when loops have been cut: tiles of which rows can be in registers."""
