"""Sums by a matrix unit: what `TileInstruction`s add up stays in their tiles until the sum is complete.

A schedule marks the loop over tiles, and in it the loop over rows of one step of the sum::

    for tiles:                                            # TILES_MARK
        for i, j:  sums[i, j] = 0
        for steps:
            for i:  for j, k:  sums[i, j] += data[.., i, .., k] * panel[k // p, j, k % p]   # STEP_MARK
        for i, j:  out[..., i, j] = f(sums[i, j])

When blocks have become plain loops (`loop_partition`), up to four tiles of sums are set to zero, gain the
products of each step and are stored to ``sums``. Registers belong to a thread: those are configured where
the loop with THREADS_MARK begins an iteration, and given back where it ends. A tile's rows may lie any
distance apart, so a window's pixels are read where they lie, and every second one as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import s_tir, tirx
from tvm.script import tirx as T
from tvm_ffi import structural_map, structural_walk

from ...machine.tile_instructions import (
    CONFIGURATION_WORDS,
    configuration,
    configured,
    permission,
    released,
)
from ..expressions import stores_of
from ..restatement import in_order, statements, without_mark
from .bfloat16_bits import keep_bfloat16
from .float32_parts import in_parts
from .tile_step import TileStep

THREADS_MARK = "tunesmith.tile_registers"
"""Annotation of a loop each of whose iterations is one thread's, and configures the tiles for itself."""

TILES_MARK = "tunesmith.matrix_tiles"
"""Annotation of a loop in it over tiles of the result."""

STEP_MARK = "tunesmith.matrix_step"
"""Annotation of a loop in that over the rows of a tile, in a step of the sum."""


def use_tiles(sch: s_tir.Schedule, threads: Any, tiles: Any, rows: Any) -> None:
    """Mark the loops over what threads share, over tiles, and over the rows of a step."""
    sch.annotate(threads, THREADS_MARK, 1)
    mark_tiles(sch, tiles, rows)


def mark_tiles(sch: s_tir.Schedule, tiles: Any, rows: Any) -> None:
    """Mark loops over tiles and over the rows of a step, in a loop over what threads share.

    All such loops in one use tiles of the same shapes.
    """
    sch.annotate(tiles, TILES_MARK, 1)
    sch.annotate(rows, STEP_MARK, 1)


def _use_tiles(func: Any, _mod: Any, _context: Any) -> Any:
    steps: list[TileStep] = []
    body = structural_map(func.body, [(tirx.For, lambda loop: _by_thread(loop, steps))])
    if not steps:
        return func
    for step in steps:
        body = in_parts(body, step.parted)
    return func.with_body(tirx.SeqStmt([tirx.Evaluate(permission()), keep_bfloat16(body)]))


def _by_thread(threads: Any, steps: list[TileStep]) -> Any:
    """Return a loop whose iterations configure the tiles that its marked loops use; note their steps."""
    if THREADS_MARK not in threads.annotations:
        return threads
    buffers: list[Any] = []
    shapes: list[tuple[int, int]] = []

    def tiled(loop: Any) -> Any:
        if TILES_MARK not in loop.annotations:
            return loop
        step = _step_in(loop)
        steps.append(step)
        assert shapes in ([], step.shapes), "threads configure tiles once"
        shapes[:] = step.shapes
        return without_mark(loop, TILES_MARK, body=_tile(loop.body, step, buffers))

    body = structural_map(threads.body, [(tirx.For, tiled)])
    words = tirx.decl_buffer((CONFIGURATION_WORDS,), "int64", "tile_configuration")
    numbered = enumerate(configuration(shapes))
    statements = [
        *(tirx.AllocBuffer(buffer) for buffer in (words, *buffers)),
        # TVM makes a buffer as small as what it sees of it, and it sees nothing of what instructions store.
        *(
            tirx.BufferStore(b, tirx.const(0, str(b.dtype)), [extent - 1 for extent in b.shape])
            for b in buffers
        ),
        *(tirx.BufferStore(words, T.int64(word), [T.int64(at)]) for at, word in numbered),
        tirx.Evaluate(configured(words)),
        body,
        tirx.Evaluate(released()),
    ]
    return without_mark(threads, THREADS_MARK, body=tirx.SeqStmt(statements))


def _step_in(tiles: Any) -> TileStep:
    """Return the step of the sum in a marked loop over tiles."""
    (loop,) = _found(tiles.body, lambda each: STEP_MARK in each.annotations)
    (store,) = stores_of(loop.body)
    return TileStep(loop, store)


def _tile(body: Any, step: TileStep, buffers: list[Any]) -> Any:
    """Return the statements that compute a tile; the buffer of its sums is left to who has several tiles."""
    sums = step.store.buffer
    by_unit = tirx.SeqStmt(_statements(step.products()))
    tiled: list[Any] = []
    parts = statements(body)
    sets = any(_stores_to(sums, each) and not _found(each, step.loop.same_as) for each in parts)
    for each in parts:
        if isinstance(each, tirx.AllocBuffer) and each.buffer.same_as(sums):
            buffers.append(sums)
        elif _found(each, step.loop.same_as):
            loops = structural_map(
                each, [(tirx.For, lambda at: by_unit if STEP_MARK in at.annotations else at)]
            )
            before = step.zeros() if sets else step.loads()
            summed = tirx.SeqStmt([*_statements(before), loops, *_statements(step.stores())])
            there = step.condition
            tiled.append(summed if there is None else tirx.IfThenElse(there, summed, None))
        elif not _stores_to(sums, each):
            tiled.append(each)
    return in_order(tiled)


def _stores_to(buffer: Any, statement: Any) -> bool:
    """Tell whether a statement stores to a buffer."""
    return any(store.buffer.same_as(buffer) for store in stores_of(statement))


def _statements(calls: Sequence[Any]) -> list[Any]:
    return [tirx.Evaluate(call) for call in calls]


def _found(statement: Any, wanted: Callable[[Any], bool]) -> list[Any]:
    """Return the loops in a statement that are as wanted."""
    found: list[Any] = []

    def note(each: Any) -> None:
        if wanted(each):
            found.append(each)

    structural_walk(statement, [(tirx.For, note)])
    return found


use_matrix_tiles = tirx.transform.prim_func_pass(_use_tiles, opt_level=0)
"""The pass that puts the instructions in place of marked loops of functions of plain loops."""
