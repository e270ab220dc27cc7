"""The knobs of products by a matrix unit: the tiles of a default, their candidates and constraints."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from ...machine.facts import LINE_BYTES, has_feature
from ...machine.tile_instructions import TILE_ROWS, TileInstruction, tile_instruction
from ..nests.contraction import Contraction, find_contraction, weight_exceeds_l2
from ..passes.tile_step import fits_tiles, rows_of_parts
from ..space import Constraint, Knob, Knobs, KnobSpace
from .block_choice import default_blocks, shares_rows
from .even_parts import divisors
from .tile_choice import TileChoice, tile_choice
from .tile_space import beside_constraint, blocking_constraints
from .weight_panels import PACK_FIRST, PACK_IN_BLOCK
from .weight_reading import BESIDE_CANDIDATES

# What a load adds to the cost of a product of tiles: 1024 cubed, bfloat16, takes 1.3 of the time in tiles of
# 32 rows by 16 columns, 1.02 in 16 by 64.
_LOAD = 0.5
# More tiles of columns share one tile of data too rarely to gain anything.
_MOST_VECTORS = 4
# Cycles of a product of tiles of few rows, and of storing and loading a vector of sums: see `_is_worth_it`.
# On a Xeon with AMX 16 rows take 16, 14 14, 8 and fewer 9 to 10, however deep a step is.
_LEAST_CYCLES, _CYCLES_OF_SUMS = 9, 3
# Cycles of a tile's loads in a step, and of a line of the cache that a thread copies and another reads, where
# rows or sums are padded. Rows need no copy in tiles that divide them: 318 of bytes by 64 x 256 take 0.36 of
# the time by 6, 790 by 128 x 256 0.34 by 10, but 318 by 1024 x 1024 1.19 by 6.
_CYCLES_OF_LOADS, _CYCLES_OF_COPIED_LINE = 8, 27

# Up to so many rows others are faster, which read the weight as it lies: `dots` bytes that lie along the sum,
# where L2 holds the weight and where it does not; `few_rows` and `dots` bfloat16 in the latter case. Time
# over theirs: bytes, 6 rows by 1024 x 1024 1.26, by 4096 x 4096 3.4, 16 rows 1.6, 32 0.92; bfloat16, by 4096
# x 4096, 8 rows 1.6, 16 rows 0.93 to 1. Over the next rule's else, 1024 x 1024: bytes, 2 rows 1.6, 4 1.08, 6
# 0.95, 16 0.70; bfloat16, 2 rows 1.6, 4 1.06, 8 0.68, 16 0.30.
_FEW, _FEW_TURNED_BYTES, _FEW_TURNED_BYTES_FAR, _FEW_FAR = 4, 6, 24, 12

# Panels packed side by side, read in stretches of 256 or 512 bytes: time over that of one by one, bfloat16,
# 128 rows by 3072 x 768 0.87, by 768 x 3072 0.92, 8 rows by 4096 x 4096 0.77, 1024 cubed 0.99; bytes 0.90 to
# 1.0.
BESIDE = 8

# Where data are so many times the weight threads share the rows: each reads what it has read or padded.
# Time over that of shared columns, bfloat16: 56x56 pixels of 64 channels, 3x3 0.64, of 256 to 64 0.74, 2048
# rows by 512 x 512 0.95; 1024 rows by 512 x 256, two times as many bytes, 1.12.
_MUCH_DATA = 3

# Steps of less than this part of a tile waste it: 7x7 windows of 3 channels take 0.14 of PyTorch's speed.
_LEAST_PART = 4

_ROWS = (7, 8, 13, 14, 16, 28, 32)
_BLOCKS = (1, 2, 4, 7, 8, 14, 16, 28, 32, 64)


def instruction_for(nest: Contraction) -> TileInstruction | None:
    """Return what multiplies tiles of a nest's operands, None where nothing does."""
    found = tile_instruction(nest.data_dtype, nest.weight_dtype, nest.dtype)
    return found if found is not None and found.is_exact else None


def matrix_unit_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the space of tiles, or None where the sums or the target are others, or nothing is gained."""
    nest = find_contraction(func)
    instruction = None if nest is None else instruction_for(nest)
    if nest is None or instruction is None or instruction.parts > 1:
        return None
    if not has_feature(target, instruction.feature):
        return None
    choice = tile_choice(nest, target, instruction.products)
    depth = depth_of_step(nest, instruction)
    mr = min(
        (rows_of_tile(nest.row_extent, can_pad) for can_pad in (nest.plain, False)),
        key=lambda rows: _cycles_of_rows(choice, rows, depth),
    )
    if choice.lanes != instruction.lanes or not _is_worth_it(choice, instruction, mr, depth):
        return None
    threads = 1 if shares_rows(choice, mr, _MUCH_DATA) else choice.threads
    nr = columns_of_tile(choice, mr, threads)
    default = {"lanes": choice.lanes, "mr": mr, "nr": nr, "depth": depth, **_blocks(choice, mr, nr)}
    default["beside"] = choice.weight.most_beside(default, BESIDE)
    return tiles_around(choice, default)


def _blocks(choice: TileChoice, mr: int, nr: int) -> Knobs:
    """Choose the blocks; rows that meet the panels of a block one tile after the other are written whole.

    Tile below tile, the sums of a panel are written 128 bytes of a row at a time, and rows may be pages
    apart. With one tile of rows a block bytes of 1024 cubed take 0.67 of the time on a Xeon, 2048 rows by 512
    x 1024 0.74, 1024 rows by 512 x 512 0.85, 512 by 1024 x 4096 0.75; bfloat16 0.87 to 1.01. Pixels of
    convolutions, which lie together, take 0.95 to 1.15.
    """
    blocks = default_blocks(choice, mr, nr, _MUCH_DATA)
    one_by_one = choice.nest.plain and blocks["pack"] == PACK_IN_BLOCK and blocks["split_columns"]
    return {**blocks, "block_rows": 1} if one_by_one else blocks


def tiles_around(choice: TileChoice, default: Knobs) -> KnobSpace:
    """Return every tile and blocking worth trying around a default."""
    return KnobSpace(_knobs(choice, default), _constraints(choice, default), default)


def rows_of_tile(extent: int, can_pad: bool) -> int:
    """Choose the rows of a tile: two parts, one below the other, that divide the rows, or do so evenly.

    A product of tiles of fewer rows takes less, and rows that are not divided are copied, with others below,
    where they can be.
    """
    most = 2 * TILE_ROWS
    dividing = divisors(extent, most)[-1]
    if can_pad and dividing <= TILE_ROWS:
        return ceil(extent / ceil(extent / most))
    return dividing


def depth_of_step(nest: Contraction, instruction: TileInstruction) -> int:
    """Choose the products of a step: the most, or fewer where these divide the channels in as many steps."""
    most, whole = instruction.elements, instruction.products
    channels = ceil(nest.channels / whole) * whole
    even = max(depth for depth in range(whole, most + 1, whole) if channels % depth == 0)
    return even if channels // even <= ceil(channels / most) else min(most, channels)


def steps_of_sum(nest: Contraction, depth: int) -> int:
    """Count the steps of so many products that a sum takes."""
    return nest.depth // nest.channels * ceil(nest.channels / depth)


def cycles_of_products(mr: int) -> int:
    """Estimate the cycles of a step's products of a tile of so many rows and a tile of columns."""
    return sum(max(_LEAST_CYCLES, rows) for rows in rows_of_parts(mr))


def columns_of_tile(choice: TileChoice, mr: int, threads: int) -> int:
    """Choose the columns of a tile: those that cost least, of those that fit, and deal panels out."""
    lanes, parts = choice.lanes, len(rows_of_parts(mr))

    def cost(vectors: int) -> float:
        dealt = ceil(choice.panels(vectors * lanes) / threads) * threads
        return dealt * vectors * (1 + _LOAD * (1 / parts + 1 / vectors))

    fitting = [v for v in range(1, _MOST_VECTORS + 1) if fits_tiles(mr, v * lanes)]
    return min(fitting, key=cost) * lanes


def _is_worth_it(choice: TileChoice, instruction: TileInstruction, mr: int, depth: int) -> bool:
    """Tell whether the unit takes less than instructions that sum products in the lanes of vectors.

    Counted in cycles, of 16 columns: a product of tiles takes one a row, nine at least, and storing and
    loading its sums three a vector; two of the others end in a cycle. Copies that pad or turn data are worth
    it where there is much to multiply.
    """
    nest = choice.nest
    rows = nest.all_rows
    few = _few_rows(choice, instruction)
    if rows <= few or mr < 2 or nest.channels * _LEAST_PART < instruction.elements:
        return False
    copied = nest.row_extent % mr or nest.channels % depth or nest.data_channel != nest.data_rank - 1
    if copied and not nest.is_worth_threads:
        return False
    of_tile = cycles_of_products(mr) * steps_of_sum(nest, depth) + _CYCLES_OF_SUMS * mr
    # Of bytes an instruction sums four products, of others one.
    of_lane = instruction.products if nest.dtype == "int32" else 1
    cycles = choice.row_tiles(mr) * of_tile + _cycles_of_padding(choice, mr, depth)
    return cycles < rows * ceil(nest.depth / of_lane) / 2


def _cycles_of_rows(choice: TileChoice, mr: int, depth: int) -> float:
    """Estimate what products of tiles of so many rows take, of a vector of columns, and padding them."""
    of_tile = (cycles_of_products(mr) + _CYCLES_OF_LOADS) * steps_of_sum(choice.nest, depth)
    return choice.row_tiles(mr) * of_tile + _cycles_of_padding(choice, mr, depth)


def _cycles_of_padding(choice: TileChoice, mr: int, depth: int) -> float:
    """Estimate what padding the rows, or the sum, takes, for each vector of columns."""
    nest = choice.nest
    if not nest.plain or nest.row_extent % mr == nest.channels % depth == 0:
        return 0.0
    lines = nest.data_bytes / LINE_BYTES
    return lines * _CYCLES_OF_COPIED_LINE * choice.threads / ceil(nest.columns / choice.lanes)


def _few_rows(choice: TileChoice, instruction: TileInstruction) -> int:
    """Return the rows up to which others are faster."""
    far = weight_exceeds_l2(choice.nest, choice.machine)
    if instruction.sum_dtype != "int32":
        return _FEW_FAR if far else _FEW
    if not choice.nest.is_turned:
        return _FEW
    return _FEW_TURNED_BYTES_FAR if far else _FEW_TURNED_BYTES


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
        Knob("beside", BESIDE_CANDIDATES, "panels that are packed side by side"),
    )


def _constraints(choice: TileChoice, default: Knobs) -> tuple[Constraint, ...]:
    nest, lanes, depth = choice.nest, choice.lanes, default["depth"]
    return (
        Constraint("mr, nr, block_rows, block_columns and beside are at least 1", _positive),
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
            "mr is at most the row axis, and divides a convolution's line into tiles of several rows",
            lambda k: _divides_line(nest, k["mr"]),
        ),
        *blocking_constraints(choice, _widest(choice)),
        beside_constraint(choice),
    )


def _divides_line(nest: Contraction, mr: int) -> bool:
    return mr <= nest.row_extent and (nest.plain or (mr > 1 and nest.row_extent % mr == 0))


def _widest(choice: TileChoice) -> int:
    return ceil(choice.nest.columns / choice.lanes) * choice.lanes


def _positive(knobs: Knobs) -> bool:
    return all(knobs[name] >= 1 for name in ("mr", "nr", "block_rows", "block_columns", "beside"))


def _choices(knobs: Knobs) -> bool:
    return knobs["split_columns"] in (0, 1) and knobs["pack"] in (PACK_IN_BLOCK, PACK_FIRST)
