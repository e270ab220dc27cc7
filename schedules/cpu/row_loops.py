"""The loops of a row-by-row nest: those over rows outside, those over a row's elements in vectors."""

from __future__ import annotations

from typing import Any

from tvm import s_tir

from ..analysis import has_condition, loops_by_kind
from ..lane_reduction import arrange_parts
from ..passes.loop_partition import partition

# Elements of each of neighbouring rows that are added to their sums at a time.
_ADDED_AT_ONCE = 4


def row_loop(
    sch: s_tir.Schedule,
    last: str,
    rows: tuple[tuple[int, int], ...],
    wide: int,
    lines: int,
    block: int,
    parallel: bool,
) -> Any:
    """Bring the loops over rows outside and spread them; return the innermost of them.

    ``wide``: neighbouring rows of a tile, in a line; 0: each is by itself. ``lines``: lines of a tile.
    """
    loops = list(sch.get_loops(sch.get_sblock(last)))
    outer: list[Any] = []
    inner: list[Any] = []
    for position, neighbours in rows:
        loop, *within = (
            sch.split(loops[position], [None, neighbours]) if neighbours > 1 else [loops[position]]
        )
        outer.append(loop)
        inner += within
    inner += [loop for i, loop in enumerate(loops) if i not in {position for position, _ in rows}]
    if not wide:
        *outer, blocks = outer
        blocks, *within = sch.split(blocks, [None, block]) if block > 1 else [blocks]
        sch.reorder(*outer, blocks, *within, *inner)
        row = sch.fuse(*outer, blocks)
        if parallel:
            sch.parallel(row)
        return row
    tile, *neighbours = sch.split(outer[-1], [None, wide])
    if lines > 1:
        # The last loop, whole, is in the tile.
        outer[-2], line = sch.split(outer[-2], [None, lines])
        neighbours.insert(0, line)
    sch.reorder(*outer[:-1], tile, *inner, *neighbours)
    tile = sch.fuse(*outer[:-1], tile)
    if parallel:
        sch.parallel(tile)
    return tile


def arrange(
    sch: s_tir.Schedule,
    name: str,
    depth: int,
    lanes: int,
    dimensions: int,
    across: int,
    together: int,
    cut: bool = True,
    piece: int = 0,
) -> Any:
    """Order and vectorize the loops of a block inside the loop over rows.

    ``dimensions``: its first loops that are kept count parts of a row, which are one vector. ``across``: how
    many of its last loops count neighbouring rows, which are vectors. ``together``: vectors of a row made
    side by side. ``cut``: whether an incomplete vector at the end is computed after the others. ``piece``: as
    in `arrange_parts`. Returns the loop over vectors of a row, or over so many.
    """
    if across:
        return _arrange_across(sch, name, depth, lanes, across)
    if dimensions:
        return arrange_parts(sch, name, dimensions, depth, lanes, piece)
    block = sch.get_sblock(name)
    kept, reduced = loops_by_kind(sch, block, depth)
    if not kept or reduced or lanes == 1:
        return None
    steps, vector, extent = None, kept[-1], int(sch.get(kept[-1]).extent)
    if extent > lanes * together:
        # Vectors of several registers: each operation on all of them before the next, which waits for none.
        steps, vector = sch.split(vector, [None, lanes * together])
        if cut and (extent % lanes or has_condition(sch, name)):
            partition(sch, steps)
    sch.vectorize(vector)
    return steps


def _arrange_across(sch: s_tir.Schedule, name: str, depth: int, lanes: int, across: int) -> None:
    """Order and vectorize the loops of a block over neighbouring rows, the last ones that it keeps.

    The sums of all of them stay in L1 while a few elements of each are added at a time: memory is then read
    in stretches as long as there are neighbours.
    """
    block = sch.get_sblock(name)
    kept, reduced = loops_by_kind(sch, block, depth)
    if not kept:
        # One row has no neighbours.
        return
    others, last = kept[:-across], kept[-across:]
    neighbour = sch.fuse(*last) if len(last) > 1 else last[0]
    *vectors, neighbour = sch.split(neighbour, [None, lanes])
    few = []
    if reduced:
        length = int(sch.get(reduced[-1]).extent)
        at_once = next(a for a in range(_ADDED_AT_ONCE, 0, -1) if length % a == 0)
        reduced[-1], *few = sch.split(reduced[-1], [None, at_once])
        sch.unroll(few[0])
    sch.reorder(*others, *reduced, *vectors, *few, neighbour)
    sch.vectorize(neighbour)
    if reduced:
        sch.decompose_reduction(block, reduced[0])
