"""How the operands of a register tile are laid out: data padded or turned, the weight packed into panels."""

from __future__ import annotations

from math import ceil, prod
from typing import Any

import tvm
from tvm import s_tir
from tvm.tirx import Var

from ...machine.facts import LINE_BYTES, line_elements
from ..analysis import loops_inside
from ..expressions import index_variables, loads_of
from ..nests.contraction import Contraction
from ..passes.loop_partition import partition
from ..passes.turned_squares import mark_square
from ..restatement import is_step
from ..transforms import (
    PACKING_MARK,
    copy_in_vectors,
    inline_blocks,
    last_order,
    panel_order,
    relayout_read,
    split_squares,
    transpose_last,
    vectorize_last,
)
from ..weight_groups import Grouping, interleave, turn

PACK_NOTHING, PACK_IN_BLOCK, PACK_FIRST = 0, 1, 2

# As many lines keep all threads busy. A copy of fewer is shared by pixels, whose places cost divisions: 32
# groups of 4 channels at 56x56 with padding take 0.76 ms with lines, 0.91 with pixels, one thread of a Zen 5.
_MANY_LINES = 32

# Vectors of so many bits are AVX-512's.
_MASKED_BITS = 512


def can_stage(nest: Contraction) -> bool:
    """Tell whether data of a plain product lie side by side along the rows, so that a copy may turn them.

    They must be as they were: TVM cannot turn a copy of what a block before makes of other axes.
    """
    as_they_were = nest.staged is None and {*nest.prologue} <= {nest.weight_block}
    return nest.plain and as_they_were and nest.data_channel != nest.data_rank - 1


def stage_data(sch: s_tir.Schedule, nest: Contraction, lanes: int, stage: int, products: int) -> None:
    """Copy the data where it is padded, or where its channels are not contiguous, with channels last.

    A plain product does without, unless ``stage`` is 1: each step of its sums then reads another page. So it
    must where an instruction sums neighbours.
    """
    block = sch.get_sblock(nest.block)
    wanted = stage == 1 or not nest.plain or products > 1
    strided = nest.data_channel != nest.data_rank - 1 and wanted
    if nest.staged is None and not strided:
        return
    copy = sch.get_sblock(nest.staged) if nest.staged else sch.cache_read(block, nest.data, "global")
    if strided:
        relayout_read(sch, block, nest.data, copy, last_order(nest.data_rank, nest.data_channel))
    lines = prod(int(sch.get(loop).extent) for loop in sch.get_loops(copy)[: -1 if nest.plain else -2])
    if nest.plain and strided and _transposes(sch, copy, lanes):
        *outer, row, _ = sch.get_loops(copy)
        # Whole lines of a cache, where they can be: those of rows a power of two apart evict each other. On 2
        # threads of a Zen 3 512 cubed takes 0.93 to 0.97 of the time of squares by themselves.
        line = line_elements(nest.data_dtype)
        stretch, _ = sch.split(row, [None, lanes if int(sch.get(row).extent) % line else line])
        if nest.is_worth_threads:
            sch.parallel(sch.fuse(*outer, stretch))
        transpose_last(sch, copy, lanes, nest.data_dtype)
    elif nest.channels % products:
        copy_lines(sch, nest, copy, lanes, cut=True)
    elif lines >= _MANY_LINES:
        copy_lines(sch, nest, copy, lanes)
    else:
        copy_in_vectors(sch, copy, lanes, nest.is_worth_threads)


def hold_data(sch: s_tir.Schedule, nest: Contraction, lanes: int) -> Any | None:
    """Copy the data if they are an argument of the function; return what copies lines of them as they lie."""
    block = sch.get_sblock(nest.block)
    source = sch.get(block).reads[nest.data].source
    if any(source.same_as(argument) for argument in sch.mod["main"].params):
        copy = sch.cache_read(block, nest.data, "global")
        copy_lines(sch, nest, copy, lanes, cut=True)
        return copy
    if nest.data_channel != nest.data_rank - 1:
        return None
    copy = producer_of(sch, block, nest.data)
    return None if is_step(str(sch.get(copy).name_hint)) else copy


def _transposes(sch: s_tir.Schedule, copy: Any, lanes: int) -> bool:
    """Tell whether a copy, which swaps its last two axes, is whole squares of float32."""
    *_, row, channel = (int(sch.get(loop).extent) for loop in sch.get_loops(copy))
    block = sch.get(copy)
    swaps = block.reads[0].source.shape[-1] == block.writes[0].source.shape[-2]
    wide = str(block.reads[0].source.dtype) == "float32"
    return bool(swaps) and wide and lanes > 1 and row % lanes == 0 and channel % lanes == 0


def pad_operands(
    sch: s_tir.Schedule,
    nest: Contraction,
    lanes: int,
    mr: int,
    nr: int,
    products: int,
    rows_as_they_lie: bool = False,
) -> bool:
    """Round axes up to whole tiles, in zero-filled copies of the operands: no tile then has a condition.

    ``rows_as_they_lie``: data are not copied for their rows; what is not there is zero by a condition.
    """
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
    window = None if _reads_plainly(sch, block, nest.data) else sch.reindex(block, ("read", nest.data))
    sch.pad_einsum(block, factors)
    if window is not None:
        # pad_einsum wants plain indices; a window, or rows of several lines, were made plain for it and are
        # folded back.
        sch.compute_inline(window)
    if nest.plain and nest.staged is not None and (pad_rows or pad_sums):
        sch.compute_inline(sch.get_sblock(nest.staged))
    if pad_sums:
        copy, (rank, channel) = producer_of(sch, block, nest.data), _channel_axis(sch, nest, block)
        if channel != rank - 1:  # the window's taps come after the channels where these come first
            relayout_read(sch, block, nest.data, copy, last_order(rank, channel))
        copy_lines(sch, nest, copy, lanes, cut=True)
    elif pad_rows and rows_as_they_lie:
        sch.compute_inline(producer_of(sch, block, nest.data))
    elif pad_rows and nest.data_channel == nest.data_rank - 1:
        copy_lines(sch, nest, producer_of(sch, block, nest.data), lanes)
    elif pad_rows:  # along them each element has a condition of its own
        copy_in_vectors(sch, producer_of(sch, block, nest.data), 1, nest.is_worth_threads)
    return pad_rows or pad_columns


def _reads_plainly(sch: s_tir.Schedule, block: Any, read: int) -> bool:
    """Tell whether each index of an operand is an axis of the block."""
    return all(isinstance(index, Var) for index in load_of(sch.get(block), read).indices)


def load_of(node: Any, read: int) -> Any:
    """Return how a block loads what it reads at a position."""
    source = node.reads[read].source
    return next(load for load in loads_of(node.body) if load.source.same_as(source))


def block_of_result(sch: s_tir.Schedule, block: Any, last: Any | None, padded: bool) -> Any:
    """Return the block that writes the result: the ``last`` of those that follow the sums, or a copy of them.

    What leaves out the axes that `pad_operands` rounded up is such a copy, or part of the last block.
    """
    if not padded:
        return sch.cache_write(block, 0, "global") if last is None else last
    (cut,) = sch.get_consumers(block)
    if last is None:
        return cut
    sch.compute_inline(cut)
    return last


def _channel_axis(sch: s_tir.Schedule, nest: Contraction, block: Any) -> tuple[int, int]:
    """Return how many axes the data have that a block reads, and which of them the channels are."""
    node = sch.get(block)
    indices, channel = load_of(node, nest.data).indices, node.iter_vars[nest.reductions[-1]].var
    return len(indices), next(i for i, index in enumerate(indices) if index.same_as(channel))


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


def ends_by_masks(dtype: str, lanes: int) -> bool:
    """Tell whether so many lanes are a vector of AVX-512, part of which is loaded and stored by a mask."""
    return lanes * int(tvm.DataType(dtype).bits) == _MASKED_BITS


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
        if whole and nest.channels % lanes == 0 and as_they_are:
            transpose_last(sch, panels, lanes, nest.dtype)
        else:
            columns, _, row = split_squares(sch, panels, lanes)
            mark_square(sch, row)
            partition(sch, columns)
    else:
        copy_in_vectors(sch, panels, lanes, parallel)


def copy_lines(
    sch: s_tir.Schedule,
    nest: Contraction,
    copy: Any,
    lanes: int,
    cut: bool = False,
    parallel: bool | None = None,
) -> None:
    """Run a copy line by line on all threads, its channels as vectors.

    Lines that end within a vector have their last one cut off, and those that end with zeros (``cut``) their
    last ones: the others have no condition then, for which each element would be copied by itself.
    ``parallel``: where not as the nest is.
    """
    outer, (*_, channel) = _read_lines_once(sch, copy), sch.get_loops(copy)
    extent = int(sch.get(channel).extent)
    if extent > lanes and (cut or extent % lanes):
        vectors, channel = sch.split(channel, [None, lanes])
        sch.vectorize(channel)
        partition(sch, vectors)
    else:
        vectorize_last(sch, copy, lanes)
    if nest.is_worth_threads if parallel is None else parallel:
        sch.parallel(sch.fuse(*outer) if len(outer) > 1 else sch.get_loops(copy)[0])


def _read_lines_once(sch: s_tir.Schedule, copy: Any) -> list[Any]:
    """Return the outer loops of a copy; those of groups that share lines of the cache are brought inside.

    Groups of 8 channels of 256, each brought together, take half a line of each pixel: one after the other
    they would read all lines twice. 56x56 pixels by 2 take 0.7 of the time.
    """
    node, (*outer, _, channel) = sch.get(copy), sch.get_loops(copy)
    if len(outer) + 2 != len(node.iter_vars):
        return outer
    (load,) = loads_of(node.body)
    lies = load.indices[-1]
    beside = [at for at, v in enumerate(node.iter_vars[:-2]) if v.var in index_variables([lies])]
    item = int(tvm.DataType(str(load.source.dtype)).bits) // 8
    share = LINE_BYTES // (int(sch.get(channel).extent) * item)
    if len(beside) != 1 or share < 2 or int(sch.get(outer[beside[0]]).extent) % share:
        return outer
    outer[beside[0]], group = sch.split(outer[beside[0]], [None, share])
    sch.reorder(*outer, group)
    return outer


def producer_of(sch: s_tir.Schedule, block: Any, read: int) -> Any:
    """Return the block that writes what another reads at a position."""
    name = sch.get(block).reads[read].source.name
    for producer in sch.get_producers(block):
        if sch.get(producer).writes[0].source.name == name:
            return producer
    raise ValueError(f"no block writes {name}")
