"""What the tiles of a contraction read and write: how their operands lie, and who packs and computes which.

Nests of tiles share it, whether a tile is in vector registers (`register_tile`) or in those of a matrix unit
(`matrix_unit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd
from typing import Any

from tvm import s_tir

from ..analysis import block_of, loops_inside, written_buffer
from ..nests.contraction import Contraction
from ..passes.filled_copies import mark_filled_copy
from ..transforms import copy_in_vectors, inline_blocks, last_order
from ..weight_groups import Grouping
from .even_parts import dividing_lanes
from .operand_layout import (
    block_of_result,
    copy_lines,
    ends_by_masks,
    hold_data,
    pad_operands,
    producer_of,
    stage_data,
)
from .result_order import order_as_sums
from .weight_panels import (
    PACK_FIRST,
    PACK_IN_BLOCK,
    PACK_NOTHING,
    copy_panels,
    pack_side_by_side,
    pack_weight,
)

# One thread copies so much sooner than another wakes up.
_LITTLE_BYTES = 32768


@dataclass(frozen=True)
class TileOperands:
    """The blocks around the one that sums.

    Parameters
    ----------
    block : SBlockRV
        The sums.
    tail : SBlockRV
        What writes a tile's results.
    apart : SBlockRV or None
        A pass over all results, where tiles do not write them themselves.
    copy : SBlockRV or None
        What copies lines of the data as they lie; None where this is not asked for, or they are turned.
    panels : SBlockRV or None
        What packs the weight; None where it is read as it lies.
    longer : SBlockRV or None
        What copies the weight before, filled up to whole panels.
    batch : list of LoopRV
        The loops over a batch of contractions.
    columns : int
        How many columns there are, those included that panels or blocks of them are filled up with.
    """

    block: Any
    tail: Any
    apart: Any | None
    copy: Any | None
    panels: Any | None
    longer: Any | None
    batch: list[Any]
    columns: int


def lay_out(
    sch: s_tir.Schedule,
    nest: Contraction,
    lanes: int,
    whole: tuple[int, int, int],
    pack: int,
    stage: int,
    products: int,
    own: bool = False,
    rows_as_they_lie: bool = False,
    panels_together: int = 1,
) -> TileOperands:
    """Bring operands into the order in which tiles read them.

    Parameters
    ----------
    sch : Schedule
        A schedule of the unscheduled PrimFunc.
    nest : Contraction
        Its nest.
    lanes : int
        Elements in a vector.
    whole : tuple of int
        Of how many rows, columns and sums these are to be multiples: they are padded.
    pack, stage, products : int
        See `register_tile`.
    own : bool
        Whether tiles read the data from a copy, even where they could read an argument.
    rows_as_they_lie : bool
        See `pad_operands`.
    panels_together : int
        Columns that fill no panels are to be a multiple of so many of these.
    """
    rows, nr, sums = whole
    filled = nr * panels_together if nest.columns % nr else nr
    copies = _hold_computed(sch, nest) if products > 1 else []
    tail, apart = _inline_around(sch, nest, lanes)
    for copy in copies:
        copy_in_vectors(sch, copy, lanes, nest.is_worth_threads)
    staged = stage_data(sch, nest, lanes, stage, products)
    padded = pad_operands(sch, nest, lanes, rows, filled, sums, rows_as_they_lie)
    block = sch.get_sblock(nest.block)
    copy = hold_data(sch, nest, lanes) if own else staged
    panels = longer = None
    if pack != PACK_NOTHING:
        panels, longer = pack_weight(sch, nest, lanes, nr, pack, products, sums)
    else:
        inline_blocks(sch, [nest.weight_block] if nest.weight_block else [])
        if nest.columns % nr:
            sch.compute_inline(producer_of(sch, block, nest.weight))
    tail = block_of_result(sch, block, tail, padded)
    if nest.output_column != nest.output_rank - 1:
        sch.transform_layout(block, ("write", 0), last_order(nest.output_rank, nest.output_column))
    batch = [sch.get_loops(block)[i] for i in nest.batch]
    columns = ceil(nest.columns / filled) * filled
    return TileOperands(block, tail, apart, copy, panels, longer, batch, columns)


def _hold_computed(sch: s_tir.Schedule, nest: Contraction) -> list[Any]:
    """Let copies hold operands that are computed before; return these.

    An instruction that takes several elements loads them. Others compute each where they read it.
    """
    block = sch.get_sblock(nest.block)
    copies = []
    for read, held in ((nest.data, nest.staged), (nest.weight, nest.weight_block)):
        source = sch.get(block).reads[read].source.name
        if not held and any(written_buffer(sch, name) == source for name in nest.prologue):
            copies.append(sch.cache_read(block, read, "global"))
    return copies


def share_blocks(
    sch: s_tir.Schedule,
    nest: Contraction,
    operands: TileOperands,
    row_block: Any,
    column_block: Any,
    *,
    lanes: int,
    nr: int,
    block_columns: int,
    split_columns: int,
    pack: int,
    beside: int,
    grouping: Grouping | None,
    whole_sums: bool,
    sum_block: Any | None = None,
) -> Any:
    """Share blocks among the threads, and pack panels where they are read; return the loop over blocks.

    ``grouping``: how neighbours along the sum lie in panels, if they do. ``whole_sums``: no panel is filled
    up along the sum while it is packed. ``sum_block``: the loop over parts of the sum, if there is one. For
    the others see `register_tile`.
    """
    panels, longer = operands.panels, operands.longer
    packed_in = column_block if sum_block is None else sum_block
    blocks = [column_block, row_block] if split_columns else [row_block, column_block]
    shared = [*operands.batch, *blocks[: 1 if pack == PACK_IN_BLOCK else 2]]
    if sum_block is not None:
        blocks.insert(1 if split_columns and pack == PACK_IN_BLOCK else 2, sum_block)
    sch.reorder(*blocks)
    columns = nest.columns if longer is None else operands.columns
    whole = columns % (nr * (block_columns if pack == PACK_IN_BLOCK else 1)) == 0 and whole_sums
    products = 1 if grouping is None else grouping.products
    if pack == PACK_IN_BLOCK:
        sch.compute_at(panels, packed_in)
        if beside > 1:
            pack_side_by_side(sch, panels, loops_inside(sch, panels, packed_in)[0], beside, grouping)
        if longer is not None:
            sch.compute_at(longer, packed_in)
            copy_in_vectors(sch, longer, gcd(nr, lanes * products), parallel=False)
        copy_panels(sch, nest, panels, lanes, whole, grouping, parallel=False)
    outermost = sch.fuse(*shared) if len(shared) > 1 else shared[0]
    if nest.is_worth_threads:
        sch.parallel(outermost)
    if panels is not None and pack == PACK_FIRST:
        if beside > 1:
            pack_side_by_side(sch, panels, sch.get_loops(panels)[len(nest.batch)], beside, grouping)
        if longer is not None:
            much = nest.weight_bytes > _LITTLE_BYTES and nest.is_worth_threads
            copy_in_vectors(sch, longer, gcd(nr, lanes * products), much)
        copy_panels(sch, nest, panels, lanes, whole, grouping, nest.is_worth_threads)
    if longer is not None:
        mark_filled_copy(sch, longer)
    if operands.copy is not None and blocks_own_lines(nest, nr, block_columns, split_columns):
        sch.compute_at(operands.copy, outermost)
        if loops_inside(sch, operands.copy, outermost):
            copy_lines(sch, nest, operands.copy, lanes, cut=True, parallel=False)
    if operands.apart is not None:
        copy_in_vectors(sch, operands.apart, lanes, nest.is_worth_threads)
    return outermost


def blocks_own_lines(nest: Contraction, nr: int, block_columns: int, split_columns: int) -> bool:
    """Tell whether no two blocks, or those of no two products of a batch, have the same rows."""
    return block_columns * nr >= nest.columns and (not split_columns or bool(nest.batch))


def stored_lanes(nest: Contraction, lanes: int, nr: int) -> int:
    """Return the elements that a tile stores at once.

    Where the columns end within a panel, vectors are stored only if they are inside: parts of which the
    columns are whole ones, but where CPUs have masks (`masked_vectors`). 500 rows by 100 columns of integers
    take 28 us with masks on 2 threads of a Zen 4, 33 with parts, 784 by 500 x 64 of floats 246 and 268.
    """
    inside = nest.columns % nr == 0 or nest.columns <= nr or nest.output_column != nest.output_rank - 1
    return lanes if inside or ends_by_masks(nest.dtype, lanes) else dividing_lanes(nest.columns, lanes)


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
    sums = (block_of(sch, nest.block) if tail is None else sch.get(tail)).writes[0].source
    if not order_as_sums(sch, nest.rest[-1], sums, lanes):
        return tail, last
    inline_blocks(sch, nest.epilogue[-1:])
    return last, None
