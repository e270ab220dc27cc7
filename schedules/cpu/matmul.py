"""Matrix multiplication and what is fused around it: matmul, linear_relu, a model's dense layers.

The nest and its rewriting are in ``register_tile``. This file says when it applies, and with which tile.
"""

from __future__ import annotations

from typing import Any

from ..contraction import find_contraction
from ..rule import ScheduleRule
from ..space import KnobSpace
from .operand_layout import PACK_NOTHING
from .register_tile import register_tile
from .tile_choice import ROW_STREAMS, TALL_ROWS, TileChoice, dividing_lanes, tile_choice
from .tile_space import tile_space

# A weight packed for so few rows is hardly used.
_FEW_ROWS = 3

# More rows than L1 has ways are worth it where the others compute this much more.
_WORTH_PADDING = 1.05


def matmul_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the space of tiles, or None where the PrimFunc is no plain matrix multiplication.

    Few rows against a weight that is contiguous along the sum are dot products: packing would move more than
    it saves, and the general rule's partial sums read the weight once, as it lies.
    """
    nest = find_contraction(func)
    if nest is None or not nest.plain:
        return None
    choice = tile_choice(nest, target)
    dots = nest.weight_axes[-1] != nest.column and not nest.constant_weight
    if dots and nest.row_extent <= _FEW_ROWS and nest.depth % choice.lanes == 0:
        return None
    return tile_space(choice, _default(choice))


def _default(choice: TileChoice) -> dict[str, int]:
    """Choose a tile without a search.

    Two vectors wide: enough multiply-adds in flight; wider where that computes fewer columns. Few rows make
    one tile, with more vectors; its weight is used once, so it is read where it lies if it can be.
    """
    nest, lanes = choice.nest, choice.lanes
    few = nest.row_extent <= choice.most_rows
    mr = nest.row_extent if few else _rows(choice)
    vectors = choice.wide_vectors(mr)
    pack = {}
    if few:
        lanes = dividing_lanes(nest.columns, lanes)
        whole = [v for v in range(vectors, 0, -1) if choice.weight.reads_unpacked(v * lanes)]
        if whole and not nest.constant_weight:
            vectors, pack = whole[0], {"pack": PACK_NOTHING}
    else:
        mr, vectors = choice.whole_rows_tile() or _wider_tile(choice, mr, vectors)
    nr = vectors * lanes
    return {"lanes": lanes, "mr": mr, "nr": nr, **choice.blocks(mr, nr), **pack}


def _wider_tile(choice: TileChoice, mr: int, vectors: int) -> tuple[int, int]:
    """Return a wider tile where it computes fewer columns, and threads can share its panels or whole tiles.

    130 columns are 5 panels of 32, or 3 of 48. On 2 threads of a Zen 4 130^3 takes 0.70 of the time so, 197
    rows by 512 x 400 0.83; tiles of 3 rows take up to twice the time, as one panel for 197 rows does.
    """
    rows, width = choice.cheaper_tile(mr, vectors)
    fewer = choice.computed_columns(width) < choice.computed_columns(vectors)
    shared = choice.nest.row_extent % rows == 0 or choice.computed_columns(width) > width
    return (rows, width) if rows > _FEW_ROWS and width > vectors and fewer and shared else (mr, vectors)


def _rows(choice: TileChoice) -> int:
    """Return up to eight rows, no more streams of data than L1 has ways; more where that saves padding.

    And more where each tile reads the weight from L3: the fewer the better.

    A model's layers 768 to 3072 and back on 50 rows, 2 threads of a Zen 5: 9.8 ms with 10 rows and nothing
    padded, 11.1 with 8 and 56 rows computed.
    """
    few = min(choice.most_rows, ROW_STREAMS)
    tall = choice.even_rows(min(choice.most_rows, TALL_ROWS))
    if choice.weight.is_read_from_l3(choice.row_tiles(tall), 2 * choice.lanes):
        return tall
    candidates = [choice.even_rows(most) for most in range(few, choice.most_rows + 1)]
    computed = {rows: choice.nest.tiles_in_line(rows) * rows for rows in candidates}
    least = min(candidates, key=lambda rows: computed[rows])
    return least if computed[least] * _WORTH_PADDING < computed[candidates[0]] else candidates[0]


MATMUL = ScheduleRule(
    name="matmul",
    summary="register tile over packed panels of the weight: matrix multiplication and what is fused to it",
    rewrite=register_tile,
    open_space=matmul_space,
)
