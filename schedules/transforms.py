"""Rewritings that several schedules share. Each changes a schedule in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import gcd
from typing import Any

from tvm import s_tir
from tvm.tirx import ForKind, IndexMap

from .analysis import block_names, iterations, loops_inside
from .transposition import transposition_intrinsic

PACKING_MARK = "meta_schedule.layout_rewrite_preproc"
"""TVM's mark of a block that packs a constant argument: whoever compiles the caller may run it beforehand."""


LEAST_PARALLEL_WORK = 1 << 15
"""Elements below which waking the other threads (about 5 us) costs more than it saves."""

LEAST_PARALLEL_SUMS = 1 << 17
"""Multiply-adds below which it does: one core does these in 1 us."""


# An innermost loop of more vectors, the last of them incomplete, is not made one.
_LONG_VECTORS = 32

# So many iterations are shared by threads without the loops in them: to find where each short row lies takes
# longer than its copy. (12, 128, 64), its first two axes exchanged, takes 0.69 to 0.72 of the time, 8 of (12,
# 197, 64) 0.97, 70x70 of 32 channels resized by 2 0.84 (2 threads of a Zen 5).
_ENOUGH_SHARED = 128


def attempt(primitive: Callable[..., Any], *args: Any) -> bool:
    """Apply a primitive where the computation allows it; a refused one changes nothing."""
    try:
        primitive(*args)
    except s_tir.ScheduleError:
        return False
    return True


def spread(sch: s_tir.Schedule, loops: Sequence[Any], work: int, parallel: int) -> Any:
    """Fuse loops and run them on all threads where that pays; return the fused loop.

    Those from which another block's loops branch off are left inside.
    """
    fused, *inner = loops
    for loop in inner:
        try:
            fused = sch.fuse(fused, loop)
        except s_tir.ScheduleError:
            break
    if parallel and work >= LEAST_PARALLEL_WORK:
        attempt(sch.parallel, fused)
    return fused


def enough_to_share(sch: s_tir.Schedule, loops: Sequence[Any]) -> Sequence[Any]:
    """Return the fewest outermost loops with enough iterations for threads to share.

    Of loops that are fused the index is divided anew in each iteration, for which a copy of short rows waits.
    """
    shares = [iterations(sch, loops[:count]) for count in range(1, len(loops))]
    count = next((at for at, shared in enumerate(shares, 1) if shared >= _ENOUGH_SHARED), len(loops))
    return loops[:count]


def inline_blocks(sch: s_tir.Schedule, names: Iterable[str]) -> None:
    """Compute each named block inside the blocks that read it."""
    for name in names:
        sch.compute_inline(sch.get_sblock(name))


def relayout_read(sch: s_tir.Schedule, block: Any, read: int, producer: Any, order: IndexMap) -> None:
    """Change the layout of a buffer between its producer and its reader, and the producer's loops with it.

    Parameters
    ----------
    sch : Schedule
        The schedule.
    block : SBlockRV
        The reader.
    read : int
        Which of its reads.
    producer : SBlockRV
        The block that writes the buffer, with one loop for each of its dimensions.
    order : IndexMap
        From old to new indices.
    """
    sch.transform_layout(block, ("read", read), order)
    sch.transform_block_layout(producer, order)


def panel_order(
    rank: int, batch: Sequence[int], column: int, others: Sequence[int], nr: int, products: int = 1
) -> IndexMap:
    """Return the index map from a weight's indices to (batch..., column // nr, others..., column % nr).

    Several ``products`` cut the last of the others: (..., last // products, column % nr, last % products).
    """

    def order(*index: Any) -> tuple[Any, ...]:
        outside = (*(index[i] for i in batch), index[column] // nr)
        *sums, last = (index[i] for i in others)
        if products == 1:
            return (*outside, *sums, last, index[column] % nr)
        return (*outside, *sums, last // products, index[column] % nr, last % products)

    return IndexMap.from_func(order, ndim=rank, index_dtype="int64")


def last_order(rank: int, last: int) -> IndexMap:
    """Return the index map that moves one dimension to the end."""

    def order(*index: Any) -> tuple[Any, ...]:
        return (*index[:last], *index[last + 1 :], index[last])

    return IndexMap.from_func(order, ndim=rank, index_dtype="int64")


def vectorize_last(sch: s_tir.Schedule, block: Any, lanes: int) -> None:
    """Vectorize the innermost loop of a block by ``lanes`` where it has whole vectors, else as it is.

    A long one by the part of a vector that it has whole, and not at all without: LLVM takes minutes over a
    vector of 2000 elements.
    """
    loop = sch.get_loops(block)[-1]
    extent = int(sch.get(loop).extent)
    whole = lanes if extent % lanes == 0 or extent <= _LONG_VECTORS * lanes else gcd(extent, lanes)
    if extent > whole > 1 and extent % whole == 0:
        _, loop = sch.split(loop, [None, whole])
    if min(extent, whole) > 1:
        sch.vectorize(loop)


def finish_tile(sch: s_tir.Schedule, tail: Any, tile: Any, lanes: int) -> None:
    """Compute what reads a register tile in the loop over tiles: in vectors, and without loops.

    A loop over the rows of the tile would index it by a variable, and LLVM would keep it in memory.
    """
    sch.reverse_compute_at(tail, tile, preserve_unit_loops=lanes == 1)
    vectorize_last(sch, tail, lanes)
    for loop in loops_inside(sch, tail, tile):
        if sch.get(loop).kind == ForKind.SERIAL:
            sch.unroll(loop)


def copy_in_vectors(sch: s_tir.Schedule, block: Any, lanes: int, parallel: bool = True) -> None:
    """Run a copy's innermost loop as vectors, its outer loops on all threads where it is ``parallel``."""
    loops = sch.get_loops(block)
    vectorize_last(sch, block, lanes)
    if parallel and len(loops) > 1:
        sch.parallel(sch.fuse(*loops[:-1]) if len(loops) > 2 else loops[0])


def unroll_tile(sch: s_tir.Schedule, outside: Sequence[Any], row: Any, column: Any, lanes: int) -> None:
    """Bring the rows and columns of a tile inside of other loops, without loops but a vector's."""
    vector, lane = sch.split(column, [None, lanes])
    sch.reorder(*outside, row, vector, lane)
    sch.unroll(row)
    sch.unroll(vector)
    sch.vectorize(lane)


def transpose_last(sch: s_tir.Schedule, block: Any, lanes: int, dtype: str) -> None:
    """Copy the last two axes, which the source has in the other order, in squares of lanes held in registers.

    Both extents are multiples of ``lanes``.
    """
    *_, row = split_squares(sch, block, lanes)
    sch.tensorize(row, transposition_intrinsic(lanes, dtype))


def split_squares(sch: s_tir.Schedule, block: Any, lanes: int) -> tuple[Any, Any, Any]:
    """Split the last two loops into squares; return those over squares and that over a square's rows."""
    *_, row, column = sch.get_loops(block)
    rows, row = sch.split(row, [None, lanes])
    columns, column = sch.split(column, [None, lanes])
    sch.reorder(columns, rows, row, column)
    return columns, rows, row


def keep_separable_packing(sch: s_tir.Schedule) -> None:
    """Unmark packing blocks inside other loops: they pack block by block, and cannot be run before."""
    for block in map(sch.get_sblock, block_names(sch)):
        if PACKING_MARK in sch.get(block).annotations:
            loops = sch.get_loops(block)
            if loops and len(sch.get_child_blocks(loops[0])) > 1:
                sch.unannotate(block, PACKING_MARK)
