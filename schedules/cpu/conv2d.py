"""Convolution as a matrix multiplication without a window matrix: rows are pixels, columns are channels.

The nest and its rewriting are in ``register_tile``: a tile is ``mr`` neighbouring pixels of one output line,
or of all of them (``flat_rows``), by ``nr`` output channels, summed over the window and the input channels.
Data is padded, or brought to channels last, in one parallel copy before the loops.
"""

from __future__ import annotations

from typing import Any

from ..nests.contraction import find_contraction
from ..rule import ScheduleRule
from ..space import KnobSpace
from .block_choice import cheapest_tile, default_blocks
from .even_parts import divisors
from .flat_rows import schedule_tiles, tiles_algorithm, tiles_of_lines_or_all
from .sharing_cost import is_priced
from .tile_choice import ROW_STREAMS, TileChoice, tile_choice

# So much more is computed where a long line is cut into even tiles. With 8 rows 1599 pixels by 2, 512
# channels by 3, take 0.84 of the time that 13 rows take, a page apart, on 2 threads of a Zen 4; by 1 0.98.
_NEARLY = 1.01


def conv2d_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the space of tiles, or None where the PrimFunc is no convolution with all channels summed."""
    nest = find_contraction(func)
    if nest is None or nest.plain:
        return None
    choice = tile_choice(nest, target)
    return tiles_of_lines_or_all(func, choice, default_tile(choice))


def default_tile(choice: TileChoice) -> dict[str, int]:
    """Choose a tile without a search: a divisor of the output line, with no more rows than L1 has ways.

    Where that leaves small ones only, more rows where they divide it (27x27, 256 channels 1x1: 221 GFLOP/s
    with 9 rows, 181 with 7); else, and where that adds next to nothing, tiles share the line evenly and the
    last one is cut short by a condition.
    Measured by ``measuring.measurement.measure`` on 2 threads of a Zen 5 (48 KiB of L1 in 12 ways), 64 to 256
    channels 1x1 at 56x56, blocks of 8 lines: 434 to 463 GFLOP/s with 8 rows, 403 to 442 with 14, though 14
    fill the registers better; the gap grows when other processes use the caches.
    """
    nest, lanes = choice.nest, choice.lanes
    most = min(choice.most_rows, ROW_STREAMS)
    whole = divisors(nest.row_extent, choice.most_rows)
    few = max(r for r in whole if r <= most)
    even = choice.even_rows(most)
    if 2 * few > most or few == nest.row_extent:
        mr = few
    elif nest.tiles_in_line(even) * even <= _NEARLY * nest.row_extent:
        mr = even
    else:
        mr = next((r for r in whole if r > most), even)
    mr, vectors = choice.whole_rows_tile() or _cheapest_tile(choice, mr)
    nr = vectors * lanes
    return {"lanes": lanes, "mr": mr, "nr": nr, **default_blocks(choice, mr, nr)}


def _cheapest_tile(choice: TileChoice, mr: int) -> tuple[int, int]:
    """Return a tile that is clearly cheaper than so many rows, or where sharing has a cost the cheapest."""
    tile = choice.cheaper_tile(mr, choice.wide_vectors(mr))
    if not is_priced(choice):
        return tile
    whole = [tall for tall in choice.tall_tiles if choice.nest.row_extent % tall[0] == 0]
    return cheapest_tile(choice, [tile, *whole])


CONV2D = ScheduleRule(
    name="conv2d",
    summary="register tile of output pixels by output channels over packed panels of the weight",
    rewrite=schedule_tiles,
    open_space=conv2d_space,
    algorithm=tiles_algorithm,
)
