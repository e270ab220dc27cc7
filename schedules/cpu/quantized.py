"""Integer products, several of them summed in each lane by one instruction.

The nest is that of ``register_tile``; a step of the sum is as many products long as the CPU's instruction
sums, and panels hold the weight in groups of them: (column // nr, k // p, column % nr, k % p). Data are read
as they lie, p neighbours of a row at a time; where the sum is no multiple of p, both are padded with zeros.

Where the CPU sums products of uint8 and int8 (AVX-512 VNNI: four), operands stay bytes. Where it sums those
of int16 only (AVX2: two), the data are widened in a copy, and the weight in its panels.

Measured by ``time_evaluator``, quantized_matmul 1024^3, on 2 threads of a Zen 5: 2.47 ms, 870 GOP/s, where
matmul in float32 takes 9.94 ms. Of a Zen 3, which has no VNNI: 9.1 ms, 236 GOP/s, where float32 takes 13.6
and int32 25.3; ``vpmaddwd`` and the addition alone reach 302.
"""

from __future__ import annotations

from typing import Any

from ...machine.dot_instructions import DotInstruction, dot_instruction
from ..dot_product import with_instruction
from ..nests.contraction import Contraction, find_contraction, weight_exceeds_l2
from ..rule import ScheduleRule
from ..space import Knobs, KnobSpace
from .block_choice import default_blocks
from .register_tile import register_tile
from .shared_panels import shares_columns
from .tile_choice import CLEARLY, FMAS_IN_FLIGHT, ROW_STREAMS, TileChoice, tile_choice
from .tile_space import tile_space

# Products are computed ahead of additions; with fewer left, LLVM spills sums where requantisation follows.
_TEMPORARIES = 2

# As many rows keep a unit as busy as more do, where products and additions are two instructions: 28 rows take
# 0.80 of the time in tiles of 4, which pad none, of what they take in tiles of 5.
_ENOUGH_ROWS = 4

# A weight packed for so few rows is hardly used.
_FEW_ROWS = 3

# What the loads of a tile's panel and of its data add to the cost of a step, the tiles that are tried, and
# registers that these leave. On 2 threads of a Zen 5, time over that of 8 or fewer rows by 2 vectors: 49x49
# pixels of 192 to 40 channels, 3x3, by 7 rows and 3 vectors 0.76, 10x10 of 256 to 144 by 5 and 3 0.74, 13x13
# of 384 to 144, 1x1, by 13 and 1 0.81, 52x52 of 192 to 80 0.89; 200 x 512 x 48 by 8 and 3 0.76, but 500 x 128
# x 100, of which no line ends within a tile, by 14 and 1 1.11. With 5 vectors LLVM spills sums: 0.9 to 3.6.
_ROW_LOADS, _COLUMN_LOADS = 0.35, 0.125
_WIDTHS, _MOST_ROWS, _FOR_REQUANTISATION = (1, 2, 3, 4), 14, 3


def quantized_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the space of tiles, or None where the sums or the target are others.

    Columns that fill half a vector at most are left to the rules for vectors of int32, which are narrower.
    """
    return instruction_space(func, target, "int32")


def instruction_space(func: Any, target: Any, sums_dtype: str) -> KnobSpace | None:
    """Return the space of tiles of an instruction with such sums; None where a CPU has none for these."""
    nest = find_contraction(func)
    instruction = None if nest is None or nest.dtype != sums_dtype else _instruction(nest, target)
    if nest is None or instruction is None:
        return None
    choice = tile_choice(nest, target, instruction.products, 0 if instruction.adds else _TEMPORARIES)
    few = nest.row_extent <= _FEW_ROWS and nest.plain and not nest.constant_weight
    if choice.lanes != instruction.lanes or few:
        return None
    return with_instruction(tile_space(choice, _default(choice)), instruction)


def _instruction(nest: Contraction, target: Any) -> DotInstruction | None:
    """Return what sums these products."""
    instruction = dot_instruction(target, nest.data_dtype, nest.weight_dtype)
    return instruction if instruction is not None and nest.dtype == instruction.sums_dtype else None


def _algorithm(knobs: Knobs) -> str | None:
    """Name the form whose operands an instruction takes: those that sum two products take int16."""
    return "widened_16" if knobs["products"] == 2 else None


def _default(choice: TileChoice) -> dict[str, int]:
    """Choose a tile without a search: as many rows as L1 has ways, evenly, and two vectors or more.

    Or another that pads clearly less. Where products and additions are two instructions, as many rows as pad
    least.
    """
    mr = choice.even_rows(min(choice.most_rows, ROW_STREAMS))
    if choice.temporaries and mr > _ENOUGH_ROWS:
        mr = min(range(mr, _ENOUGH_ROWS - 1, -1), key=lambda rows: choice.nest.tiles_in_line(rows) * rows)
    vectors = choice.wide_vectors(mr)
    if not choice.temporaries:
        mr, vectors = _tile_of_less_padding(choice, mr, vectors)
    nr = vectors * choice.lanes
    return {"lanes": choice.lanes, "mr": mr, "nr": nr, **default_blocks(choice, mr, nr, fills_blocks=True)}


def _tile_of_less_padding(choice: TileChoice, mr: int, vectors: int) -> tuple[int, int]:
    """Return the tile of the least cost, or the given one where none is clearly cheaper: rows and vectors."""
    nest, by_columns = choice.nest, shares_columns(choice, mr, vectors)

    def cost(tile: tuple[int, int]) -> float:
        rows, width = tile
        padded = nest.tiles_in_line(rows) * rows * choice.computed_columns(width)
        return padded * (1 + _ROW_LOADS / rows + _COLUMN_LOADS / width)

    widths = _WIDTHS[1:] if nest.plain else _WIDTHS
    tiles = [
        (rows, width)
        for rows, width in choice.tiles(widths, _ENOUGH_ROWS, _MOST_ROWS)
        if rows * width >= FMAS_IN_FLIGHT
        and (rows + 1) * width + _FOR_REQUANTISATION <= choice.machine.vector_registers
        and (shares_columns(choice, rows, width) == by_columns or not weight_exceeds_l2(nest, choice.machine))
    ]
    best = min([(mr, vectors), *tiles], key=cost)
    return best if cost(best) < CLEARLY * cost((mr, vectors)) else (mr, vectors)


QUANTIZED = ScheduleRule(
    name="quantized",
    summary="register tile over packed panels, several integer products a lane at once (VNNI, vpmaddwd)",
    rewrite=register_tile,
    open_space=quantized_space,
    algorithm=_algorithm,
)
