"""A product by a weight that lies along the sum: a matrix unit reads it as it lies (`forms.swapped`).

The rows of the weight are those of tiles, and the data are turned into panels: the weight is read once, and
never packed. Time over that of `matrix_unit`, which turns the weight, bfloat16 on 2 threads of a Xeon with
AMX: 16 rows by 4096 x 4096 0.53, 32 by 11008 x 4096 0.55, 64 by 1024 x 512 0.9, 128 by 3072 x 768 0.93.
"""

from __future__ import annotations

from typing import Any

from ...machine.facts import has_feature
from ..forms.swapped import find_swapped, restate
from ..nests.contraction import find_contraction
from ..rule import ScheduleRule
from ..space import KnobSpace
from .matrix_unit_space import depth_of_step, instruction_for, tiles_around
from .swapped import schedule_swapped, with_squares
from .tile_choice import tile_choice
from .weight_panels import PACK_FIRST

# Tiles of so many rows of the weight, two below each other, in a block: what turns their results is in L1.
# Time over that of blocks of 2: 0.94 to 1.0, 16 rows by 4096 x 4096 1.02.
_BLOCK_ROWS = 4

# The weight has so many times the elements of data and result: with 2.4 times, 256 rows by 3072 x 768,
# turning these takes as long as turning it.
_MUCH_WEIGHT = 3


def swapped_matrix_unit_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the tiles of a product whose operands change places; None where it is not worth it.

    It is where data and result have a third of the weight's elements at most, and nothing is padded.
    """
    found = find_swapped(func)
    nest = None if found is None else find_contraction(restate(func))
    instruction = None if nest is None else instruction_for(nest)
    if found is None or nest is None or instruction is None or instruction.parts > 1:
        return None
    if not has_feature(target, instruction.feature):
        return None
    rows, columns, lanes = found.nest.row_extent, found.nest.columns, instruction.lanes
    depth, choice = depth_of_step(nest, instruction), tile_choice(nest, target, instruction.products)
    small = _MUCH_WEIGHT * rows * (nest.depth + columns) < nest.depth * columns
    if choice.lanes != lanes or not small or rows % lanes or columns % lanes or nest.depth % depth:
        return None
    mr, nr = (next(n for n in (2 * lanes, lanes) if axis % n == 0) for axis in (columns, rows))
    default = {
        "lanes": lanes,
        "mr": mr,
        "nr": nr,
        "depth": depth,
        "block_rows": next(b for b in range(_BLOCK_ROWS, 0, -1) if columns % (b * mr) == 0),
        "block_columns": rows // nr,
        "split_columns": 0,
        "pack": PACK_FIRST,
        "beside": 1,
    }
    return with_squares(tiles_around(choice, default), (lanes,), rows, columns)


SWAPPED_MATRIX_UNIT = ScheduleRule(
    name="swapped_matrix_unit",
    summary="tiles of a matrix unit (AMX) whose rows are those of the weight, as they lie",
    rewrite=schedule_swapped,
    open_space=swapped_matrix_unit_space,
    algorithm=lambda _: "swapped",
)
"""The schedule rule of such products by a matrix unit."""
