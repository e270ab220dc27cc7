"""The default blocks of a register-tiled nest: what caches hold, who shares what, where panels are packed.

Everything follows from the target's caches and threads and from the extents of the nest; no number belongs to
one machine or one shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from ...machine.element import element_bytes
from ...machine.facts import Facts
from ..nests.contraction import Contraction
from .even_parts import UNEVEN, divisors, even_divisor, even_part
from .sharing_cost import is_priced, sharing_cost
from .tile_choice import TileChoice
from .weight_panels import PACK_FIRST, PACK_IN_BLOCK, PACK_NOTHING

# Data, results and other processes want their part of a thread's share of L3. By
# tuning.measuring.measurement.measure on 2 threads of a Zen 5 with 32 MiB, matmul 2048^3: 463 to 473 GFLOP/s
# with 1 to 4 MiB of panels in a block, 456 with 8 MiB; in noisier minutes 470 and 433.
_SHARERS_OF_L3 = 16

# So many panels of long sums may fill half of a thread's share: data are read once for each block of them. On
# 2 threads of a Zen 3, 512 rows by 4096 columns, 11008 products: 302 ms with 4, 310 with 2, 356 with 1.
_FEWEST_PANELS = 4

# Panels keep to this part of L2 where L3 is far away. On 2 threads of a Xeon, 2 MiB of L2 and 480 of L3, time
# over that of many panels: 128 rows by 3072 x 768 0.85, by 768 x 3072 0.86, 64 by 4096 x 4096 0.71, 512 by
# 4096 x 4096 0.77, 1024 cubed 0.96, 2048 0.87.
# Two of a constant weight may fill two thirds of it: tiles that meet one ask for the next then. 43 linear
# layers or convolutions, 32 to 256 rows, sums of 1536 to 3072, take 0.89 of the time in geometric mean.
_PART_OF_L2 = 4

# Vectors of which the busiest thread has more than so many times its part, where the last panel is narrow.
_WAITING = 1.08

# So many rows of multiply-adds take as long as to write panels to memory and to read them again, where L3
# does not hold them: threads rather pack for themselves and wait. 128 pixels of 480 to 712 channels, 7x7,
# take 0.85 of the time, 100 rows by 712 x 20000 0.74 (2 threads of a Zen 4).
_ROWS_OF_A_PASS = 16
# Groups that an instruction sums take longer to pack, and rows less: so many for each of its products. 2
# images of 8x8 pixels of 232 to 408 channels, 3x3 by 2, of bytes take 0.87 of the time, of 128 to 456 0.86,
# 16 rows by 480 x 640 0.82; of 10x10 of 128 to 200, of whose 7 panels one thread has 4, 1.1 (also there).
_ROWS_OF_GROUPS = 2

# Beside data that exceed this part of L3, L2 keeps a weight whose rows lie apart, and is read from there for
# each tile, if a block has so many times fewer rows. On 2 threads of a Zen 4, 4 and 16 images of 56x56 pixels
# of 256 to 128 channels take 0.91 and 0.83 of the time, 4 of 80x80 of 256 to 64 0.88, 16 of 40x40 of 384 to
# 128 0.87, 25600 rows by 384 x 128 0.88, 50000 by 512 x 64 0.98; one image, and panels that L1 holds, 1.0.
_MUCH_OF_L3 = 4
_BESIDE_WEIGHT = 4

# Tiles of rows of which the busiest thread has more than so many times its part: others would wait for it.
_UNEVEN_TILES = 4 / 3


def default_blocks(
    choice: TileChoice, mr: int, nr: int, much_data: int = 0, fills_blocks: bool = False
) -> dict[str, int]:
    """Choose the blocks of tiles, who shares what, and where panels are packed.

    Threads share the rows where `WeightReading.packs_alone` holds. Of larger weights they share the columns
    where the panels can be dealt out evenly: each then packs its own, and all read the data. They share the
    rows otherwise, and where nothing is packed in the call and data are larger than the weight. A block's
    rows keep to half of L2, where each panel meets them; its panels keep to a part of a thread's share of L3,
    which others use as well: more would be evicted between one block of rows and the next.

    Parameters
    ----------
    choice : TileChoice
        The nest on a machine.
    mr, nr : int
        Rows and columns of a tile.
    much_data : int
        Threads also share the rows where data are so many times the weight, and this is packed in the call; 0
        for never.
    fills_blocks : bool
        Whether columns that fill no panels may be filled up to whole blocks, which threads share. 16 rows of
        bytes by 2024 x 1600 and 1290 x 640 take 0.94 and 0.95 of the time so, 8 rows by 9 panels, filled up
        to 10, 1.1 (2 threads of a Zen 4).
    """
    blocks = _BlockChoice(choice, mr, nr)
    if is_priced(choice):
        return blocks.cheapest
    settled = blocks.settled_packing(blocks.tiles)
    if not choice.nest.is_worth_threads:
        pack = PACK_IN_BLOCK if settled is None else settled
        return _knobs(blocks.tiles, blocks.panels, by_columns=True, pack=pack)
    times = much_data if settled is None else 1
    by_columns = blocks.shares_columns(settled) and not (times and shares_rows(choice, mr, times))
    if settled is None and not by_columns:
        settled = blocks.settled_packing(ceil(blocks.tiles / choice.threads))
    rows = blocks.rows(by_columns, settled)
    pack = blocks.packing(by_columns, rows) if settled is None else settled
    fills_blocks = fills_blocks and by_columns and pack == PACK_IN_BLOCK
    return _knobs(rows, blocks.columns(by_columns, fills_blocks), by_columns, pack)


def cheapest_tile(choice: TileChoice, tiles: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the tile, rows and vectors, that costs least with its default blocks: see `sharing_cost`."""

    def cost(tile: tuple[int, int]) -> float:
        nr = tile[1] * choice.lanes
        return sharing_cost(choice, tile[0], nr, default_blocks(choice, tile[0], nr))

    return min(tiles, key=cost)


def shares_rows(choice: TileChoice, mr: int, times: int) -> bool:
    """Tell whether threads share the rows: data exceed the weight so many times, and go into even parts.

    Each thread then reads and writes places of its own, which the other's cache need not give up.
    """
    nest, tiles, threads = choice.nest, choice.row_tiles(mr), choice.threads
    cut = nest.row_extent % mr != 0
    parts = nest.outer_rows if cut else tiles
    item = element_bytes(nest.data_dtype)
    more = nest.all_rows * nest.channels * item > times * nest.weight_bytes
    even = ceil(parts / threads) * threads <= UNEVEN * parts
    return more and tiles >= 8 * threads and even and not (cut and nest.plain)


def _knobs(rows: int, columns: int, by_columns: bool, pack: int) -> dict[str, int]:
    return {"block_rows": rows, "block_columns": columns, "split_columns": int(by_columns), "pack": pack}


@dataclass(frozen=True)
class _BlockChoice:
    """What the choice of blocks depends on: a nest on a machine, and the tile."""

    choice: TileChoice
    mr: int
    nr: int

    @property
    def nest(self) -> Contraction:
        return self.choice.nest

    @property
    def machine(self) -> Facts:
        return self.choice.machine

    @property
    def tiles(self) -> int:
        return self.choice.row_tiles(self.mr)

    @property
    def panels(self) -> int:
        return self.choice.panels(self.nr)

    @property
    def rows_in_l2(self) -> int:
        """The tiles of rows that half of L2 holds."""
        return self.machine.l2_bytes // 2 // (self.nest.channels * self.mr * self.choice.item_bytes)

    @property
    def cheapest(self) -> dict[str, int]:
        """The blocks, who shares what, and where panels are packed, of the least cost: see `sharing_cost`.

        Threads share the rows where that costs the same: each reads data and writes results of its own.
        """
        choice, mr, nr = self.choice, self.mr, self.nr
        packs = [PACK_FIRST]
        if not self.nest.constant_weight:
            packs += [PACK_IN_BLOCK, *[PACK_NOTHING] * choice.weight.reads_unpacked(nr)]
        candidates = [
            _knobs(self.rows(by_columns, pack), self.columns(by_columns, False), by_columns, pack)
            for pack in packs
            for by_columns in (False, True)
        ]
        return min(candidates, key=lambda blocks: sharing_cost(choice, mr, nr, blocks))

    def settled_packing(self, tiles: int) -> int | None:
        """Return where panels are packed that so many tiles read, beforehand or nowhere.

        None where who shares what decides it.
        """
        if self.nest.constant_weight:
            return PACK_FIRST
        weight = self.choice.weight
        starves = weight.starves(self.tiles, self.mr, self.nr)
        return PACK_NOTHING if weight.is_soon_read(tiles, self.nr) and not starves else None

    def packing(self, by_columns: bool, rows: int) -> int:
        """Return where panels are packed in the call: by who reads them, or before all tiles."""
        # Several blocks of rows would pack the weight again each.
        packs_own = self.choice.weight.is_held and ceil(self.tiles / rows) <= self.choice.threads
        return PACK_IN_BLOCK if by_columns or packs_own else PACK_FIRST

    def shares_columns(self, settled: int | None) -> bool:
        """Tell whether threads share the columns, by how wide panels are, and how many tiles rows have."""
        choice, threads, tiles, panels = self.choice, self.choice.threads, self.tiles, self.panels
        if self._is_shared_alone(settled):
            return False
        if self.nest.filled and tiles >= 8 * threads:
            # Panels of different phases have one tap or several: shared, they keep one thread waiting.
            return False
        if tiles >= 8 * threads and choice.weight.is_held and self._is_left_waiting:
            return False
        uneven = ceil(panels / threads) * threads / panels - 1
        worth_waiting = uneven * self.nest.all_rows <= self._rows_of_packing
        return panels >= 8 * threads or tiles < threads or worth_waiting

    def _is_shared_alone(self, settled: int | None) -> bool:
        """Tell whether threads share the rows, and none needs what another packs: see `WeightReading`."""
        threads, tiles = self.choice.threads, self.tiles
        of_thread = ceil(tiles / threads)
        # A thread of several blocks of rows would wait for panels that all pack first: by columns 512 cubed
        # takes 0.95 of the time, 512 by 384 x 512 0.93, 1024 by 640 x 256 0.95 (2 threads of a Zen 5).
        near = settled == PACK_NOTHING or of_thread <= self.rows_in_l2
        return self.choice.packs_alone and near and of_thread * threads <= _UNEVEN_TILES * tiles

    @property
    def _rows_of_packing(self) -> int:
        """The rows whose multiply-adds take as long as what threads save that share the panels."""
        if self.nest.weight_bytes > self.machine.kept_by_l3:
            return _ROWS_OF_A_PASS
        products = self.choice.products
        return 0 if products == 1 or self.nest.constant_weight else _ROWS_OF_GROUPS * products

    @property
    def _is_left_waiting(self) -> bool:
        """Whether a thread waits for others because the last panel is narrow: see `narrow_panels`.

        Of 7 vectors in panels of two one thread has 3. 4 of 16x16 pixels, 32 to 104 channels, 3x3, take 0.92
        of the time if threads share the rows, on 2 threads of a Zen 5; 144 rows by 240 x 256 that is turned,
        of which one thread has 7 of 15, 1.04.
        """
        choice = self.choice
        vectors = ceil(self.nest.columns / choice.lanes)
        computed = choice.columns_of_busiest(self.nr // choice.lanes, choice.threads)
        return choice.products == 1 and computed > _WAITING * vectors

    def rows(self, by_columns: bool, settled: int | None) -> int:
        """Return the tiles of rows in a block."""
        rows = self._rows_of_all(settled) if by_columns else self._shared_rows(settled)
        return self.choice.whole_lines(self.mr, rows)

    def _rows_of_all(self, settled: int | None) -> int:
        """Return the tiles in a block of rows that all threads read."""
        if settled == PACK_NOTHING:
            # Rows of one block, and what is left of them, can be cut off where no panels are packed for it.
            return self.tiles
        rows = even_part(self.tiles, self.rows_in_l2, 1)
        if 2 * rows <= min(self.tiles, self.rows_in_l2):
            # No size is even: of 7 tiles, of which L2 holds 4, each by itself would read all panels anew.
            # 49 rows by 4608 x 512 take 0.88 of the time, on 2 threads of a Zen 5.
            rows = ceil(self.tiles / ceil(self.tiles / self.rows_in_l2))
        return rows

    def _shared_rows(self, settled: int | None) -> int:
        """Return the tiles in a block of rows that threads share."""
        nest, line, held = self.nest, self.nest.tiles_in_line(self.mr), self.rows_in_l2
        if settled == PACK_NOTHING and self._streams_past_weight:
            held //= _BESIDE_WEIGHT
        # In whole lines, where there are several: rounded up afterwards, one thread has more of them.
        unit = line if 1 < nest.outer_rows and line <= held else 1
        rows = unit * even_part(self.tiles // unit, held // unit, self.choice.threads)
        # Of tiles that have conditions LLVM keeps those of one line in registers, and spills others.
        return min(rows, line) if not nest.plain and nest.row_extent % self.mr else rows

    @property
    def _streams_past_weight(self) -> bool:
        """Whether data come from afar, and a panel from L2 for each tile of rows, as L1 does not hold it."""
        nest, item = self.nest, self.choice.item_bytes
        afar = _MUCH_OF_L3 * nest.all_rows * nest.channels * item > self.machine.kept_by_l3
        return afar and 2 * nest.depth * self.nr * item > self.machine.l1_bytes

    def columns(self, by_columns: bool, fills_blocks: bool) -> int:
        """Return the panels in a block."""
        nest, machine, threads = self.nest, self.machine, self.choice.threads if by_columns else 1
        panel = nest.depth * self.nr * self.choice.item_bytes
        most = self._panels_in_cache(panel)
        share = ceil(self.panels / threads)
        if fills_blocks and nest.columns % self.nr and share * threads <= UNEVEN * self.panels:
            # Half of L2 holds them, and a copy that is filled up, as of pairs of bfloat16.
            return max(divisors(share, min(most, machine.l2_bytes // 4 // panel)), default=1)
        columns = even_part(self.panels, most, threads)
        in_groups = self.choice.products > 1 and machine.has_masks and not nest.constant_weight
        if (nest.is_turned or in_groups) and self.panels % columns:
            return even_divisor(self.panels, most, threads)
        return columns

    def _panels_in_cache(self, panel: int) -> int:
        """Return how many panels of so many bytes a block may have, or 0: it has one then."""
        machine, share = self.machine, self.machine.l3_bytes // self.machine.cores
        if machine.has_far_l3:
            asks = min(2, 2 * machine.l2_bytes // 3 // panel) if self.nest.constant_weight else 0
            return max(asks, machine.l2_bytes // _PART_OF_L2 // panel)
        return max(share // _SHARERS_OF_L3 // panel, min(_FEWEST_PANELS, share // 2 // panel))
