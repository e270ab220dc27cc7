"""Reductions of the general schedule: sums in registers, outputs in vectors or sums in parts.

- Where outputs lie side by side, a vector of them is summed at a time.
- A sum along the contiguous axis is kept as ``lanes`` partial sums: LLVM may not reorder a float sum.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import s_tir
from tvm.tirx import IterVar

from ..analysis import (
    block_of,
    contiguous_reduction,
    is_elementwise_after,
    loops_by_kind,
    output_blocks,
    static_extents,
)
from ..expressions import are_just, index_variables, loads_of, step_along
from ..passes.loop_partition import partition
from ..transforms import attempt, spread


def schedule_reduction(sch: s_tir.Schedule, name: str, lanes: int, parallel: int) -> None:
    """Spread the outputs of a reduction over threads and vectors, in place; sum inside, in registers.

    Parameters
    ----------
    sch : Schedule
        A schedule of any PrimFunc.
    name : str
        The block that reduces; its loops are as they were.
    lanes : int
        Elements in a vector.
    parallel : int
        1 spreads the outputs over the threads where there is enough work.
    """
    extents = static_extents(sch, name)
    block = sch.get_sblock(name)
    kinds = [v.iter_type for v in sch.get(block).iter_vars]
    loops = sch.get_loops(block)
    spatial = [i for i, kind in enumerate(kinds) if kind == IterVar.DataPar]
    sums = [i for i, kind in enumerate(kinds) if kind == IterVar.CommReduce]
    if extents is None or len(spatial) + len(sums) != len(kinds) or not spatial:
        attempt(sch.parallel, loops[0])
        return
    work = prod(extents)
    if contiguous_reduction(sch, name):
        if lanes > 1 and extents[sums[-1]] % lanes == 0 and extents[sums[-1]] > lanes:
            _partial_sums(sch, name, [loops[i] for i in spatial], loops[sums[-1]], lanes, work, parallel)
        elif lanes > 1 and len(sums) == 1 and extents[sums[0]] > 4 * lanes and _is_single(sch, name):
            _partial_sums_apart(sch, name, loops[sums[0]], 4 * lanes, work, parallel)
        else:
            sch.reorder(*(loops[i] for i in spatial + sums))
            spread(sch, [loops[i] for i in spatial], work, parallel)
        return
    outer, inner, rest = [loops[i] for i in spatial[:-1]], loops[spatial[-1]], []
    # Its reader, which takes whole rows, has its place in a loop around.
    flat = 2 < len(spatial) and extents[spatial[-1]] < lanes and _moves_along_rows(sch, name, spatial)
    if flat and extents[spatial[-1]] * extents[spatial[-2]] > lanes:
        sch.reorder(*outer, inner)
        row = sch.fuse(outer.pop(), inner)
        tiles, inner = sch.split(row, [None, lanes])
        sch.vectorize(inner)
        partition(sch, tiles)
        rest = [tiles]
    elif lanes > 1 and extents[spatial[-1]] % lanes == 0:
        tiles, inner = sch.split(inner, [None, lanes])
        outer.append(tiles)
        sch.vectorize(inner)
    elif outer and extents[spatial[-1]] > lanes > 1 and name in output_blocks(sch):
        tiles, inner = sch.split(inner, [None, lanes])
        sch.vectorize(inner)
        partition(sch, tiles)
        rest = [tiles]
    if not outer:
        tiles, inner = sch.split(inner, [None, 1])
        outer.append(tiles)
    sch.reorder(*outer, *rest, *(loops[i] for i in sums), inner)
    at = spread(sch, outer, work, parallel)
    _place_reader(sch, name, at)
    attempt(sch.decompose_reduction, block, loops[sums[0]])


def _moves_along_rows(sch: s_tir.Schedule, name: str, spatial: list[int]) -> bool:
    """Tell whether the last two axes are like one in memory, in the output and where it reads inputs.

    So are pixels of a line by few channels, under windows that move by one pixel.
    """
    node = block_of(sch, name)
    pixel, last = (node.iter_vars[i] for i in spatial[-2:])
    loads = [load for load in loads_of(node.body) if not load.source.same_as(node.writes[0].source)]

    def is_flat(load: Any) -> bool:
        if len(load.indices) < 2 or getattr(load.source.shape[-1], "value", None) != int(last.dom.extent):
            return False
        *others, at, channel = load.indices
        alone = not {pixel.var, last.var} & index_variables(others) and last.var not in index_variables([at])
        return channel.same_as(last.var) and alone and step_along(at, pixel.var) == 1

    # Several results are stored by several statements.
    in_order = are_just(getattr(node.body, "indices", ())[-2:], [pixel.var, last.var])
    return in_order and bool(loads) and all(map(is_flat, loads))


def _partial_sums(
    sch: s_tir.Schedule, name: str, spatial: list[Any], contiguous: Any, lanes: int, work: int, parallel: int
) -> None:
    """Sum ``lanes`` interleaved parts as one vector, then the parts."""
    _, lane = sch.split(contiguous, [None, lanes])
    partial = sch.rfactor(lane, 0)
    final = sch.get_sblock(name)
    rows = sch.get_loops(final)[: len(spatial)]
    at = spread(sch, list(rows), work, parallel)
    if attempt(sch.compute_at, partial, at):
        lane_loop, *sums = sch.get_loops(partial)[1:]
        sch.reorder(*sums, lane_loop)
        attempt(sch.vectorize, lane_loop)
        attempt(sch.decompose_reduction, partial, sums[0])


def _is_single(sch: s_tir.Schedule, name: str) -> bool:
    """Tell whether a reduction keeps one value: TVM factors no other."""
    return len(block_of(sch, name).writes) == 1


def _partial_sums_apart(
    sch: s_tir.Schedule, name: str, contiguous: Any, width: int, work: int, parallel: int
) -> None:
    """Sum ``width`` interleaved parts of rows that they do not divide, in loops of their own.

    Where TVM moves these into the loops of the sums, it loses the condition of the last, incomplete part.
    """
    steps, lane = sch.split(contiguous, [None, width])
    partition(sch, steps)
    partial = sch.rfactor(lane, len(block_of(sch, name).writes[0].source.shape))
    rows, (step, *_) = loops_by_kind(sch, partial, 0)
    *rows, lane = rows
    sch.reorder(*rows, step, lane)
    sch.vectorize(lane)
    if rows:
        spread(sch, rows, work, parallel)
    attempt(sch.decompose_reduction, partial, step)


def _place_reader(sch: s_tir.Schedule, name: str, at: Any) -> None:
    """Compute the one elementwise reader of a sum right after it, on the part just summed."""
    readers = sch.get_consumers(sch.get_sblock(name))
    if len(readers) == 1 and is_elementwise_after(sch, name, str(sch.get(readers[0]).name_hint)):
        attempt(sch.reverse_compute_at, readers[0], at)
