"""Float32 products by a matrix unit that has none: a number is the sum of three bfloat16 (`float32_parts`).

The nest is that of `matrix_unit`. Six products of parts are summed for one, so that the unit, which does 14
times as many of bfloat16 in a second as vectors of float32, is still faster. Copies of the data and panels of
the weight, both made in the call, hold the parts. Sums err by less than those of `matmul` do; figures are in
docs/schedules.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf, prod
from typing import Any

from tvm import s_tir

from ...machine.facts import has_feature
from ...machine.tile_instructions import TILE_ROWS, TileInstruction
from ..forms.flat_rows import find_flat_rows, restate
from ..nests.contraction import Contraction, find_contraction
from ..passes.tile_step import rows_of_parts
from ..restatement import held_blocks
from ..rule import ScheduleRule
from ..space import Knobs, KnobSpace
from .even_parts import UNEVEN
from .few_rows import FEW_ROWS
from .flat_rows import either_tiles, tiles_algorithm
from .matrix_unit import schedule_matrix_unit
from .matrix_unit_space import (
    columns_of_tile,
    cycles_of_products,
    depth_of_step,
    instruction_for,
    rows_of_tile,
    steps_of_sum,
    tiles_around,
)
from .sum_blocks import SUM_BYTES, Blocking, with_sum_blocks
from .tile_choice import ROW_STREAMS, TileChoice, tile_choice
from .weight_panels import PACK_FIRST, PACK_IN_BLOCK

# Cycles on a Xeon with AMX, loads included: of a row of a product of tiles, two of them below each other or
# one; of storing and loading a row of sums. Of a vector of products by other instructions, and of packing an
# element for these. Of turning an element of a weight by itself. Fitted to 109 matmuls and convolutions, most
# within 0.8 to 1.2.
_OF_ROW, _OF_SINGLE_ROW, _OF_SUMS, _OF_VECTOR, _OF_PACKING, _OF_TURNING = 1.6, 2.5, 6, 0.62, 0.9, 1.5
# Of splitting an element: of a product of a batch, data and weight, which its thread reads from L2; one that
# its thread reads from beyond; one that others read as well. And of starting to, where threads wait.
_OF_NEAR, _OF_OWN, _OF_SHARED, _OF_WAITING = (0.9, 0.25), 0.75, 2.5, 120_000

# So many copies of a pixel, at most, unless the weight is as many times larger. Time over that of vectors:
# 3x3 windows of 14x14 pixels of 256 channels 1.06; by 2, which are 2.25 copies, 0.8 to 0.9; of two
# images of 7x7 of 512 0.89.
_MOST_COPIES = 4

# Fewer rows wait for a weight from afar, which vectors read as it lies. Time over that of `few_rows`: 24 rows
# by 512 x 4608 1.15, 48 0.86, 64 0.80; 48 rows by 4096 x 4096 0.94 to 1.01, 64 0.88; 49 pixels under 3x3
# windows of 512 channels 0.93 to 1.19.
_MANY_ROWS = 64

# Elements under a window whose channels are filled up are copied one by one, which takes as long as so many:
# 3x3 windows of 80x80 pixels of 100 channels to 256 take 1.3 of the time of vectors, of 166 to 48 2.5.
_FILLED = 6

# What loads of a panel add to the rows that a tile's products take.
_OF_LOADS = 2

# Panels that are packed side by side, at most: a row of 32 is a page.
_BESIDE = 32


def schedule_float32_matrix_unit(sch: s_tir.Schedule, *, rows: int = 0, **knobs: int) -> None:
    """Rewrite a contraction in place, which `tiles_algorithm` has put into its form: see `MATRIX_UNIT`."""
    del rows
    schedule_matrix_unit(sch, **knobs)


@dataclass(frozen=True)
class _Tiles:
    """Tiles of a nest: of its lines, or of all its rows, of which the windows are copied.

    ``split``: elements of data that are split. ``cycles``: what it takes.
    """

    choice: TileChoice
    instruction: TileInstruction
    mr: int
    split: int

    @property
    def depth(self) -> int:
        """Products of a step."""
        return depth_of_step(self.choice.nest, self.instruction)

    @property
    def cycles(self) -> float:
        """An estimate of what all products take, splitting included."""
        return _cycles(self.choice, self.instruction, self.mr, self.depth, self.split)

    @property
    def space(self) -> KnobSpace:
        """The space around these."""
        item, nest = self.instruction.parts * self.instruction.part_bytes, self.choice.nest
        data = nest.all_rows * nest.channels if nest.plain else self.split
        default, block = _default(self.choice, self.mr, self.depth, item, data)
        return with_sum_blocks(tiles_around(self.choice, default), self.choice, block)


def float32_matrix_unit_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the space of tiles, or None where sums are others, or vectors are as fast.

    It is never preferred. Virtual machines throttle the unit to 0.3 of its rate where it works for more than
    two or three seconds, and for minutes: what takes 0.65 of the time of vectors takes 1.4 to 1.6 of it then.
    """
    nest = find_contraction(func)
    instruction = None if nest is None else instruction_for(nest)
    if nest is None or instruction is None or instruction.parts == 1:
        return None
    if not has_feature(target, instruction.feature) or _is_few_rows(func, nest, target):
        return None
    nest = replace(nest, constant_weight=False)  # split in each call
    choice = tile_choice(nest, target, instruction.products)
    if choice.lanes != instruction.lanes:
        return None
    mr = _cheapest_rows(nest.row_extent) if nest.plain else rows_of_tile(nest.row_extent, False)
    lines = _Tiles(choice, instruction, mr, _elements_split(func, nest, instruction, mr))
    flat = _of_all_rows(func, lines)
    best = lines if flat is None or flat.cycles > lines.cycles else flat
    if _share_of_vectors(choice, best.mr, best.cycles) >= 1:
        return None
    space = lines.space if flat is None else either_tiles(lines.space, flat.space, flat.mr, best is flat)
    return replace(space, preferred=False)


def _is_few_rows(func: Any, nest: Contraction, target: Any) -> bool:
    """Tell whether so few rows read a large weight that others do so faster, as it lies."""
    return nest.all_rows < _MANY_ROWS and FEW_ROWS.space(func, target) is not None


def _elements_split(func: Any, nest: Contraction, instruction: TileInstruction, mr: int) -> int:
    """Count the elements of data that are split: those under each window where channels are filled up."""
    if nest.plain or nest.channels % depth_of_step(nest, instruction) == 0:
        return int(_elements_read(func, nest) * nest.share_read(mr))
    return nest.all_rows * nest.depth * _FILLED


def _elements_read(func: Any, nest: Contraction) -> int:
    """Count the elements of data, zeros around them included, of a product."""
    if nest.plain:
        return nest.all_rows * nest.channels
    return prod(map(int, held_blocks(func)[nest.block].reads[nest.data].source.shape))


def _of_all_rows(func: Any, lines: _Tiles) -> _Tiles | None:
    """Return tiles that go on from one line to the next.

    None where rows are one axis, or windows share most of their pixels: all would be copied.
    """
    found = find_flat_rows(func)
    nest = lines.choice.nest
    if found is None:
        return None
    many = found.rows * nest.depth > _MOST_COPIES * _elements_read(func, nest)
    if many and found.rows * _MOST_COPIES > nest.columns:
        return None
    mr = _cheapest_rows(found.rows)
    flat = find_contraction(restate(func, mr))
    assert flat is not None, "the form is a product"
    flat = replace(flat, constant_weight=False)
    return replace(lines, choice=replace(lines.choice, nest=flat), mr=mr, split=flat.row_extent * flat.depth)


def _cheapest_rows(extent: int) -> int:
    """Choose the rows of a tile of an axis whose last one may be filled up: those of least cost."""

    def cost(rows: int) -> int:
        return ceil(extent / rows) * (cycles_of_products(rows) + _OF_LOADS)

    return min(range(1, min(2 * TILE_ROWS, extent) + 1), key=cost)


def _default(choice: TileChoice, mr: int, depth: int, item: int, data: int) -> tuple[Knobs, int]:
    """Choose columns and blocks, that of the sum by itself.

    ``item``: bytes of an element that is split; ``data``: elements of data. Threads share the rows where data
    are larger than the weight: each splits its own data, block by block, and streams the panels. They share
    the columns otherwise.
    """
    nest, threads = choice.nest, choice.threads
    more, tiles = data > nest.columns * nest.depth, choice.row_tiles(mr)
    # Of a batch each product splits what it reads itself, and just before.
    by_rows = more and ceil(tiles / threads) * threads <= UNEVEN * tiles and not nest.batch
    nr = columns_of_tile(choice, mr, 1 if by_rows else threads)
    blocking = Blocking(choice, mr, nr, depth, item)
    rows, columns, sums = blocking.by_rows() if by_rows else blocking.by_columns()
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
    return {**default, "beside": choice.weight.most_beside(default, _BESIDE)}, sums


def _share_of_vectors(choice: TileChoice, mr: int, cycles: float) -> float:
    """Estimate which part of the time of vectors of float32 the unit takes, splitting included."""
    nest = choice.nest
    if not nest.is_worth_threads or mr < 2 or _turns_elements(nest, choice.lanes):
        return inf
    rows, vectors = nest.all_rows, ceil(nest.columns / choice.lanes)
    packed = nest.weight_bytes > choice.machine.l2_bytes // 2 and not nest.is_turned
    packing = nest.columns * nest.depth * _OF_PACKING if packed else 0
    products = rows * vectors * nest.depth * nest.share_met(min(ROW_STREAMS, nest.row_extent))
    return cycles / (nest.batches * (products * _OF_VECTOR + packing))


def _cycles(choice: TileChoice, instruction: TileInstruction, mr: int, depth: int, split: int) -> float:
    """Estimate what all products take in tiles of so many rows; ``split``: elements of data."""
    nest = choice.nest
    vectors, pairs = ceil(nest.columns / choice.lanes), len(instruction.pairs)
    of_row = _OF_ROW if len(rows_of_parts(mr)) > 1 else _OF_SINGLE_ROW
    met = nest.share_met(mr) if nest.channels % depth == 0 else 1
    products = pairs * steps_of_sum(nest, depth) * cycles_of_products(mr) * met
    of_tile = products * of_row + _OF_SUMS * mr
    cycles = nest.batches * choice.row_tiles(mr) * vectors * of_tile + _splitting(choice, split, depth)
    if nest.is_turned and nest.channels % (2 * choice.lanes):  # in no whole squares
        cycles += nest.batches * nest.columns * nest.depth * _OF_TURNING
    return cycles


def _turns_elements(nest: Contraction, lanes: int) -> bool:
    """Tell whether data would be turned element by element: they are in no whole squares."""
    whole = nest.plain and nest.row_extent % lanes == 0 and nest.channels % lanes == 0
    return nest.data_channel != nest.data_rank - 1 and not whole


def _splitting(choice: TileChoice, data: int, depth: int) -> float:
    """Return the cycles of splitting both operands: of the smaller one threads read what others split."""
    nest = choice.nest
    sizes = data, nest.columns * nest.depth
    if choice.threads > 1:
        return max(sizes) * _OF_OWN + min(sizes) * _OF_SHARED + _OF_WAITING
    near = sum(sizes) * SUM_BYTES <= choice.machine.l2_bytes and nest.channels % depth == 0
    of_data, of_weight = _OF_NEAR if near else (_OF_OWN, _OF_OWN)
    return nest.batches * (sizes[0] * of_data + sizes[1] * of_weight)


FLOAT32_MATRIX_UNIT = ScheduleRule(
    name="float32_matrix_unit",
    summary="tiles of a matrix unit (AMX), each float32 split into three bfloat16",
    rewrite=schedule_float32_matrix_unit,
    open_space=float32_matrix_unit_space,
    algorithm=tiles_algorithm,
)
"""The schedule rule of float32 products by a matrix unit."""
