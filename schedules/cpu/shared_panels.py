"""Tiles of as many panels as threads can share: each then packs its own, and reads what it has just packed.

Else each packs all panels, or all are packed first: threads wait for each other once more, and half of the
panels come from another core. Time of a tile of shared panels over the latter, products by a weight that is
turned, 2 threads of a Xeon: 40 rows by 256 x 48 0.39, by 448 x 80 0.34, 144 rows by 256 x 240 0.76, 480 rows
1.02.
"""

from __future__ import annotations

from collections.abc import Iterable

from .block_choice import default_blocks
from .tile_choice import VECTOR_CANDIDATES, TileChoice
from .weight_panels import PACK_FIRST

# Cycles of waiting, and of an element that is packed; multiply-adds of a vector in a cycle.
_OF_WAITING, _OF_ELEMENT, _IN_CYCLE = 80_000, 1, 2


def tile_of_shared_panels(choice: TileChoice, mr: int, vectors: int, rows: Iterable[int]) -> tuple[int, int]:
    """Return a tile whose panels threads share, where turning all of them takes longer; else the given.

    Parameters
    ----------
    choice : TileChoice
        The nest on a machine.
    mr, vectors : int
        Rows and vectors of the tile that would do otherwise.
    rows : iterable of int
        Rows that the other may have.
    """
    nest, blocks = choice.nest, default_blocks(choice, mr, vectors * choice.lanes)
    if not nest.is_turned or blocks["split_columns"]:
        return mr, vectors
    tiles = [
        (each, width)
        for each in rows
        for width in VECTOR_CANDIDATES
        if each <= choice.fitting_rows(width) and shares_columns(choice, each, width)
    ]

    def cycles(tile: tuple[int, int]) -> float:
        return choice.cost(*tile) * nest.outer_rows * nest.depth / _IN_CYCLE

    best = min(tiles, key=cycles, default=(mr, vectors))
    by_rows = choice.cost_of_busiest(mr, vectors) * nest.depth / _IN_CYCLE
    waiting = _OF_WAITING if blocks["pack"] == PACK_FIRST else 0
    packing = waiting + nest.columns * nest.depth * _OF_ELEMENT
    return best if cycles(best) < by_rows + packing else (mr, vectors)


def shares_columns(choice: TileChoice, mr: int, vectors: int) -> bool:
    """Tell whether threads share the panels of such a tile."""
    return bool(default_blocks(choice, mr, vectors * choice.lanes)["split_columns"])
