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

Vectors of the last panel that have no columns are not computed (`narrow_panels`).

The tile has the scope "global": below 1 KiB TVM puts it on the stack, and LLVM into registers. What is
"local" comes from the heap: LLVM keeps a tile's last values, to write them back, while it computes others.

References
----------
Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008 (panels, register tile).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tvm import s_tir

from ..dot_product import gather_products, instruction_of, use_dot_products
from ..nests.contraction import Contraction, find_contraction
from ..passes.loop_partition import partition
from ..passes.narrow_panels import narrow_last_panel
from ..passes.padded_taps import leave_out_filling, leave_out_padding
from ..passes.panel_prefetch import fetch_panels
from ..transforms import finish_tile
from .tile_operands import lay_out, share_blocks, stored_lanes
from .weight_panels import PACK_IN_BLOCK, PACK_NOTHING, sums_of_panels


class TileLoops(NamedTuple):
    """The loops of a blocked nest, the outer ones first.

    ``panel``: those over a block's panels; ``row_tiles``: over its tiles of rows; ``inside``: over the rows
    of a tile, and over its columns where these are loops.
    """

    row_block: Any
    column_block: Any
    panel: Any
    row_tiles: list[Any]
    sums: list[Any]
    inside: list[Any]


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
        0: rows that are left after whole tiles are computed in a smaller one, where `can_cut` holds, or in
        one that asks of each whether it is there; 1: they are padded with zeros in a copy of the data.
    stage : int
        1: data of which the sum is not the last axis are copied so that it is, where `can_stage` holds; what
        a window slides over is padded by each block of rows for itself, where `blocks_own_lines` holds.
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
    cut = pad == 0 and can_cut(nest, mr, block_rows, split_columns, pack)
    factors = (1 if cut else mr, nr, sums_of_panels(nest, lanes, products))
    asks = pad == 0 and can_ask(nest, mr, products)
    # Rows of a block of panels are interleaved in vectors where no block is cut short.
    together = block_columns if products > 1 and pack == PACK_IN_BLOCK and split_columns else 1
    operands = lay_out(
        sch, nest, lanes, factors, pack, stage, products,
        own=nest.is_widened, rows_as_they_lie=asks, panels_together=together,
    )  # fmt: skip
    block = operands.block
    instruction = None
    if products > 1:
        instruction = instruction_of(lanes, products, nest.data_dtype, nest.weight_dtype)
        block = gather_products(sch, block, nest.column, nest.reductions[-1], nr // lanes, instruction)
    row_block, column_block, panel, row_tiles, sums, (row, *vectors) = tile_loops(
        sch, nest, block, mr, block_rows, [block_columns, *([nr // lanes, lanes] if products == 1 else [])]
    )
    sch.unroll(row)
    if vectors:
        vector, lane = vectors
        sch.unroll(vector)
        sch.vectorize(lane)
    finish_tile(sch, operands.tail, row_tiles[-1], stored_lanes(nest, lanes, nr))
    whole = operands.longer is not None or nest.channels % products == 0
    share_blocks(
        sch, nest, operands, row_block, column_block,
        lanes=lanes, nr=nr, block_columns=block_columns, split_columns=split_columns, pack=pack,
        beside=beside, grouping=instruction, whole_sums=whole,
    )  # fmt: skip
    if cut:
        partition(sch, row_tiles[-1])
        if block_rows < nest.tiles_in_line(mr):
            partition(sch, row_block)
    elif asks or (not nest.plain and nest.row_extent % mr):
        partition(sch, row_tiles[-1])
    if pack == PACK_NOTHING and nest.columns % nr:
        partition(sch, panel)
    if fetch:
        fetch_panels(sch, panel, row_tiles, sums[-1])
    if skip:
        loops = dict(zip(nest.reductions, sums, strict=True))
        leave_out_padding(sch, block, nest, mr, loops)
        leave_out_filling(sch, nest.filled, nest.column, nr, loops)
    start = sch.decompose_reduction(block, sums[0])
    if products == 1:
        narrow_last_panel(sch, block, start, panel, nest.column, nest.columns, nr, lanes)
    if instruction is not None:
        use_dot_products(sch, start, block, instruction, nest.data_first)
    return panel


def can_cut(nest: Contraction, mr: int, block_rows: int, split_columns: int, pack: int) -> bool:
    """Tell whether rows that are left after whole tiles can be cut off, by the knobs of `register_tile`.

    A loop over blocks of rows that is one with others cannot be cut before its last iteration.
    """
    one_block = block_rows >= nest.tiles_in_line(mr)
    by_itself = split_columns == 1 and pack == PACK_IN_BLOCK and len(nest.rows) == 1
    return nest.plain and nest.row_extent % mr != 0 and (one_block or by_itself)


def can_ask(nest: Contraction, mr: int, products: int) -> bool:
    """Tell whether rows that are left after whole tiles can be read where they lie, each if it is there."""
    return nest.plain and nest.row_extent % mr != 0 and products == 1 and nest.staged is None


def tile_loops(
    sch: s_tir.Schedule,
    nest: Contraction,
    block: Any,
    mr: int,
    block_rows: int,
    columns: list[int],
) -> TileLoops:
    """Split and order the loops.

    ``columns`` are the panels of a block, and what a panel's columns are split into where these are loops.
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
    return TileLoops(row_block, column_block, column_tile, row_tiles, sums, [row, *vectors])
