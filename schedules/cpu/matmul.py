"""Matrix multiplication and what is fused around it: matmul, linear_relu, a model's dense layers.

The nest and its rewriting are in ``register_tile``. This file says when it applies, and with which tile.
"""

from __future__ import annotations

from typing import Any

from ..nests.contraction import find_contraction
from ..rule import ScheduleRule
from ..space import KnobSpace
from .block_choice import cheapest_tile, default_blocks
from .even_parts import dividing_lanes
from .flat_rows import schedule_tiles, tiles_algorithm, tiles_of_lines_or_all
from .operand_layout import can_stage
from .shared_panels import shares_columns, tile_of_shared_panels
from .sharing_cost import is_priced
from .tile_choice import LEAST_TALL_ROWS, ROW_STREAMS, TALL_ROWS, VECTOR_CANDIDATES, TileChoice, tile_choice
from .weight_panels import PACK_NOTHING

# A weight packed for so few rows is hardly used.
_FEW_ROWS = 3

# More rows than L1 has ways are worth it where the others compute this much more.
_WORTH_PADDING = 1.05

# Units that take whole registers wait for loads sooner: what a tall tile of more vectors must cost at most
# there. On 2 threads of an Emerald Rapids, shares of the peak with 8 rows by 2 vectors and with 6 by 4 or 8
# by 3, which cost 0.96: 512^3, 768^3 and 1024^3 0.91 and 0.93, 2048 x 2048 x 512 0.89 and 0.92, 128 x 768 x
# 768 0.83 and 0.92; but 128 x 1280 x 192 by 4 rows 0.84 and 0.71.
_FEWER_LOADS = 0.97

# A weight along the sum is turned for so many vectors: 384 rows by 1024 x 1024 of it 0.83 and 0.88.
_WIDEST_TURNED = 4


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
    if dots and nest.row_extent <= _FEW_ROWS and (nest.has_single_row or nest.depth % choice.lanes == 0):
        return None
    return tiles_of_lines_or_all(func, choice, _default(choice))


def _default(choice: TileChoice) -> dict[str, int]:
    """Choose a tile without a search.

    Two vectors wide: enough multiply-adds in flight; wider where that computes fewer columns. Few rows make
    one tile, with more vectors; its weight is used once, so it is read where it lies if it can be. The last
    vector of columns is masked where the CPU has masks; narrow ones that divide 1388 columns, 8 rows by a sum
    of 248, take 3.5 times as long on a Zen 5.
    """
    nest, lanes = choice.nest, choice.lanes
    few = nest.row_extent <= choice.most_rows
    mr = nest.row_extent if few else _rows(choice)
    vectors = choice.wide_vectors(mr)
    pack = {}
    if few:
        narrow = lanes if choice.machine.has_masks else dividing_lanes(nest.columns, lanes)
        whole = [v for v in range(vectors, 0, -1) if choice.weight.reads_unpacked(v * narrow)]
        if whole and not nest.constant_weight:
            lanes, vectors, pack = narrow, whole[0], {"pack": PACK_NOTHING}
    elif is_priced(choice):
        mr, vectors = choice.whole_rows_tile() or _cheapest_tile(choice)
    else:
        mr, vectors = (
            choice.whole_rows_tile() or _tile_of_shared_rows(choice) or _wider_tile(choice, mr, vectors)
        )
        rows = range(LEAST_TALL_ROWS, min(ROW_STREAMS, nest.row_extent) + 1)
        mr, vectors = tile_of_shared_panels(choice, mr, vectors, rows)
    nr = vectors * lanes
    return {"lanes": lanes, "mr": mr, "nr": nr, **default_blocks(choice, mr, nr), **pack}


def _cheapest_tile(choice: TileChoice) -> tuple[int, int]:
    """Return the cheapest tile where packing and sharing have a cost.

    Data that are worth turning can be turned for tiles that leave no rows.
    """
    nest = choice.nest
    tiles = choice.tall_tiles
    turned = [
        (rows, width)
        for rows, width in tiles
        if nest.row_extent % rows == 0 and choice.is_worth_staging(width * choice.lanes)
    ]
    return cheapest_tile(choice, (can_stage(nest) and turned) or tiles)


def _tile_of_shared_rows(choice: TileChoice) -> tuple[int, int] | None:
    """Return the tile of which the busiest thread has the least where threads share the rows; else None."""
    if not choice.packs_alone:
        return None
    return min(choice.tall_tiles, key=lambda tile: choice.cost_of_busiest(*tile), default=None)


def _wider_tile(choice: TileChoice, mr: int, vectors: int) -> tuple[int, int]:
    """Return a wider tile where it computes fewer columns, and threads can share its panels or whole tiles.

    130 columns are 5 panels of 32, or 3 of 48. On 2 threads of a Zen 4 130^3 takes 0.70 of the time so, 197
    rows by 512 x 400 0.83; tiles of 3 rows take up to twice the time, as one panel for 197 rows does.
    """
    rows, width = choice.cheaper_tile(mr, vectors)
    fewer = _busiest(choice, rows, width) < _busiest(choice, mr, vectors)
    shared = choice.nest.row_extent % rows == 0 or choice.computed_columns(width) > width
    if rows > _FEW_ROWS and width > vectors and fewer and shared:
        return rows, width
    return (mr, vectors) if choice.machine.takes_halves else _tile_of_fewer_loads(choice, mr, vectors)


def _tile_of_fewer_loads(choice: TileChoice, mr: int, vectors: int) -> tuple[int, int]:
    """Return a tile of more vectors that waits less for loads, or the given one where none does.

    Threads share the same axis as before: its panels if they are even then, or whole tiles of rows. Rows that
    are left cannot be cut off where the weight is packed beforehand: 512^3 by 6 rows reaches 0.83 of the peak
    of an Emerald Rapids then, 0.93 by 8.
    """
    nest, by_columns = choice.nest, shares_columns(choice, mr, vectors)
    turned = nest.weight_axes[-1] != nest.column and not nest.constant_weight
    widths = range(vectors + 1, (_WIDEST_TURNED if turned else VECTOR_CANDIDATES[-1]) + 1)
    tiles = [
        (rows, width)
        for rows, width in choice.tiles(widths, LEAST_TALL_ROWS, ROW_STREAMS)
        if _busiest(choice, rows, width) <= _busiest(choice, mr, vectors)
        and shares_columns(choice, rows, width) == by_columns
        and (nest.row_extent % rows == 0 or (by_columns and not nest.constant_weight))
    ]
    best = min([(mr, vectors), *tiles], key=lambda tile: choice.cost(*tile))
    return best if choice.cost(*best) < _FEWER_LOADS * choice.cost(mr, vectors) else (mr, vectors)


def _busiest(choice: TileChoice, mr: int, vectors: int) -> int:
    """Return the columns, in vectors, that threads compute if each that shares them has as many as any."""
    threads = choice.threads if shares_columns(choice, mr, vectors) else 1
    return choice.columns_of_busiest(vectors, threads)


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
    rewrite=schedule_tiles,
    open_space=matmul_space,
    algorithm=tiles_algorithm,
)
