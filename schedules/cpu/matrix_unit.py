"""Products by a matrix unit: Intel's AMX multiplies tiles of 16 rows by 16 columns in one instruction.

The nest is that of ``register_tile``, with tiles of up to 32 rows by 32 columns whose sums are in the unit's
own registers (`matrix_tiles`), and steps of the sum of up to 64 bytes. Panels hold the weight in groups, as
those of `quantized` do; data are read as they lie, 64 bytes of each row at a time. When a tile's sums are
complete they are stored, and what follows them is computed from there in vectors.

Measured by ``measuring.measurement.measure_in_turns``, on 2 threads of a Xeon with AMX, time over that of
`quantized`: quantized_matmul of 512 cubed 0.31, of 1024 cubed 0.47, 128 rows by 768 x 768 0.42; 3x3 windows
of 56x56 pixels of 64 channels 0.36, 28x28 of 128 0.34, 7x7 of 512 0.56; 1x1 of 14x14 of 1024 to 256 0.21.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import s_tir

from ..forms.flat_rows import ROWS
from ..nests.contraction import find_contraction
from ..passes.matrix_tiles import use_tiles
from ..passes.padded_taps import leave_out_filling, leave_out_padding
from ..rule import ScheduleRule
from ..transforms import finish_tile, vectorize_last
from .matrix_unit_space import instruction_for, matrix_unit_space
from .register_tile import tile_loops
from .tile_operands import lay_out, share_blocks, stored_lanes


def schedule_matrix_unit(
    sch: s_tir.Schedule,
    *,
    lanes: int,
    mr: int,
    nr: int,
    depth: int,
    block_rows: int,
    block_columns: int,
    split_columns: int,
    pack: int,
    beside: int = 1,
    block_sums: int = 0,
) -> Any:
    """Rewrite a contraction in place; return the loop over a block's panels.

    Parameters
    ----------
    sch : Schedule
        A schedule of an unscheduled PrimFunc named ``main`` that is a contraction.
    lanes : int
        Elements of a vector of sums, and columns of a tile of the unit.
    mr, nr : int
        Rows and columns whose sums are in the unit's registers.
    depth : int
        Products of a step of the sum.
    block_rows, block_columns, split_columns, pack, beside : int
        See `register_tile`.
    block_sums : int
        Steps of the channels in a block; 0: all. With fewer a thread takes its rows and panels through one
        part of the sum after the other, and stores the sums in between: see `sum_blocks`.
    """
    nest = find_contraction(sch.mod["main"])
    instruction = None if nest is None else instruction_for(nest)
    assert nest is not None and instruction is not None, "the rule's space says that there is one"
    split = instruction.parts > 1
    if split:  # also a constant weight, in each call
        nest = replace(nest, constant_weight=False, staged=ROWS if ROWS in nest.prologue else nest.staged)
    whole = mr, nr, depth
    operands = lay_out(sch, nest, lanes, whole, pack, 0, instruction.products, own=split)
    block = operands.block
    row_block, column_block, panel, row_tiles, sums, (row, column) = tile_loops(
        sch, nest, block, mr, block_rows, [block_columns, nr]
    )
    sums[-1], *summed = sch.split(sums[-1], [None, depth // instruction.products, instruction.products])
    sch.reorder(sums[-1], row, column, *summed)
    wide = stored_lanes(nest, lanes, nr)
    sum_block = None
    if block_sums:
        sum_block, sums[-1] = sch.split(sums[-1], [None, block_sums])
        sch.reorder(sum_block, panel, *row_tiles, *sums)
    else:
        finish_tile(sch, operands.tail, row_tiles[-1], wide)
    whole_sums = operands.longer is not None or nest.channels % depth == 0
    threads = share_blocks(
        sch, nest, operands, row_block, column_block,
        lanes=lanes, nr=nr, block_columns=block_columns, split_columns=split_columns, pack=pack,
        beside=beside, grouping=instruction, whole_sums=whole_sums, sum_block=sum_block,
    )  # fmt: skip
    if sum_block is not None:
        sch.reverse_compute_at(operands.tail, threads)
        vectorize_last(sch, operands.tail, wide)
    loops = dict(zip(nest.reductions, sums, strict=True))
    if nest.channels % depth == 0:  # else what is under each window is a copy
        leave_out_padding(sch, block, nest, mr, loops)
    leave_out_filling(sch, nest.filled, nest.column, nr, loops)
    start = sch.decompose_reduction(block, sums[0] if sum_block is None else sum_block)
    if sum_block is not None:
        vectorize_last(sch, start, lanes)
    use_tiles(sch, threads, row_tiles[-1], row)
    return panel


MATRIX_UNIT = ScheduleRule(
    name="matrix_unit",
    summary="tiles of a matrix unit (AMX) over packed panels",
    rewrite=schedule_matrix_unit,
    open_space=matrix_unit_space,
)
"""The schedule rule of products by a matrix unit."""
