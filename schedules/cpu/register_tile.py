"""The register-tiled, packed loop nest that matrix multiplication and convolution share.

Before, perhaps for each of a batch::

    for row, column, k:  out[row, column] += data[row, k] * weight[k, column]

After, with a tile of ``mr`` rows by ``nr`` columns held in registers over the whole sum::

    for blocks of columns and rows, in parallel:
        panel[column // nr, k, column % nr] = weight       # contiguous along the tile
        for tiles of nr columns, tiles of mr rows:
            acc[mr, nr] = 0
            for k:
                for mr rows (unrolled), nr columns (vectors):  acc += data[row, k] * panel[k, :]
            out = epilogue(acc)

A panel is read once a tile in one stream, and every load of data serves ``nr / lanes`` multiply-adds. The sum
is not blocked: a panel streams from L2, which feeds the two or more vectors that a step needs.

The tile has the scope "global": below 1 KiB TVM puts it on the stack, and LLVM into registers. What is
"local" comes from the heap: LLVM keeps a tile's last values, to write them back, while it computes others.

References
----------
Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008 (panels, register tile).
"""

from __future__ import annotations

from math import gcd, prod
from typing import Any

from tvm import s_tir

from ..contraction import Contraction, find_contraction
from ..dot_product import gather_products, interleave, use_dot_products
from ..loop_partition import partition
from ..transforms import (
    PACKING_MARK,
    finish_tile,
    inline_blocks,
    last_order,
    panel_order,
    parallel_copy,
    relayout_read,
    transpose_last,
    vectorize_last,
)

PACK_NOTHING, PACK_IN_BLOCK, PACK_FIRST = 0, 1, 2

# As many lines keep all threads busy. A copy of fewer is shared by pixels, whose places cost divisions: 32
# groups of 4 channels at 56x56 with padding take 0.76 ms with lines, 0.91 with pixels, one thread of a Zen 5.
_MANY_LINES = 32

# Vectors of fewer elements are worth no branches.
_LEAST_LANES = 4

# Below this many multiply-adds (1 us on one core), waking the other threads (5 us) costs more than it saves.
LEAST_PARALLEL_SUMS = 1 << 17


def register_tile(
    sch: s_tir.Schedule,
    *,
    lanes: int,
    mr: int,
    nr: int,
    block_rows: int,
    block_columns: int,
    split_columns: int,
    pack: int,
    pad: int = 0,
    products: int = 1,
) -> None:
    """Rewrite a contraction in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of an unscheduled PrimFunc named ``main`` that is a contraction.
    lanes : int
        Elements in a vector.
    mr, nr : int
        Rows and columns of the register tile; ``nr`` is a multiple of ``lanes``.
    block_rows, block_columns : int
        Register tiles in a block, in each direction; rows are a part of one line or whole lines.
    split_columns : int
        1: threads share the columns first; 0: the rows.
    pack : int
        ``PACK_NOTHING``: the weight is read where it lies; ``PACK_IN_BLOCK``: each block of columns packs its
        own panels, hot in cache (the threads then share the columns); ``PACK_FIRST``: all panels are packed
        before the loops, which costs nothing where the weight is constant.
    pad : int
        0: rows that are left after whole tiles are computed in a smaller one, where `can_cut` holds; 1: they
        are padded with zeros in a copy of the data.
    products : int
        Products that one instruction sums in each lane: 1, or as many as `dot_product` has.
    """
    nest = find_contraction(sch.mod["main"])
    assert nest is not None, "the rule's space says that there is one"
    tail = _inline_around(sch, nest)
    _stage_data(sch, nest, lanes, products)
    cut = pad == 0 and products == 1 and can_cut(nest, mr, block_rows, split_columns, pack)
    padded = _pad(sch, nest, 1 if cut else mr, nr, products)
    block = sch.get_sblock(nest.block)
    panels = None if pack == PACK_NOTHING else _pack_weight(sch, nest, nr, pack, products)
    if tail is None:
        tail = sch.get_consumers(block)[0] if padded else sch.cache_write(block, 0, "global")
    elif padded:
        sch.compute_inline(sch.get_consumers(block)[0])
    if nest.output_column != nest.output_rank - 1:
        sch.transform_layout(block, ("write", 0), last_order(nest.output_rank, nest.output_column))

    batch = [sch.get_loops(block)[i] for i in nest.batch]
    if products > 1:
        block = gather_products(sch, block, nest.column, nest.reductions[-1], nr // lanes)
    row_block, column_block, row_tile, sums = _tile_loops(
        sch, nest, block, mr, block_rows, [block_columns, *([nr // lanes, lanes] if products == 1 else [])]
    )
    finish_tile(sch, tail, row_tile, _stored_lanes(nest, lanes, nr))
    if split_columns or pack == PACK_IN_BLOCK:
        sch.reorder(column_block, row_block)
    whole = nest.columns % (nr * (block_columns if pack == PACK_IN_BLOCK else 1)) == 0
    shared = [*batch, column_block] if split_columns else [*batch, row_block, column_block]
    if pack == PACK_IN_BLOCK:
        sch.compute_at(panels, column_block)
        _copy_panels(sch, nest, panels, lanes, whole, products, parallel=False)
    elif split_columns:
        shared.append(row_block)
    if nest.sums >= LEAST_PARALLEL_SUMS:
        sch.parallel(sch.fuse(*shared) if len(shared) > 1 else column_block)
    if panels is not None and pack == PACK_FIRST:
        _copy_panels(sch, nest, panels, lanes, whole, products, parallel=True)
    if nest.rest:
        arrange = parallel_copy if nest.sums >= LEAST_PARALLEL_SUMS else vectorize_last
        arrange(sch, sch.get_sblock(nest.rest[-1]), lanes)
    if cut:
        partition(sch, row_tile)
        if block_rows < nest.tiles_in_line(mr):
            partition(sch, row_block)
    start = sch.decompose_reduction(block, sums)
    if products > 1:
        use_dot_products(sch, start, block)


def can_cut(nest: Contraction, mr: int, block_rows: int, split_columns: int, pack: int) -> bool:
    """Tell whether rows that are left after whole tiles can be cut off, by the knobs of `register_tile`.

    A loop over blocks of rows that is one with others cannot be cut before its last iteration.
    """
    one_block = block_rows >= nest.tiles_in_line(mr)
    by_itself = split_columns == 1 and pack == PACK_IN_BLOCK and len(nest.rows) == 1
    return nest.plain and nest.row_extent % mr != 0 and (one_block or by_itself)


def _tile_loops(
    sch: s_tir.Schedule,
    nest: Contraction,
    block: Any,
    mr: int,
    block_rows: int,
    columns: list[int],
) -> tuple[Any, Any, Any, Any]:
    """Split and order the loops; return those over row blocks, column blocks, row tiles and the first sum.

    ``columns`` are the panels of a block; also the vectors of a panel and their lanes, where these are loops.
    """
    loops = sch.get_loops(block)
    tiles, row = sch.split(loops[nest.rows[-1]], [None, mr])
    column_block, column_tile, *vectors = sch.split(loops[nest.column], [None, *columns])
    batch, outer = [loops[i] for i in nest.batch], [loops[i] for i in nest.rows[:-1]]
    sums = [loops[i] for i in nest.reductions]
    sch.reorder(*batch, *outer, tiles, column_block, column_tile, *sums, row, *vectors)
    in_line = nest.tiles_in_line(mr)
    # Only blocks are fused with lines: TVM cannot always tell them apart in a loop that is split again.
    if outer and block_rows > in_line:
        row_block, line = sch.split(sch.fuse(*outer), [None, block_rows // in_line])
        row_tiles = [line, tiles]
    else:
        tile_block, tile = sch.split(tiles, [None, block_rows])
        row_block, row_tiles = sch.fuse(*outer, tile_block), [tile]
    sch.reorder(row_block, column_block, column_tile, *row_tiles, *sums, row, *vectors)
    sch.unroll(row)
    if vectors:
        vector, lane = vectors
        sch.unroll(vector)
        sch.vectorize(lane)
    return row_block, column_block, row_tiles[-1], sums[0]


def _stored_lanes(nest: Contraction, lanes: int, nr: int) -> int:
    """Return the elements that a tile stores at once: none of them has a condition of its own.

    Where the columns end within a panel, vectors are stored only if they are inside.
    """
    if nest.columns % nr == 0 or nest.columns <= nr or nest.output_column != nest.output_rank - 1:
        return lanes
    whole = gcd(nest.columns, lanes)
    return whole if whole >= _LEAST_LANES else lanes


def _inline_around(sch: s_tir.Schedule, nest: Contraction) -> Any | None:
    """Inline what comes before and after; return the block that writes the result, if it is another."""
    inline_blocks(sch, [name for name in nest.prologue if name not in (nest.staged, nest.weight_block)])
    inline_blocks(sch, [*nest.epilogue[:-1], *nest.rest[:-1]])
    return sch.get_sblock(nest.epilogue[-1]) if nest.epilogue else None


def _pad(sch: s_tir.Schedule, nest: Contraction, mr: int, nr: int, products: int) -> bool:
    """Round axes up to whole tiles, in zero-filled copies of the operands: no tile then has a condition."""
    pad_rows = nest.plain and nest.row_extent % mr != 0
    pad_columns = nest.columns % nr != 0
    pad_sums = nest.channels % products != 0
    if not pad_rows and not pad_columns and not pad_sums:
        return False
    factors = [1] * len(nest.extents)
    if pad_rows:
        factors[nest.rows[-1]] = mr
    if pad_columns:
        factors[nest.column] = nr
    if pad_sums:
        factors[nest.reductions[-1]] = products
    block = sch.get_sblock(nest.block)
    window = None if nest.plain else sch.reindex(block, ("read", nest.data))
    sch.pad_einsum(block, factors)
    if window is not None:
        # pad_einsum wants plain indices; the window was made plain for it and is folded back.
        sch.compute_inline(window)
    if pad_sums:
        _copy_lines(sch, _producer_of(sch, block, nest.data))
    elif pad_rows:
        copy = _producer_of(sch, block, nest.data)
        parallel_copy(sch, copy, 1)
    return pad_rows or pad_columns


def _copy_lines(sch: s_tir.Schedule, copy: Any, lanes: int | None = None) -> None:
    """Run a copy on all threads line by line, its channels as vectors where they fill some."""
    *outer, _, _ = loops = sch.get_loops(copy)
    if lanes is not None:
        vectorize_last(sch, copy, lanes)
    sch.parallel(sch.fuse(*outer) if len(outer) > 1 else loops[0])


def _pack_weight(sch: s_tir.Schedule, nest: Contraction, nr: int, pack: int, products: int) -> Any:
    """Lay the weight out in panels of nr columns: see `panel_order`."""
    block = sch.get_sblock(nest.block)
    if nest.columns % nr or nest.channels % products:
        panels = _producer_of(sch, block, nest.weight)
        inline_blocks(sch, [nest.weight_block] if nest.weight_block else [])
    elif nest.weight_block:
        panels = sch.get_sblock(nest.weight_block)
    else:
        panels = sch.cache_read(block, nest.weight, "global")
    at = nest.weight_axes.index
    batch, others = [at(axis) for axis in nest.batch], [at(axis) for axis in nest.reductions]
    order = panel_order(len(nest.weight_axes), batch, at(nest.column), others, nr, products)
    relayout_read(sch, block, nest.weight, panels, order)
    if nest.constant_weight and pack == PACK_FIRST:
        sch.annotate(panels, PACKING_MARK, True)
    return panels


def _copy_panels(
    sch: s_tir.Schedule,
    nest: Contraction,
    panels: Any,
    lanes: int,
    whole: bool,
    products: int,
    parallel: bool,
) -> None:
    """Write panels in vectors; where the weight is contiguous along the sum, transpose it in registers.

    ``whole``: no panel and no block of them is cut short.
    """
    if products > 1 and whole and nest.channels % products == 0 and nest.weight_axes[-1] == nest.column:
        outer = interleave(sch, panels)
        if parallel:
            sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])
        return
    squares = whole and lanes > 1 and nest.channels % lanes == 0 and nest.weight_dtype == nest.dtype
    if squares and nest.weight_axes[-1] == nest.reductions[-1] and not nest.constant_weight:
        if parallel:
            outer = sch.get_loops(panels)[:-2]
            sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])
        transpose_last(sch, panels, lanes, nest.dtype)
    elif parallel:
        parallel_copy(sch, panels, lanes)
    else:
        vectorize_last(sch, panels, lanes)


def _stage_data(sch: s_tir.Schedule, nest: Contraction, lanes: int, products: int) -> None:
    """Copy the data where it is padded, or where its channels are not contiguous, with channels last."""
    block = sch.get_sblock(nest.block)
    strided = not nest.plain and nest.data_channel != nest.data_rank - 1
    if nest.staged is None and not strided:
        return
    copy = sch.get_sblock(nest.staged) if nest.staged else sch.cache_read(block, nest.data, "global")
    if strided:
        relayout_read(sch, block, nest.data, copy, last_order(nest.data_rank, nest.data_channel))
    lines = prod(int(sch.get(loop).extent) for loop in sch.get_loops(copy)[:-2])
    if nest.channels % products:
        _copy_lines(sch, copy)
    elif lines >= _MANY_LINES:
        _copy_lines(sch, copy, lanes)
    else:
        parallel_copy(sch, copy, lanes)


def _producer_of(sch: s_tir.Schedule, block: Any, read: int) -> Any:
    name = sch.get(block).reads[read].source.name
    for producer in sch.get_producers(block):
        if sch.get(producer).writes[0].source.name == name:
            return producer
    raise ValueError(f"no block writes {name}")
