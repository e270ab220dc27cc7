"""Transposition: what is contiguous in the input is not in the output. Squares are transposed in registers.

Before::

    for i, j:  y[i, j] = x[j, i]

After::

    for parts of i, blocks of j (parallel):
        for squares along i, squares along j:
            16 vectors of x, swapped in 4 rounds, are 16 vectors of y

Past the caches squares are written in whole lines. Where they do not divide the output's rows these begin
anywhere, and so do the rows of a square (`forms.skewed_squares`). Short rows that follow each other go by way
of a buffer (`forms.buffered_squares`).

Other axes stay around it. Lines are read and written whole. A thread's rows of the output are its own where
there are enough: if two threads write parts of the same rows, each fetches lines that the other writes.
Without that 128 x 768 takes 0.56 of the time on 2 threads of a Zen 4.
"""

from __future__ import annotations

from math import ceil, prod

from tvm import s_tir

from ..forms.squares import PARTS, SQUARES
from ..passes.row_prefetch import fetch_ahead
from ..rule import ScheduleRule
from ..transforms import LEAST_PARALLEL_WORK, spread
from .transpose_space import form_of_squares, transpose_space

# A core moves a square faster than elements: on 2 threads of a Zen 4 192 x 192 takes 1.1 (float32) and 1.5
# (int8) times as long as on one, 256 x 256 0.96 and 1.06, 384 x 384 0.66 and 0.98.
_LEAST_PARALLEL_WORK = 2 * LEAST_PARALLEL_WORK


def schedule_transpose(
    sch: s_tir.Schedule,
    *,
    lanes: int,
    squares: int,
    stretch: int,
    parallel: int,
    stream: int,
    ahead: int = 0,
    buffered: int = 0,
    skewed: int = 0,
) -> None:
    """Rewrite a transposition, in the form of squares, in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` of squares, buffered or not.
    lanes : int
        Rows and columns of a square.
    squares : int
        Squares in a block along the output's rows; as many as divide them, if there are such.
    stretch : int
        The most squares in a block along the input's rows.
    parallel : int
        1 spreads the blocks over the threads; 0 stays on one.
    stream : int
        1 writes the output past the caches.
    ahead : int
        1: a block also asks for what the next one reads, see `row_prefetch` and its form.
    buffered, skewed : int
        1: the function is in the form of that name, which has loops of its own for the others.
    """
    if buffered or skewed:
        work = prod(int(extent) for extent in sch.mod["main"].params[-1].shape)
        spread(sch, sch.get_loops(sch.get_sblock(PARTS)), work, parallel)
        return
    share_squares(
        sch, SQUARES, lanes, squares=squares, stretch=stretch, parallel=bool(parallel), ahead=bool(ahead)
    )


def share_squares(
    sch: s_tir.Schedule,
    name: str,
    lanes: int,
    *,
    squares: int,
    stretch: int,
    parallel: bool = True,
    by_columns: bool = False,
    ahead: bool = False,
) -> None:
    """Cut a block of squares into blocks that stay on few pages, and spread these over the threads.

    ``by_columns``: threads own columns of the output, else rows. ``ahead``: what the next block reads, the
    same rows of the input further on, is fetched.
    """
    *others, rows, columns = loops = sch.get_loops(sch.get_sblock(name))
    extents = [int(sch.get(loop).extent) for loop in loops]
    # As many parts as a power of two: threads that write parts of the same rows fetch each other's lines.
    count = 1 << (ceil(extents[-2] / stretch) - 1).bit_length()
    row_parts, rows = sch.split(rows, [None, ceil(extents[-2] / count)])
    column_blocks, columns = sch.split(columns, [None, squares_in_block(extents[-1], squares)])
    parts = (column_blocks, row_parts) if by_columns or ahead else (row_parts, column_blocks)
    sch.reorder(*others, *parts, rows, columns)
    blocks = sch.fuse(*others, *parts)
    if ahead:
        fetch_ahead(sch, blocks, columns, 1)
    if parallel and prod(extents) * lanes**2 >= _LEAST_PARALLEL_WORK:
        sch.parallel(blocks)


def squares_in_block(count: int, wanted: int) -> int:
    """Return the most squares, up to a number, that divide an axis; the fewest above it; else that number.

    A square a row is half a line: 16 x 56 x 56 x 256 with the channels moved first takes a third of the time
    with 7 squares in a row.
    """
    fewer, more = range(wanted, 1, -1), range(wanted + 1, 2 * wanted + 1 if wanted > 1 else 0)
    return next((s for s in (*fewer, *more) if count % s == 0), min(wanted, count))


TRANSPOSE = ScheduleRule(
    name="transpose",
    summary="squares transposed in registers, in blocks that stay on few pages",
    rewrite=schedule_transpose,
    open_space=transpose_space,
    algorithm=form_of_squares,
)
