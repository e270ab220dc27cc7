"""Many rows by a few columns, as a convolution of few outputs: dot products along the sum.

Before::

    for row, column, k:  out[row, column] += data[row, k] * weight[k, column]

After::

    turned[column, k] = weight[k, column]
    for tiles of mr rows (in blocks, in parallel):
        parts[mr, columns, lanes] = 0
        for k // lanes:
            for mr rows, columns (unrolled), lanes (a vector):  parts += data[row, k] * turned[column, k]
        out = epilogue(the sum of each vector's lanes)

The columns of a register tile would fill a part of a vector, and the rest of it would be multiplied as well.
Data are contiguous along the sum, so vectors of them need no copy but for what pads them; the weight is
little, and is turned. `dots` is the same for few rows by many columns.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir

from ...machine.facts import Facts, facts
from ..analysis import loops_by_kind, loops_inside
from ..expressions import buffer_bytes
from ..nests.contraction import Contraction, find_contraction
from ..passes.loop_partition import partition
from ..restatement import held_blocks
from ..rule import ScheduleRule
from ..space import Constraint, Knob, KnobSpace
from ..transforms import inline_blocks, vectorize_last
from .even_parts import LEAST_LANES, divisors

# More columns fill vectors of their own. In vectors of products: what a column takes beside these, to add up
# lanes, and what a product takes of a tile of one vector of columns. Time over that of `conv2d`, on 2 threads
# of a Xeon, of 3x3 windows of 64x64 pixels: 16 channels to 1 0.20, 3 0.49, 4 0.73, 5 1.04, 8 1.7 to 2.5; 64
# to 3 0.35, 5 0.43, 8 0.68; 256 to 3 0.22, 8 0.5 to 0.6, 12 1.5; 9x9 of 64 to 3 0.17. Of `matmul`: 4096 rows
# of 256 to 2 0.48, 1000 of 1024 to 4, along the sum, 0.42, 65536 of 512 to 6, from memory, 1.0.
_MOST, _OF_SUM, _OF_PRODUCT = 8, 14, 0.74

# Sums of a tile: as many as hide the latency, and leave registers for what is loaded.
_SUMS, _ROWS = 16, tuple(range(1, 9))

# Lines of a block, padded together, keep to this part of L2; there are blocks enough to share. 9x9 of 256x256
# pixels of 64 take 0.87 of the time by 8 lines.
_KEPT, _BLOCKS_OF_CORE, _MOST_LINES = 1 / 2, 2, 16


def schedule_few_columns(sch: s_tir.Schedule, *, lanes: int, mr: int, lines: int) -> None:
    """Rewrite a contraction in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of an unscheduled PrimFunc named ``main`` that is a contraction.
    lanes : int
        Elements in a vector; they divide the channels.
    mr : int
        Rows of a tile; what is left of them is cut off.
    lines : int
        Lines of rows of a block, which are padded together; 1 where rows are one axis.
    """
    nest = find_contraction(sch.mod["main"])
    assert nest is not None, "the rule's space says that there is one"
    inline_blocks(sch, nest.epilogue[:-1])
    total = sch.get_sblock(nest.block)
    _turn_weight(sch, total, nest)
    _, lane = sch.split(sch.get_loops(total)[nest.reductions[-1]], [None, lanes])
    parts = sch.rfactor(lane, nest.output_rank)
    (*kept, lane), sums = loops_by_kind(sch, parts, 0)
    at = dict(zip(sorted([*nest.rows, nest.column]), kept, strict=True))
    steps = dict(zip(sorted(nest.reductions), sums, strict=True))
    *outer, along = (at[i] for i in nest.rows)
    tile, row = sch.split(along, [None, mr])
    sch.reorder(*outer, tile, *(steps[i] for i in nest.reductions), row, at[nest.column], lane)
    block = tile
    if outer:
        block, _ = sch.split(outer[-1], [None, lines])
        block = sch.fuse(*outer[:-1], block)
    for loop in (row, at[nest.column]):
        sch.unroll(loop)
    sch.vectorize(lane)
    if nest.is_worth_threads:
        sch.parallel(block)
    for after in (total, *map(sch.get_sblock, nest.epilogue[-1:])):
        sch.reverse_compute_at(after, tile)
        for loop in loops_inside(sch, after, tile):
            sch.unroll(loop)
    if nest.staged is not None:
        staged = sch.get_sblock(nest.staged)
        sch.compute_at(staged, block)
        vectorize_last(sch, staged, lanes)
    if nest.row_extent % mr:
        partition(sch, tile)
    sch.decompose_reduction(parts, steps[nest.reductions[0]])


def few_columns_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the tiles to choose from; None where columns are more, or the data lie otherwise."""
    nest = find_contraction(func)
    if nest is None or not _fits(nest):
        return None
    machine = facts(target)
    widest = machine.lanes(nest.dtype)
    widths = [w for w in (widest, widest // 2) if w >= LEAST_LANES and nest.channels % w == 0]
    if not widths or not _is_quicker(nest, widths[0]):
        return None
    lines = _lines(func, nest, machine)
    if not lines:
        return None

    def fits(mr: int) -> bool:
        return 0 < mr <= nest.row_extent and (mr + 1) * nest.columns + 1 <= machine.vector_registers

    rows = tuple(filter(fits, _ROWS))
    few = [mr for mr in rows if mr * nest.columns <= _SUMS]
    return KnobSpace(
        knobs=(
            Knob("lanes", tuple(widths), "elements in a vector of sums"),
            Knob("mr", rows, "rows of a tile"),
            Knob("lines", lines, "lines of a block, which are padded together"),
        ),
        constraints=(
            Constraint(f"lanes is one of {tuple(widths)}", lambda k: k["lanes"] in widths),
            Constraint("the sums of mr rows, and what is loaded, fit the registers", lambda k: fits(k["mr"])),
            Constraint(f"lines is one of {lines}", lambda k: k["lines"] in lines),
        ),
        default={"lanes": widths[0], "mr": max(few), "lines": lines[-1]},
    )


def _fits(nest: Contraction) -> bool:
    """Tell whether there are few columns, and vectors of data that are there, or padded, along the sum."""
    floating = nest.dtype.startswith("float") and nest.data_dtype.startswith("float")
    alone = not nest.batch and not nest.rest and {*nest.prologue} <= {nest.staged}
    return floating and alone and nest.columns <= _MOST and nest.data_channel == nest.data_rank - 1


def _is_quicker(nest: Contraction, lanes: int) -> bool:
    """Tell whether vectors along the sum, and adding up their lanes, take less than vectors of columns."""
    return nest.columns * (nest.depth / lanes + _OF_SUM) < _OF_PRODUCT * nest.depth


def _lines(func: Any, nest: Contraction, machine: Facts) -> tuple[int, ...]:
    """Return how many lines may be a block, the best last; none where threads could not share them."""
    if len(nest.rows) == 1:
        return (1,)
    last, others = nest.extents[nest.rows[-2]], nest.outer_rows // nest.extents[nest.rows[-2]]
    shared = [n for n in divisors(last, _MOST_LINES) if others * last // n >= _BLOCKS_OF_CORE * machine.cores]
    data = held_blocks(func)[nest.block].reads[nest.data].source
    line = buffer_bytes(data) // nest.outer_rows
    near = [n for n in shared if n * line <= _KEPT * machine.l2_bytes]
    return tuple(near or shared[:1])


def _turn_weight(sch: s_tir.Schedule, total: Any, nest: Contraction) -> None:
    """Copy the weight so that the sum's last axis is its last, if it is not."""
    column, channel = (nest.weight_axes.index(i) for i in (nest.column, nest.reductions[-1]))
    if channel == len(nest.weight_axes) - 1:
        return
    order = [i for i in range(len(nest.weight_axes)) if i not in (column, channel)] + [column, channel]
    copy = sch.cache_read(total, nest.weight, "global")
    sch.transform_layout(copy, ("write", 0), lambda *index: [index[i] for i in order])


FEW_COLUMNS = ScheduleRule(
    name="few_columns",
    summary="many rows by a few columns, as a convolution of few outputs: dot products along the sum",
    rewrite=schedule_few_columns,
    open_space=few_columns_space,
)
"""The schedule rule of few columns."""
