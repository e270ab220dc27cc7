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

from math import ceil, gcd
from typing import Any

from tvm import s_tir

from ..analysis import loops_inside
from ..contraction import Contraction, find_contraction
from ..dot_product import gather_products, instruction_of, use_dot_products
from ..loop_partition import partition
from ..padded_taps import leave_out_filling, leave_out_padding
from ..panel_prefetch import fetch_panels
from ..transforms import copy_in_vectors, finish_tile, inline_blocks, last_order
from .operand_layout import (
    PACK_FIRST,
    PACK_IN_BLOCK,
    PACK_NOTHING,
    block_of_result,
    copy_panels,
    ends_by_masks,
    pack_side_by_side,
    pack_weight,
    pad_operands,
    producer_of,
    stage_data,
)
from .result_order import order_as_sums
from .tile_choice import dividing_lanes

# One thread copies so much sooner than another wakes up.
_LITTLE_BYTES = 32768


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
    stage: int = 0,
    skip: int = 0,
    beside: int = 1,
    fetch: int = 0,
    products: int = 1,
) -> Any:
    """Rewrite a contraction in place; return the loop over a block's panels.

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
        ``PACK_NOTHING``: the weight is read where it lies, and masked where ``nr`` does not divide its
        columns; ``PACK_IN_BLOCK``: each block of columns packs its
        own panels, hot in cache (the threads then share the columns); ``PACK_FIRST``: all panels are packed
        before the loops, which costs nothing where the weight is constant.
    pad : int
        0: rows that are left after whole tiles are computed in a smaller one, where `can_cut` holds; 1: they
        are padded with zeros in a copy of the data.
    stage : int
        1: data of which the sum is not the last axis are copied so that it is, where `can_stage` holds.
    skip : int
        1: taps of a window that meet only padding, for all outputs of a tile, are left out.
    beside : int
        Panels that are packed side by side, where `is_packed_along` holds.
    fetch : int
        1: tiles that meet a panel also ask for the next one, see `panel_prefetch`.
    products : int
        Products that one instruction sums in each lane: 1, or those of a `DotInstruction`.
    """
    nest = find_contraction(sch.mod["main"])
    assert nest is not None, "the rule's space says that there is one"
    tail, apart = _inline_around(sch, nest, lanes)
    stage_data(sch, nest, lanes, stage, products)
    cut = pad == 0 and can_cut(nest, mr, block_rows, split_columns, pack)
    padded = pad_operands(sch, nest, lanes, 1 if cut else mr, nr, products)
    block = sch.get_sblock(nest.block)
    panels = longer = None
    if pack != PACK_NOTHING:
        panels, longer = pack_weight(sch, nest, lanes, nr, pack, products)
    else:
        inline_blocks(sch, [nest.weight_block] if nest.weight_block else [])
        if nest.columns % nr:
            sch.compute_inline(producer_of(sch, block, nest.weight))
    tail = block_of_result(sch, block, tail, padded)
    if nest.output_column != nest.output_rank - 1:
        sch.transform_layout(block, ("write", 0), last_order(nest.output_rank, nest.output_column))

    batch = [sch.get_loops(block)[i] for i in nest.batch]
    if products > 1:
        instruction = instruction_of(lanes, products, nest.data_dtype, nest.weight_dtype)
        block = gather_products(sch, block, nest.column, nest.reductions[-1], nr // lanes, instruction)
    row_block, column_block, panel, row_tiles, sums = _tile_loops(
        sch, nest, block, mr, block_rows, [block_columns, *([nr // lanes, lanes] if products == 1 else [])]
    )
    finish_tile(sch, tail, row_tiles[-1], _stored_lanes(nest, lanes, nr))
    if split_columns or pack == PACK_IN_BLOCK:
        sch.reorder(column_block, row_block)
    columns = nest.columns if longer is None else ceil(nest.columns / nr) * nr
    whole = columns % (nr * (block_columns if pack == PACK_IN_BLOCK else 1)) == 0
    whole = whole and (longer is not None or nest.channels % products == 0)
    shared = [*batch, column_block] if split_columns else [*batch, row_block, column_block]
    if pack == PACK_IN_BLOCK:
        sch.compute_at(panels, column_block)
        if beside > 1:
            pack_side_by_side(sch, panels, loops_inside(sch, panels, column_block)[0], beside)
        if longer is not None:
            sch.compute_at(longer, column_block)
            copy_in_vectors(sch, longer, gcd(nr, lanes * products), parallel=False)
        copy_panels(sch, nest, panels, lanes, whole, products, parallel=False)
    elif split_columns:
        shared.append(row_block)
    if nest.is_worth_threads:
        sch.parallel(sch.fuse(*shared) if len(shared) > 1 else column_block)
    if panels is not None and pack == PACK_FIRST:
        if beside > 1:
            pack_side_by_side(sch, panels, sch.get_loops(panels)[len(nest.batch)], beside)
        if longer is not None:
            much = nest.weight_bytes > _LITTLE_BYTES and nest.is_worth_threads
            copy_in_vectors(sch, longer, gcd(nr, lanes * products), much)
        copy_panels(sch, nest, panels, lanes, whole, products, nest.is_worth_threads)
    if apart is not None:
        copy_in_vectors(sch, apart, lanes, nest.is_worth_threads)
    if cut:
        partition(sch, row_tiles[-1])
        if block_rows < nest.tiles_in_line(mr):
            partition(sch, row_block)
    if fetch:
        fetch_panels(sch, panel, row_tiles, sums[-1])
    data = sch.get(block).reads[nest.data].source.name
    start = sch.decompose_reduction(block, sums[0])
    if skip:
        loops = dict(zip(nest.reductions, sums, strict=True))
        leave_out_padding(sch, nest.padded, data, loops)
        leave_out_filling(sch, nest.filled, nest.column, nr, loops)
    if products > 1:
        use_dot_products(sch, start, block, instruction)
    return panel


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
) -> tuple[Any, Any, Any, list[Any], list[Any]]:
    """Split and order the loops; return those over row and column blocks, panels, row tiles and the sums.

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
    return row_block, column_block, column_tile, row_tiles, sums


def _stored_lanes(nest: Contraction, lanes: int, nr: int) -> int:
    """Return the elements that a tile stores at once.

    Where the columns end within a panel, vectors are stored only if they are inside: parts of which the
    columns are whole ones, but where CPUs have masks (`masked_vectors`). 500 rows by 100 columns of integers
    take 28 us with masks on 2 threads of a Zen 4, 33 with parts, 784 by 500 x 64 of floats 246 and 268.
    """
    inside = nest.columns % nr == 0 or nest.columns <= nr or nest.output_column != nest.output_rank - 1
    return lanes if inside or ends_by_masks(nest, lanes) else dividing_lanes(nest.columns, lanes)


def _inline_around(sch: s_tir.Schedule, nest: Contraction, lanes: int) -> tuple[Any | None, Any | None]:
    """Inline what comes before and after; return the block that follows a tile, and a pass over all of them.

    The first is None where nothing follows, the second where tiles write the result themselves.
    """
    inline_blocks(sch, [name for name in nest.prologue if name not in (nest.staged, nest.weight_block)])
    inline_blocks(sch, [*nest.epilogue[:-1], *nest.rest[:-1]])
    tail = sch.get_sblock(nest.epilogue[-1]) if nest.epilogue else None
    if not nest.rest:
        return tail, None
    last = sch.get_sblock(nest.rest[-1])
    sums = sch.get(sch.get_sblock(nest.block) if tail is None else tail).writes[0].source
    if not order_as_sums(sch, nest.rest[-1], sums, lanes):
        return tail, last
    inline_blocks(sch, nest.epilogue[-1:])
    return last, None
