"""What it costs to share the tiles of a contraction, and to pack its weight, where L3 is far away.

What another core has written comes from it slowly there, a vector of the weight as slowly as 70 rows are
multiplied by it. So threads rather pack for themselves what they read, or wait for the one with more columns.

The costs are multiply-adds of vectors by the busiest thread, for each step of the sum. They are fitted to 200
products of 24 to 1024 rows by 56 to 2900 columns, sums of 64 to 5400, each with tiles of 5 to 11 rows by 2 to
5 vectors, by rows and columns, packed and not: 4022 times, by 2 threads of a Xeon of 2 MiB L2 and 300 of L3.
Fitted to three quarters, what is chosen takes 0.94 of the time of what was chosen before on the fourth. To
234 convolutions are fitted: what lines cost that threads share, and what L2 does not hold. To 78 layers of
a constant weight, read from 64 MiB of copies as in a model: what it costs to wait for its panels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ...machine.facts import LINE_BYTES
from ..space import Knobs
from .tile_choice import FMAS_IN_FLIGHT, TileChoice
from .weight_panels import PACK_FIRST, PACK_IN_BLOCK

# What the loads of a tile add to a multiply-add: of a panel's vector, and of a value of the data.
_OF_PANEL, _OF_DATA = 1.0, 1.0
# To pack a vector, so much more where each thread reads all of them, of a weight of more than half of L2, and
# to read a vector that another core has packed.
_OF_PACKING, _FROM_L3, _FROM_CORE = 6, 15, 69
# To read a packed vector again: for a block of rows, where this part of L2 does not hold both, or for each
# tile, where it does not hold a panel.
_OF_READING, _KEPT_BY_L2 = 7, 2 / 3
# To read one of a constant weight, which other layers have evicted, for a block of rows: so many rows hide it
# where tiles that meet another panel fetch it, else it costs this.
_HIDING_ROWS, _UNFETCHED = 40, 30
# To read a vector where it lies, by each tile, unless that part of L2 keeps it from which packing gains
# nothing; so much more of rows that begin within lines, or of a weight that L2 does not hold.
_AS_IT_LIES, _OF_CROSSING, _FROM_AFAR = 0.35, 1.9, 9
# To read a line of a padded copy that another core has written: its next ones are fetched meanwhile.
_OF_COPY = 20


def is_priced(choice: TileChoice) -> bool:
    """Tell whether these costs hold: of whole registers, on threads, with a far L3."""
    nest, machine = choice.nest, choice.machine
    known = choice.products == 1 and not nest.is_widened and not nest.filled
    return known and machine.has_far_l3 and not machine.takes_halves and choice.threads > 1


def sharing_cost(choice: TileChoice, mr: int, nr: int, blocks: Knobs) -> float:
    """Estimate what the busiest thread takes, in multiply-adds of vectors for each step of the sum.

    Parameters
    ----------
    choice : TileChoice
        The nest on a machine.
    mr, nr : int
        Rows and columns of a tile.
    blocks : dict
        ``block_rows``, ``split_columns`` and ``pack``, as of `default_blocks`.
    """
    share = _share_of_busiest(choice, mr, nr, blocks)
    shared_lines = _of_shared_lines(choice) if blocks["split_columns"] else 0
    return _of_tiles(choice, mr, nr, share) + shared_lines + _of_weight(choice, mr, nr, blocks, share)


@dataclass(frozen=True)
class _Share:
    """What one thread has: tiles of rows, in so many blocks, and panels, of so many vectors."""

    tiles: int
    times: int
    panels: int
    vectors: int


def _share_of_busiest(choice: TileChoice, mr: int, nr: int, blocks: Knobs) -> _Share:
    threads, tiles, panels = choice.threads, choice.row_tiles(mr), choice.panels(nr)
    vectors, times = ceil(choice.nest.columns / choice.lanes), ceil(tiles / blocks["block_rows"])
    if blocks["split_columns"]:
        panels = ceil(panels / threads)
        return _Share(tiles, times, panels, min(vectors, panels * (nr // choice.lanes)))
    times = ceil(times / threads)
    return _Share(min(tiles, times * blocks["block_rows"]), times, panels, vectors)


def _of_tiles(choice: TileChoice, mr: int, nr: int, share: _Share) -> float:
    """Return what the multiply-adds of a share take, and the loads that they wait for."""
    width, others = nr // choice.lanes, share.panels - 1
    steps = share.tiles * mr * choice.nest.share_met(mr)
    return steps * (others * _step(mr, width) + _step(mr, share.vectors - others * width))


def _of_weight(choice: TileChoice, mr: int, nr: int, blocks: Knobs, share: _Share) -> float:
    """Return what it takes to pack the weight of a share, and to read it from beyond L1."""
    nest, machine, threads, weight = choice.nest, choice.machine, choice.threads, choice.weight
    block_rows, pack, vectors = blocks["block_rows"], blocks["pack"], share.vectors
    held = _KEPT_BY_L2 * machine.l2_bytes
    step_bytes = nest.depth * choice.item_bytes
    again = share.tiles if nr * step_bytes > held else 0
    if nest.constant_weight:
        fetched = weight.is_worth_fetching({**blocks, "mr": mr})
        waiting = max(0, _HIDING_ROWS - min(share.tiles, block_rows) * mr) if fetched else _UNFETCHED
        return vectors * (again * _OF_READING or share.times * waiting)
    if pack == PACK_IN_BLOCK:
        far = not blocks["split_columns"] and 2 * nest.weight_bytes > machine.l2_bytes
        return vectors * (share.times * (_OF_PACKING + _FROM_L3 * far) + again * _OF_READING)
    if pack == PACK_FIRST:
        near = (vectors * choice.lanes + block_rows * mr) * step_bytes
        again = again or (share.times if near > held else 0)
        own = ceil(nest.columns / choice.lanes) / threads
        others = vectors * (threads - 1) / threads
        return own * _OF_PACKING + others * _FROM_CORE + vectors * again * _OF_READING
    reading = 0 if weight.stays_in_l2(nr) else _AS_IT_LIES + _FROM_AFAR * (not weight.is_held)
    return share.tiles * vectors * (reading + _OF_CROSSING * weight.begins_within_lines)


def _of_shared_lines(choice: TileChoice) -> float:
    """Return what lines take that two threads need: of padded data, and where their columns meet."""
    nest, threads = choice.nest, choice.threads
    read = nest.staged_bytes / LINE_BYTES * (threads - 1) / threads
    written = nest.all_rows * choice.weight.begins_within_lines
    return (read * _OF_COPY + written * _FROM_CORE) / nest.depth


def _step(mr: int, vectors: int) -> float:
    """Return what a row of a tile so wide takes for a step of the sum."""
    in_flight = min(1, mr * vectors / FMAS_IN_FLIGHT)
    return vectors * (1 + _OF_PANEL / mr + _OF_DATA / vectors) / in_flight
