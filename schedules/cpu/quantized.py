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

from ...machine.dot_instructions import WIDE, DotInstruction, dot_instruction
from ..dot_product import with_instruction
from ..nests.contraction import Contraction, find_contraction
from ..rule import ScheduleRule
from ..space import Knobs, KnobSpace
from .register_tile import register_tile
from .tile_choice import ROW_STREAMS, TileChoice, tile_choice
from .tile_space import tile_space

# Products are computed ahead of additions; with fewer left, LLVM spills sums where requantisation follows.
_TEMPORARIES = 2

# As many rows keep a unit as busy as more do, where products and additions are two instructions: 28 rows take
# 0.80 of the time in tiles of 4, which pad none, of what they take in tiles of 5.
_ENOUGH_ROWS = 4

# A weight packed for so few rows is hardly used.
_FEW_ROWS = 3


def quantized_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the space of tiles, or None where the sums or the target are others.

    Columns that fill half a vector at most are left to the rules for vectors of int32, which are narrower.
    """
    nest = find_contraction(func)
    instruction = None if nest is None else _instruction(nest, target)
    if nest is None or instruction is None:
        return None
    choice = tile_choice(nest, target, instruction.products, 0 if instruction.adds else _TEMPORARIES)
    few = nest.row_extent <= _FEW_ROWS and nest.plain and not nest.constant_weight
    if choice.lanes != instruction.lanes or few:
        return None
    return with_instruction(tile_space(choice, _default(choice)), instruction)


def _instruction(nest: Contraction, target: Any) -> DotInstruction | None:
    """Return what sums these products; intrinsics are written data times weight."""
    instruction = dot_instruction(target, nest.data_dtype, nest.weight_dtype)
    if nest.dtype != "int32" or instruction is None:
        return None
    return instruction if nest.data_first or instruction.data_dtype == WIDE else None


def _algorithm(knobs: Knobs) -> str | None:
    """Name the form whose operands an instruction takes: those that sum two products take int16."""
    return "widened_16" if knobs["products"] == 2 else None


def _default(choice: TileChoice) -> dict[str, int]:
    """Choose a tile without a search: as many rows as L1 has ways, evenly, and two vectors or more.

    Where products and additions are two instructions, as many rows as pad least.
    """
    mr = choice.even_rows(min(choice.most_rows, ROW_STREAMS))
    if choice.temporaries and mr > _ENOUGH_ROWS:
        mr = min(range(mr, _ENOUGH_ROWS - 1, -1), key=lambda rows: choice.nest.tiles_in_line(rows) * rows)
    nr = choice.wide_vectors(mr) * choice.lanes
    return {"lanes": choice.lanes, "mr": mr, "nr": nr, **choice.blocks(mr, nr)}


QUANTIZED = ScheduleRule(
    name="quantized",
    summary="register tile over packed panels, several integer products a lane at once (VNNI, vpmaddwd)",
    rewrite=register_tile,
    open_space=quantized_space,
    algorithm=_algorithm,
)
