"""How the operands of a register tile are laid out: data padded or turned, axes filled up to whole tiles."""

from __future__ import annotations

from typing import Any

from tvm import s_tir
from tvm.tirx import Var

from ...machine.element import element_bits, element_bytes
from ...machine.facts import LINE_BYTES, line_elements
from ..analysis import iterations
from ..expressions import index_variables, loads_of
from ..nests.contraction import Contraction
from ..passes.loop_partition import partition
from ..restatement import is_step
from ..transforms import (
    copy_in_vectors,
    last_order,
    relayout_read,
    transpose_last,
    vectorize_last,
)

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


def stage_data(sch: s_tir.Schedule, nest: Contraction, lanes: int, stage: int, products: int) -> Any | None:
    """Copy the data where it is padded, or where its channels are not contiguous, with channels last.

    A plain product does without, unless ``stage`` is 1: each step of its sums then reads another page. So it
    must where an instruction sums neighbours. Of a window with ``stage`` the copy is returned, for each block
    of rows to make its own lines.
    """
    block = sch.get_sblock(nest.block)
    wanted = stage == 1 or not nest.plain or products > 1
    strided = nest.data_channel != nest.data_rank - 1 and wanted
    if nest.staged is None and not strided:
        return None
    copy = sch.get_sblock(nest.staged) if nest.staged else sch.cache_read(block, nest.data, "global")
    if strided:
        relayout_read(sch, block, nest.data, copy, last_order(nest.data_rank, nest.data_channel))
    if stage and not nest.plain:
        return copy
    lines = iterations(sch, sch.get_loops(copy)[: -1 if nest.plain else -2])
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
        *pixels, _ = sch.get_loops(copy)
        _vectorize_channels(sch, copy, lanes)
        if nest.is_worth_threads:
            sch.parallel(sch.fuse(*pixels))
    return None


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


def ends_by_masks(dtype: str, lanes: int) -> bool:
    """Tell whether so many lanes are a vector of AVX-512, part of which is loaded and stored by a mask."""
    return lanes * element_bits(dtype) == _MASKED_BITS


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
    outer = _read_lines_once(sch, copy)
    _vectorize_channels(sch, copy, lanes, cut)
    if nest.is_worth_threads if parallel is None else parallel:
        sch.parallel(sch.fuse(*outer) if len(outer) > 1 else sch.get_loops(copy)[0])


def _vectorize_channels(sch: s_tir.Schedule, copy: Any, lanes: int, cut: bool = False) -> None:
    """Make a copy's channels vectors; those of which the last is not whole, or ``cut``, have it cut off.

    Of one long vector that is there or is padding LLVM would set each element by itself: a transposed
    convolution of 13x13 pixels of 424 channels took 1.5 times as long.
    """
    channel = sch.get_loops(copy)[-1]
    extent = int(sch.get(channel).extent)
    if extent > lanes and (cut or extent % lanes):
        vectors, channel = sch.split(channel, [None, lanes])
        sch.vectorize(channel)
        partition(sch, vectors)
    else:
        vectorize_last(sch, copy, lanes)


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
    item = element_bytes(load.source.dtype)
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
