"""How the weight of a register tile becomes panels: in which order, and how they are written."""

from __future__ import annotations

from math import ceil, gcd
from typing import Any

from tvm import s_tir
from tvm.tirx import FloorMod, IntImm
from tvm_ffi import structural_walk

from ..analysis import loops_inside
from ..expressions import is_zero, loads_of
from ..nests.contraction import Contraction
from ..passes.loop_partition import partition
from ..passes.turned_squares import mark_square
from ..transforms import (
    PACKING_MARK,
    copy_in_vectors,
    inline_blocks,
    panel_order,
    relayout_read,
    split_squares,
    transpose_last,
)
from ..weight_groups import Grouping, interleave, turn
from .even_parts import dividing_lanes
from .operand_layout import ends_by_masks, producer_of

PACK_NOTHING, PACK_IN_BLOCK, PACK_FIRST = 0, 1, 2

# A weight that an instruction takes in groups is turned element by element in as much time as so many rows
# of multiply-adds take, of sums that are hardly longer when they are filled up to squares. Over that, on 2
# threads of a Zen 4, 8 rows by 444 x 1304 0.50, 24 by 1024 x 1000 0.76, 50 by 1001 x 1552 0.86, 197 by 1636 x
# 1928 0.97, but 384 by 768 x 1000 1.03, 16 by 256 x 120 1.09, x 100 1.26; bfloat16 0.67 to 0.97.
_ROWS_OF_TURNING, _HARDLY_LONGER = 8, 16


def sums_of_panels(nest: Contraction, lanes: int, products: int) -> int:
    """Return of how many sums panels hold a multiple: of squares, where a weight is turned sooner so."""
    square = lanes * products
    filled = -nest.channels % square
    turns = products > 1 and nest.plain and nest.is_turned and ends_by_masks(nest.dtype, lanes)
    fewer = filled * max(nest.all_rows / _ROWS_OF_TURNING, _HARDLY_LONGER) <= nest.channels
    return square if turns and fewer else products


def pack_weight(
    sch: s_tir.Schedule, nest: Contraction, lanes: int, nr: int, pack: int, products: int, whole_sums: int
) -> tuple[Any, Any]:
    """Lay the weight out in panels of nr columns (see `panel_order`); return the block that does.

    ``whole_sums``: of how many sums `pad_operands` has made the channels a multiple.

    A weight of which an instruction wants groups, and which is turned or interleaved in registers in the
    call, is made longer by another copy before where it has fewer columns or sums than panels: no vector of
    it is then cut short. That copy is the second block, else None.
    """
    block = sch.get_sblock(nest.block)
    longer = None
    if nest.columns % nr or nest.channels % whole_sums:
        panels = producer_of(sch, block, nest.weight)
        inline_blocks(sch, [nest.weight_block] if nest.weight_block else [])
        along, has_masks = _is_interleaved(nest, products), ends_by_masks(nest.dtype, lanes)
        sums = ceil(nest.channels / whole_sums) * whole_sums if has_masks else nest.channels
        if (products > 1 and _is_turned(nest, lanes, products, sums)) or (along and has_masks):
            longer, panels = panels, sch.cache_read(block, nest.weight, "global")
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
    return panels, longer


def _is_turned(nest: Contraction, lanes: int, products: int, sums: int) -> bool:
    """Tell whether a weight lies along the sum, and is turned in squares of registers in the call.

    ``sums``: how many panels hold.
    """
    if not nest.is_turned or lanes == 1:
        return False
    if products == 1:  # squares reach back where what is left is less
        return nest.channels >= lanes
    return sums % (lanes * products) == 0


def _is_interleaved(nest: Contraction, products: int) -> bool:
    """Tell whether panels are made, in the call, of rows of a weight, of which an instruction wants groups.

    One that is constant is packed before, whatever that takes: the mark that says so is lost with the loops.
    """
    return products > 1 and nest.weight_axes[-1] == nest.column and not nest.constant_weight


def is_packed_along(nest: Contraction) -> bool:
    """Tell whether what is copied to the same row of several panels lies side by side, and varies."""
    along = nest.weight_block is None and nest.weight_axes[-1] == nest.column
    return along and not nest.constant_weight


def pack_side_by_side(
    sch: s_tir.Schedule, panels: Any, panel: Any, beside: int, grouping: Grouping | None
) -> None:
    """Write so many panels at once: of a large weight each row is another page, read in one stretch then.

    ``panel`` is the loop over the panels.
    """
    inner = loops_inside(sch, panels, panel)
    columns = 1 if grouping is None else 2  # and the elements of a group
    _, panel = sch.split(panel, [None, beside])
    sch.reorder(*inner[:-columns], panel, *inner[-columns:])


def copy_panels(
    sch: s_tir.Schedule,
    nest: Contraction,
    panels: Any,
    lanes: int,
    whole: bool,
    grouping: Grouping | None,
    parallel: bool,
) -> None:
    """Write panels in vectors; where the weight is contiguous along the sum, transpose it in registers.

    ``whole``: no panel and no block of them is cut short. ``grouping``: how neighbours along the sum lie in
    them, if they do.
    """
    products = 1 if grouping is None else grouping.products
    sums = nest.channels if products == 1 else int(sch.get(sch.get_loops(panels)[-3]).extent) * products
    squares = (whole or products == 1) and _is_turned(nest, lanes, products, sums)
    interleaved = whole and _is_interleaved(nest, products)
    if grouping is not None and (interleaved or squares):
        outer = (interleave if interleaved else turn)(sch, panels, grouping)
        if parallel:
            sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])
        return
    if squares:
        if parallel:
            outer = sch.get_loops(panels)[:-2]
            sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])
        # The intrinsic moves elements as they are, of which TVM would make float32 where they are bfloat16.
        as_they_are = str(sch.get(panels).reads[0].source.dtype) == nest.dtype
        if whole and nest.channels % lanes == 0 and as_they_are and _is_matrix(sch, panels):
            transpose_last(sch, panels, lanes, nest.dtype)
        else:
            columns, _, row = split_squares(sch, panels, lanes)
            mark_square(sch, row)
            partition(sch, columns)
    else:
        copy_in_vectors(sch, panels, _lanes_of_phase(sch, panels, lanes), parallel)


def _is_matrix(sch: s_tir.Schedule, panels: Any) -> bool:
    """Tell whether what panels are made of has no more axes than these are made along."""
    (load,) = loads_of(sch.get(panels).body)
    return not any(is_zero(index) for index in load.indices[1:])


def _lanes_of_phase(sch: s_tir.Schedule, panels: Any, lanes: int) -> int:
    """Return as many lanes as read neighbours, where columns of several phases lie side by side in panels.

    A vector of two phases would be copied element by element: of 120 channels in each, 7 vectors of 16 are.
    """
    numbers: list[Any] = []
    indices = [index for load in loads_of(sch.get(panels).body) for index in load.indices]
    structural_walk(indices, [(FloorMod, lambda found: numbers.append(found.b))])
    return dividing_lanes(gcd(*(int(number) for number in numbers if isinstance(number, IntImm))), lanes)
