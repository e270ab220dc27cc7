"""A few rows by a matrix that exceeds the caches: it is read once, in whole stretches of memory.

Before::

    for row, column, k:  out[row, column] += data[row, k] * weight[k, column]

After::

    steps[k // depth, row, k % depth] = data
    for a thread's columns (parallel):
        sums[column // (vectors * lanes), row, ...] = 0
        for k // depth, tiles of columns, tiles of mr rows:
            for k % depth:
                for rows, vectors (unrolled):  sums[tile, row, :] += steps[row, k] * weight[k, tile]
        out = epilogue(sums)

The sums stay in L1 or L2, and those of a tile in registers for ``depth`` steps (`held_sums`); as many rows of
the weight are read side by side, each from one end to the other. A register tile over the whole sum, as
`matmul` has it, would read a few columns of every row: a page for a line. Data and sums are laid out as they
are read: rows a power of two apart would evict each other.

A convolution of few pixels, as a network's last ones are, is the same for each place of its window. Where
tiles fill the lines of a padded image, they read a copy of it, but for those that meet nothing but padding;
other data are copied as the windows lie on them, padding included.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir
from tvm.tirx import IndexMap

from ...machine.facts import line_elements
from ..nests.contraction import Contraction, find_contraction
from ..passes.held_sums import hold_sums
from ..passes.loop_partition import partition
from ..passes.padded_taps import leave_out_tiles
from ..passes.row_prefetch import fetch_ahead
from ..rule import ScheduleRule
from ..transforms import inline_blocks, panel_order, relayout_read, vectorize_last
from .few_rows_space import few_rows_space, reads_lines
from .operand_layout import block_of_result, load_of, pad_operands, producer_of


def schedule_few_rows(
    sch: s_tir.Schedule, *, lanes: int, vectors: int, depth: int, shares: int, mr: int, hold: int, fetch: int
) -> None:
    """Rewrite a product of a few rows in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of an unscheduled PrimFunc named ``main``.
    lanes : int
        Elements in a vector.
    vectors : int
        Vectors of columns in a tile.
    depth : int
        Rows of the weight that are read side by side.
    shares : int
        Parts of the columns that threads take.
    mr : int
        Rows in a tile.
    hold : int
        1: a tile's sums are in registers for ``depth`` steps, see `held_sums`; 0: these are unrolled.
    fetch : int
        1: tiles also ask for the rows of the weight that are read next, see `row_prefetch`.
    """
    nest = find_contraction(sch.mod["main"])
    assert nest is not None, "the rule's space says that there is one"
    inline_blocks(sch, [*(name for name in nest.prologue if name != nest.staged), *nest.epilogue[:-1]])
    block = sch.get_sblock(nest.block)
    last = sch.get_sblock(nest.epilogue[-1]) if nest.epilogue else None
    padded = pad_operands(sch, nest, lanes, 1, lanes * vectors * shares, 1)
    if padded:  # The weight is read where it lies, by masks where it ends.
        sch.compute_inline(producer_of(sch, block, nest.weight))
    tail = block_of_result(sch, block, last, padded)
    in_lines = reads_lines(nest, mr)
    if nest.all_rows > 1 or not nest.plain:
        _copy_steps(sch, nest, block, lanes, depth, in_lines)
    others = [i for i in range(nest.output_rank) if i != nest.output_column]
    order = panel_order(nest.output_rank, (), nest.output_column, others, vectors * lanes)
    sch.transform_layout(block, ("write", 0), order)

    loops = sch.get_loops(block)
    rows, (*windows, along) = [loops[i] for i in sorted(nest.rows)], [loops[i] for i in nest.reductions]
    # Pixels of several lines lie side by side in a copy of windows: 7x7 are 12 tiles of 4 and one pixel.
    lines = [loops[i] for i in nest.rows[:-1]] if in_lines else []
    pixels = loops[nest.rows[-1]] if in_lines or len(rows) == 1 else sch.fuse(*rows)
    tiles, row = sch.split(pixels, [None, mr])
    share, panel, vector, lane = sch.split(loops[nest.column], [shares, None, vectors, lanes])
    deep, step = sch.split(along, [None, depth])
    sch.reorder(share, *windows, deep, panel, *lines, tiles, step, row, vector, lane)
    for loop in (row, vector) if hold else (step, row, vector):
        sch.unroll(loop)
    sch.vectorize(lane)
    sch.parallel(share)
    sch.reverse_compute_at(tail, share)
    vectorize_last(sch, tail, lanes)
    if nest.all_rows % mr:
        partition(sch, tiles)
    sch.decompose_reduction(block, windows[0] if windows else deep)
    if in_lines:
        leave_out_tiles(sch, block, nest, dict(zip(nest.rows, [*lines, tiles], strict=True)))
    if hold:
        hold_sums(sch, step)
    if fetch:
        fetch_ahead(sch, deep, panel, 1)


def _copy_steps(
    sch: s_tir.Schedule, nest: Contraction, block: Any, lanes: int, depth: int, in_lines: bool
) -> None:
    """Copy data in the order in which they are read; of a convolution, what is under each output's window.

    Tiles that are ``in_lines`` read the padded image, as what pads it lays it out.
    """
    windows: list[int] = []
    if in_lines:
        copy, channel = sch.get_sblock(nest.staged), nest.data_channel
    elif nest.plain:
        copy, channel = sch.cache_read(block, nest.data, "global"), nest.data_channel
    else:
        copy, node = sch.reindex(block, ("read", nest.data)), sch.get(block)
        # A window's loop of one iteration is no dimension of the copy.
        place = {axis: dimension for dimension, axis in enumerate(load_of(node, nest.data).indices)}
        *windows, channel = [place[var] for at in nest.reductions if (var := node.iter_vars[at].var) in place]
    if nest.staged and not in_lines:
        sch.compute_inline(sch.get_sblock(nest.staged))
    rank = len(sch.get(copy).writes[0].source.shape)
    rows = [i for i in range(rank) if i not in (*windows, channel)]

    def order(*index: Any) -> tuple[Any, ...]:
        """From data's indices to (window..., k // depth, rows..., k % depth)."""
        steps, step = index[channel] // depth, index[channel] % depth
        return *(index[i] for i in windows), steps, *(index[i] for i in rows), step

    order_of_reading = IndexMap.from_func(order, ndim=rank, index_dtype="int64")
    relayout_read(sch, block, nest.data, copy, order_of_reading)
    # Steps that share a line of data are copied one after the other: 49 rows of 2048, a power of two apart,
    # would evict it in between (0.97 of the time of the whole product).
    loops = sch.get_loops(copy)
    (*places, deep), others = loops[: len(windows) + 1], loops[len(windows) + 1 : -1]
    steps = int(sch.get(deep).extent)
    in_line = max(1, line_elements(nest.data_dtype) // depth)
    deep, beside = sch.split(deep, [None, next(n for n in range(in_line, 0, -1) if steps % n == 0)])
    sch.reorder(deep, *others, beside, loops[-1])
    vectorize_last(sch, copy, lanes)
    sch.parallel(sch.fuse(*places, deep) if places else deep)


FEW_ROWS = ScheduleRule(
    name="few_rows",
    summary="a few rows by a large matrix, which is read in whole stretches of memory",
    rewrite=schedule_few_rows,
    open_space=few_rows_space,
)
