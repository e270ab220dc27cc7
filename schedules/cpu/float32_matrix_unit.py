"""Float32 products by a matrix unit that has none: a number is the sum of three bfloat16 (`float32_parts`).

The nest is that of `matrix_unit`. Six products of parts are summed for one, so that the unit, which does 14
times as many of bfloat16 in a second as vectors of float32, is still faster. Copies of the data and panels of
the weight, both made in the call, hold the parts. Sums err by less than those of `matmul` do; figures are in
docs/schedules.md.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

from ...machine.facts import has_feature
from ..contraction import find_contraction
from ..rule import ScheduleRule
from ..space import KnobSpace
from ..tile_step import rows_of_parts
from .even_parts import UNEVEN, even_divisor, even_part
from .few_rows import FEW_ROWS
from .matrix_unit import schedule_matrix_unit
from .matrix_unit_space import (
    BESIDE,
    LEAST_CYCLES,
    columns_of_tile,
    depth_of_step,
    instruction_for,
    rows_of_tile,
    tiles_around,
)
from .operand_layout import PACK_FIRST, PACK_IN_BLOCK
from .tile_choice import TileChoice, tile_choice

# Cycles on a Xeon with AMX, loads included: of a row of a product of tiles, two of them below each other or
# one; of storing and loading a row of sums; of splitting an element; of starting threads once more. And of a
# vector of products by other instructions, and of packing an element for these. Fitted to 80 matmuls and
# convolutions, most within 0.8 to 1.2.
_OF_ROW, _OF_SINGLE_ROW, _OF_SUMS, _OF_SPLITTING, _OF_START = 1.9, 2.5, 6, 1.0, 40_000
_OF_VECTOR, _OF_PACKING = 0.62, 0.9
# Of a batch whose products threads share, and that L2 holds: no thread reads what another has split.
_OF_NEAR_ROW, _OF_NEAR_SPLITTING = 1.6, 0.5

# What the unit must save to be chosen for it.
_CLEARLY = 0.93

# A block keeps to this part of L2. Where all panels do, it is short: its results, written in parts of lines,
# keep to another part. 3000 pixels of 80 to 512 channels, window of 3, take 0.70 of the time so.
_KEPT, _RESULTS, _SUM_BYTES = 3 / 8, 1 / 8, 4


def float32_matrix_unit_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the space of tiles, or None where sums are others, or vectors are as fast."""
    nest = find_contraction(func)
    instruction = None if nest is None else instruction_for(nest)
    if nest is None or instruction is None or instruction.parts == 1:
        return None
    # A few rows read a large weight once: others do so as it lies.
    if not has_feature(target, instruction.feature) or FEW_ROWS.space(func, target) is not None:
        return None
    nest = replace(nest, constant_weight=False)  # split in each call
    choice = tile_choice(nest, target, instruction.products)
    mr, depth = rows_of_tile(nest), depth_of_step(nest, instruction)
    worth = choice.lanes == instruction.lanes and _is_worth_it(choice, len(instruction.pairs), mr, depth)
    item = instruction.parts * instruction.part_bytes
    return tiles_around(choice, _default(choice, mr, depth, item)) if worth else None


def _default(choice: TileChoice, mr: int, depth: int, item: int) -> dict[str, int]:
    """Choose columns and blocks; an element that is split has so many bytes.

    Threads share the rows where data are larger than the weight: each splits its own data, block by block,
    and streams the panels. They share the columns otherwise. A block keeps its rows, or its panels, in L2,
    where one panel, or one tile of rows, after the other meets them.
    """
    nest, threads = choice.nest, choice.threads
    tiles, kept = choice.row_tiles(mr), int(choice.machine.l2_bytes * _KEPT)
    more = nest.outer_rows * nest.row_extent * nest.channels > nest.columns * nest.depth
    by_rows = more and ceil(tiles / threads) * threads <= UNEVEN * tiles
    nr = columns_of_tile(choice, mr, 1 if by_rows else threads)
    panels = choice.panels(nr)
    if by_rows:
        most = kept // (mr * nest.channels * item)
        if panels * nr * nest.depth * item <= kept:
            results = int(choice.machine.l2_bytes * _RESULTS) // (mr * nest.columns * _SUM_BYTES)
            most = min(most, max(1, results))
        rows, columns = choice.whole_lines(mr, even_part(tiles, most, threads)), panels
    else:
        rows, most = 1, kept // (nr * nest.depth * item)
        columns = even_part(panels, most, threads)
        if panels % columns:  # A block that is cut short would be packed element by element.
            columns = even_divisor(panels, most, threads)
    default = {
        "lanes": choice.lanes,
        "mr": mr,
        "nr": nr,
        "depth": depth,
        "block_rows": rows,
        "block_columns": columns,
        "split_columns": int(not by_rows),
        "pack": PACK_FIRST if by_rows else PACK_IN_BLOCK,
    }
    return {**default, "beside": choice.weight.most_beside(default, BESIDE)}


def _is_worth_it(choice: TileChoice, pairs: int, mr: int, depth: int) -> bool:
    """Tell whether the unit takes clearly less, splitting included, than vectors of float32 do."""
    nest = choice.nest
    rows, vectors = nest.outer_rows * nest.row_extent, ceil(nest.columns / choice.lanes)
    # Channels that come first would be turned element by element.
    turned = not nest.plain and nest.data_channel != nest.data_rank - 1
    if not nest.is_worth_threads or turned or mr < 2:
        return False
    steps, parts = nest.depth // nest.channels * ceil(nest.channels / depth), rows_of_parts(mr)
    of_weight = nest.columns * nest.depth
    elements, l2_bytes = rows * nest.channels + of_weight, choice.machine.l2_bytes
    near = choice.threads == 1 and nest.batches * elements * _SUM_BYTES <= l2_bytes * choice.machine.cores
    near = near and nest.channels % depth == 0
    of_row = (_OF_NEAR_ROW if near else _OF_ROW) if len(parts) > 1 else _OF_SINGLE_ROW
    of_tile = pairs * steps * of_row * sum(max(LEAST_CYCLES, part) for part in parts) + _OF_SUMS * mr
    splitting = elements * (_OF_NEAR_SPLITTING if near else _OF_SPLITTING)
    by_unit = nest.batches * (choice.row_tiles(mr) * vectors * of_tile + splitting) + _OF_START
    packing = of_weight * _OF_PACKING if nest.weight_bytes > l2_bytes // 2 and not nest.is_turned else 0
    return by_unit < _CLEARLY * nest.batches * (rows * vectors * nest.depth * _OF_VECTOR + packing)


FLOAT32_MATRIX_UNIT = ScheduleRule(
    name="float32_matrix_unit",
    summary="tiles of a matrix unit (AMX), each float32 split into three bfloat16",
    rewrite=schedule_matrix_unit,
    open_space=float32_matrix_unit_space,
)
"""The schedule rule of float32 products by a matrix unit."""
