"""The knobs of products by a matrix unit: the tiles of a default, their candidates and constraints."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from ...machine.facts import has_feature
from ...machine.tile_instructions import TILE_ROWS, TileInstruction, tile_instruction
from ..contraction import Contraction, find_contraction
from ..matrix_tiles import fits_tiles, rows_of_parts
from ..space import Constraint, Knob, Knobs, KnobSpace
from .operand_layout import PACK_FIRST, PACK_IN_BLOCK
from .tile_choice import TileChoice, tile_choice

# More tiles of columns share one tile of data too rarely to gain anything.
_MOST_VECTORS = 4
# Cycles of a product of tiles of few rows, and of storing and loading a vector of sums: see `_is_worth_it`.
# On a Xeon with AMX 16 rows take 16, 14 14, 8 and fewer 9 to 10, however deep a step is.
_LEAST_CYCLES, _CYCLES_OF_SUMS = 9, 3

_ROWS = (7, 8, 13, 14, 16, 28, 32)
_BLOCKS = (1, 2, 4, 7, 8, 14, 16, 28, 32, 64)


def instruction_for(nest: Contraction) -> TileInstruction | None:
    """Return what multiplies tiles of a nest's operands, None where nothing does."""
    return tile_instruction(nest.data_dtype, nest.weight_dtype, nest.dtype)


def matrix_unit_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the space of tiles, or None where the sums or the target are others, or nothing is gained."""
    nest = find_contraction(func)
    instruction = None if nest is None else instruction_for(nest)
    if nest is None or instruction is None or not has_feature(target, instruction.feature):
        return None
    choice = tile_choice(nest, target, instruction.products)
    mr, depth = _rows(nest), _depth(nest, instruction)
    if choice.lanes != instruction.lanes or not _is_worth_it(choice, instruction, mr, depth):
        return None
    nr = _columns(choice, mr)
    blocks = choice.blocks(mr, nr)
    # Panels hold groups: a weight is always packed.
    pack = PACK_IN_BLOCK if blocks["pack"] == PACK_IN_BLOCK else PACK_FIRST
    default = {"lanes": choice.lanes, "mr": mr, "nr": nr, "depth": depth, **blocks, "pack": pack}
    return KnobSpace(_knobs(choice, default), _constraints(choice, default), default)


def _rows(nest: Contraction) -> int:
    """Choose the rows of a tile: two parts, one below the other, evenly; of a line such as divide it."""
    most = 2 * TILE_ROWS
    if nest.plain:
        return ceil(nest.row_extent / ceil(nest.row_extent / most))
    return max(rows for rows in range(1, most + 1) if nest.row_extent % rows == 0)


def _depth(nest: Contraction, instruction: TileInstruction) -> int:
    """Choose the products of a step: the most, or fewer where these divide the channels in as many steps."""
    most, whole = instruction.elements, instruction.products
    channels = ceil(nest.channels / whole) * whole
    even = max(depth for depth in range(whole, most + 1, whole) if channels % depth == 0)
    return even if channels // even <= ceil(channels / most) else min(most, channels)


def _columns(choice: TileChoice, mr: int) -> int:
    """Choose the columns of a tile: the most, of those that pad least and that threads can share evenly."""
    lanes = choice.lanes

    def waste(vectors: int) -> tuple[int, bool, int]:
        panels = choice.panels(vectors * lanes)
        return panels * vectors, panels % choice.threads != 0, -vectors

    fitting = [v for v in range(1, _MOST_VECTORS + 1) if fits_tiles(mr, v * lanes)]
    return min(fitting, key=waste) * lanes


def _is_worth_it(choice: TileChoice, instruction: TileInstruction, mr: int, depth: int) -> bool:
    """Tell whether the unit takes less than instructions that sum products in the lanes of vectors.

    Counted in cycles, of 16 columns: a product of tiles takes one a row, nine at least, and storing and
    loading its sums three a vector; two of the others end in a cycle. Copies that pad operands are worth it
    where there is much to multiply.
    """
    nest = choice.nest
    if not nest.is_worth_threads and (nest.row_extent % mr or nest.channels % depth):
        return False
    steps = nest.depth // nest.channels * ceil(nest.channels / depth)
    of_tile = sum(max(_LEAST_CYCLES, rows) for rows in rows_of_parts(mr)) * steps + _CYCLES_OF_SUMS * mr
    rows = nest.outer_rows * nest.row_extent
    return choice.row_tiles(mr) * of_tile < rows * ceil(nest.depth / instruction.products) / 2


def _knobs(choice: TileChoice, default: Knobs) -> tuple[Knob, ...]:
    nest, lanes = choice.nest, choice.lanes

    def near(name: str, candidates: tuple[int, ...], fits: Callable[[int], bool], meaning: str) -> Knob:
        return Knob(name, tuple(sorted({*filter(fits, candidates), default[name]})), meaning)

    widths = tuple(vectors * lanes for vectors in range(1, _MOST_VECTORS + 1))
    return (
        Knob("lanes", (lanes,), "columns of a tile of the unit"),
        near("mr", _ROWS, lambda mr: _divides_line(nest, mr), "rows whose sums are in tiles"),
        near("nr", widths, lambda nr: nr <= _widest(choice), "columns whose sums are in tiles"),
        Knob("depth", (default["depth"],), "products of a step of the sum"),
        near("block_rows", _BLOCKS, lambda b: b <= choice.row_tiles(default["mr"]), "row tiles in a block"),
        near("block_columns", _BLOCKS, lambda b: b <= choice.panels(default["nr"]), "panels in a block"),
        Knob("split_columns", (0, 1), "1: threads share columns first; 0: rows"),
        Knob("pack", (PACK_IN_BLOCK, PACK_FIRST), "weight: 1 packed by block, 2 first"),
    )


def _constraints(choice: TileChoice, default: Knobs) -> tuple[Constraint, ...]:
    nest, lanes, depth = choice.nest, choice.lanes, default["depth"]
    return (
        Constraint("mr, nr, block_rows and block_columns are at least 1", _positive),
        Constraint("split_columns is 0 or 1, pack 1 or 2", _choices),
        Constraint(
            f"lanes is {lanes}, and divides nr", lambda k: k["lanes"] == lanes and k["nr"] % lanes == 0
        ),
        Constraint(f"depth is {depth}: steps fill tiles or divide the sum", lambda k: k["depth"] == depth),
        Constraint(
            "sums of mr x nr fit the tiles, beside one of the weight and those of the data",
            lambda k: fits_tiles(k["mr"], k["nr"]),
        ),
        Constraint(
            "mr is at most the row axis, and divides a convolution's line",
            lambda k: _divides_line(nest, k["mr"]),
        ),
        Constraint(
            "nr is at most the column axis, rounded up to a vector", lambda k: k["nr"] <= _widest(choice)
        ),
        Constraint(
            "block_rows is at most the row tiles", lambda k: k["block_rows"] <= choice.row_tiles(k["mr"])
        ),
        Constraint(
            "block_rows is part of a line of row tiles or whole lines",
            lambda k: k["block_rows"] == choice.whole_lines(k["mr"], k["block_rows"]),
        ),
        Constraint(
            "block_columns is at most the panels", lambda k: k["block_columns"] <= choice.panels(k["nr"])
        ),
        Constraint(
            "pack=1 needs split_columns=1", lambda k: k["pack"] != PACK_IN_BLOCK or k["split_columns"] == 1
        ),
        Constraint(
            "pack=2 where the weight is constant: packing it once costs nothing",
            lambda k: k["pack"] == PACK_FIRST or not nest.constant_weight,
        ),
    )


def _divides_line(nest: Contraction, mr: int) -> bool:
    return mr <= nest.row_extent and (nest.plain or nest.row_extent % mr == 0)


def _widest(choice: TileChoice) -> int:
    return ceil(choice.nest.columns / choice.lanes) * choice.lanes


def _positive(knobs: Knobs) -> bool:
    return all(knobs[name] >= 1 for name in ("mr", "nr", "block_rows", "block_columns"))


def _choices(knobs: Knobs) -> bool:
    return knobs["split_columns"] in (0, 1) and knobs["pack"] in (PACK_IN_BLOCK, PACK_FIRST)
