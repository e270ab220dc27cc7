"""What a default register tile is chosen by: its cost, the registers it fits, the blocks that caches hold.

Everything follows from the target's vectors, registers and caches and from the extents of the nest; no
number belongs to one machine or one shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import tvm

from ...machine.facts import Facts, facts
from ..nests.contraction import Contraction
from .even_parts import LEAST_LANES, UNEVEN, even_divisor, even_part
from .weight_panels import PACK_FIRST, PACK_IN_BLOCK, PACK_NOTHING
from .weight_reading import WeightReading

# A step of the sum needs one register for the broadcast of a data value.
BROADCAST_REGISTERS = 1

# Multiply-adds that must be in flight to hide their latency: 4 or 5 cycles times 2 units.
FMAS_IN_FLIGHT = 8

# Rows are separate streams: with more than an L1 cache has ways, rows a power of two apart evict each other.
ROW_STREAMS = 8
# Some more are worth it where each tile reads the weight from L3. On 2 threads of a Zen 4, shares of the peak
# with 8, 10 and 11 rows: 32 rows by 3072 x 768 0.85, - and 0.96, 128 by 1536 x 1536 0.85, 0.90 and 0.95; with
# 13 rows 0.83 to 0.96 of sums of 512 or 768, 0.46 to 0.83 of longer ones.
TALL_ROWS = 11

# Short sums are bound by what they store: rows and vectors of a tile for them, as many sums as others have.
# On 2 threads of a Zen 4, shares of the peak of 8 rows by 2 vectors and of this: 3x3 windows of 3 channels to
# 64 at 224x224 0.83 and 0.93, of 8 channels 0.95 and 0.98, 12544 rows by 27 to 64 0.93 and 0.95, 784 by 48 to
# 512 0.93 and 0.98; of sums of 100 0.95 and 0.96, of 128 0.91 and 0.89.
_SHORT_SUM, _SHORT_TILE = 80, (4, 4)

# What a load adds to the cost of a multiply-add, and what a tile must save to be chosen for that. Fitted
# to 19 convolutions 1x1, one thread of a Zen 5: ratios of times of tiles as these say, within 5 % for most.
_LOAD = 0.25
# So much a load of a panel adds that takes more of L2: it comes from L3 for each tile of rows. By 2 threads
# of a Zen 5 of 1 MiB, 1024 x 1024 by a sum of 4096: 6 rows by 4 vectors 19.7 ms, 8 by 2 18.2; 20x20 pixels of
# 512 to 1024 channels, 3x3 by 2: 5 by 4 8.9, 5 by 2 8.4.
_LOAD_FROM_L3, _HELD = 1.0, 7 / 8
# Of a window's panel L2 gives a line in two cycles: for fewer rows the multiply-adds wait. 4 images of 24x24,
# 64 to 80 channels, 3x3: 2, 3, 4 and 5 rows by 5 vectors 0.81, 0.55, 0.42 and 0.41 ms; of a 1x1 layer of as
# many products 3 rows are as fast as others (2 threads of a Zen 5).
_FED_ROWS = 4
# With fewer rows a tile reads its panel faster than L2 gives it.
_LEAST_ROWS = 3
CLEARLY = 0.95

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
_PART_OF_L2 = 4

# Turned data are worth their copy where so many panels meet them, and they fill half of L2. Products of data
# that lie along the rows, 2 threads of a Zen 3: 128 x 768 x 768 take 0.77 of the time, 1024^3, where steps of
# the sum are a power of two apart, 0.62; but 768 x 64 x 384, with 4 panels, 1.06, and 100 x 300 x 200 1.1.
# Not element by element: on 2 threads of a Zen 4 1024 x 592 x 892 takes 1.22 of the time so, x 1000 1.27,
# 1024 x 592 x 1024 of float64 1.12.
_STAGING_PANELS = 16

# Where units take registers in halves, vectors of halves cost no more than the loads they add. On 2 threads
# of a Zen 4, shares of the peak with whole vectors and with halves, 1x1: 96 to 24 channels at 56x56 0.70 and
# 0.94, 240 to 40 at 28x28 0.78 and 0.97, 16 to 72 at 112x112 0.58 and 0.75; 576 to 96 at 14x14 0.97, 0.95.
_WORTH_HALVES = 1.1

# Vectors of a tile.
VECTOR_CANDIDATES = (1, 2, 3, 4, 6, 8)

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

# Tiles of rows of which the busiest thread has more than so many times its part: others would wait for it.
_UNEVEN_TILES = 4 / 3


@dataclass(frozen=True)
class TileChoice:
    """What the choice of a tile depends on: a nest on a machine.

    Parameters
    ----------
    nest : Contraction
        The loops.
    machine : Facts
        The target's facts.
    products : int
        Products that one instruction sums in each lane; with more than one the weight is always packed.
    temporaries : int
        Registers that a default leaves free for products that another instruction adds up.
    """

    nest: Contraction
    machine: Facts
    products: int = 1
    temporaries: int = 0

    @property
    def lanes(self) -> int:
        """Elements in a vector: those of halves where units take these and they fit few columns better."""
        columns, machine = self.nest.columns, self.machine
        lanes = min(machine.lanes(self.nest.dtype), 1 << max(0, columns - 1).bit_length())
        half = lanes * machine.unit_bits // machine.vector_bits
        if half < LEAST_LANES or self.products > 1:
            return lanes
        vectors = ceil(columns / half)
        fewer = ceil(columns / lanes) * lanes > _WORTH_HALVES * vectors * half
        panel = next((width for width in range(2, vectors + 1) if vectors % width == 0), 1)
        # Seven vectors are one panel, of tiles of three rows: these leave rows that one thread pads.
        return half if fewer and (not self.nest.plain or self.fitting_rows(panel) > _LEAST_ROWS) else lanes

    @property
    def most_rows(self) -> int:
        """The most rows of a tile two vectors wide that fit the registers."""
        return self.fitting_rows(2)

    @property
    def threads(self) -> int:
        """Threads that share rows or columns: one where a batch is shared evenly, or nothing is worth it."""
        batches, cores = self.nest.batches, self.machine.cores
        shared = batches % cores == 0 or batches >= 8 * cores
        return cores if self.nest.is_worth_threads and not shared else 1

    @property
    def _item(self) -> int:
        """Bytes of an operand: where one instruction sums several products, as much narrower than a sum."""
        return int(tvm.DataType(self.nest.dtype).bits) // 8 // self.products

    @property
    def weight(self) -> WeightReading:
        """How tiles read the weight."""
        return WeightReading(self.nest, self.machine, self.products, self.most_rows)

    @property
    def packs_alone(self) -> bool:
        """Whether threads share the rows, and none needs what another packs: see `WeightReading`."""
        return self.threads > 1 and self.weight.packs_alone

    def fitting_rows(self, vectors: int) -> int:
        """Return the most rows that fit the registers beside a panel's vectors and a broadcast, or 0."""
        free = self.machine.vector_registers - vectors - BROADCAST_REGISTERS - self.temporaries
        return free // vectors

    @property
    def widest(self) -> int:
        """The vectors of the widest tile."""
        return min(ceil(self.nest.columns / self.lanes), VECTOR_CANDIDATES[-1])

    def tiles(self, widths: Iterable[int], least: int, most: int) -> list[tuple[int, int]]:
        """List the tiles of so many rows, and of these widths, that fit the registers: rows and vectors."""
        return [
            (rows, width)
            for width in widths
            for rows in range(least, min(self.fitting_rows(width), most, self.nest.row_extent) + 1)
        ]

    def row_tiles(self, mr: int) -> int:
        """Count the tiles over all row axes."""
        return self.nest.outer_rows * self.nest.tiles_in_line(mr)

    def panels(self, nr: int) -> int:
        """Count the panels of nr columns."""
        return ceil(self.nest.columns / nr)

    def even_rows(self, most: int) -> int:
        """Return the rows of a tile that share an axis evenly in tiles of at most ``most`` rows."""
        extent = self.nest.row_extent
        return ceil(extent / ceil(extent / most))

    def wide_vectors(self, mr: int) -> int:
        """Return the vectors of a tile: two, more where few rows leave too few multiply-adds in flight.

        Or where they read more lines at a time from L3.
        """
        far = self.weight.columns_of_l3(self.row_tiles(mr), mr) // self.lanes
        needed = max(2, ceil(FMAS_IN_FLIGHT / mr), far)
        fitting = next(v for v in range(needed, 0, -1) if v == 1 or mr <= self.fitting_rows(v))
        return max(1, min(fitting, ceil(self.nest.columns / self.lanes)))

    def cheaper_tile(self, mr: int, vectors: int) -> tuple[int, int]:
        """Return the tile of the least cost, or the given one where none is clearly cheaper.

        Columns that fill few panels are padded most where these are wide: 40 columns are 3 vectors, and 4 in
        panels of 2 (72 to 40 channels 1x1 at 28x28: 76 us with those, 56 with 3, one thread of a Zen 5).
        """
        tiles = self.tiles(range(1, self.widest + 1), min(_LEAST_ROWS, self.nest.row_extent), ROW_STREAMS)
        best = min([(mr, vectors), *tiles], key=lambda tile: self.cost(*tile))
        return best if self.cost(*best) < CLEARLY * self.cost(mr, vectors) else (mr, vectors)

    def whole_rows_tile(self) -> tuple[int, int] | None:
        """Return a tile of long stretches of the output where sums are short: rows and vectors; else None."""
        rows, vectors = _SHORT_TILE
        nest, nr = self.nest, vectors * self.lanes
        whole = nest.row_extent % rows == 0 and nest.columns % nr == 0
        packs = not nest.constant_weight and not self.weight.reads_unpacked(nr)
        fits = self.fitting_rows(vectors) >= rows
        return _SHORT_TILE if nest.depth <= _SHORT_SUM and fits and whole and not packs else None

    def computed_columns(self, vectors: int) -> int:
        """Return the columns of whole panels so wide, in vectors."""
        return self.panels(vectors * self.lanes) * vectors

    def cost(self, mr: int, vectors: int) -> float:
        """Estimate what a line takes."""
        return self.cost_of(self.nest.row_extent, mr, vectors)

    def cost_of(self, rows: int, mr: int, vectors: int) -> float:
        """Estimate what an axis of so many rows takes."""
        load = _LOAD_FROM_L3 if self._exceeds_l2(mr, vectors) else _LOAD
        waits = max(1, _FED_ROWS / mr) if self._streams_from_l2(vectors) else 1
        return ceil(rows / mr) * mr * self._multiplied_columns(vectors) * tile_cost(mr, vectors, load) * waits

    def _streams_from_l2(self, vectors: int) -> bool:
        """Tell whether units that take whole registers meet a window's panel that L1 does not hold."""
        far = self.nest.depth * vectors * self.lanes * self._item > self.machine.l1_bytes
        return far and self.nest.depth > self.nest.channels and not self.machine.takes_halves

    def _exceeds_l2(self, mr: int, vectors: int) -> bool:
        """Tell whether L2 does not hold a panel so wide while tiles of rows stream past it, but should."""
        nr = vectors * self.lanes
        far = self.nest.depth * nr * self._item > _HELD * self.machine.l2_bytes
        return far and not self.weight.is_read_from_l3(self.row_tiles(mr), nr)

    def cost_of_busiest(self, mr: int, vectors: int) -> float:
        """Estimate what all rows take that threads share, as if each had as many as the busiest."""
        tiles = ceil(self.row_tiles(mr) / self.threads) * self.threads
        return self.cost_of(tiles * mr, mr, vectors)

    def columns_of_busiest(self, vectors: int, threads: int) -> int:
        """Return the columns, in vectors, that threads would compute if each had as many as the busiest."""
        return ceil(self.panels(vectors * self.lanes) / threads) * threads * vectors

    def _multiplied_columns(self, vectors: int) -> float:
        """Return the computed columns, those of a weight that is filled up by the taps that panels have."""
        nest, nr = self.nest, vectors * self.lanes
        if not nest.filled:
            return self.computed_columns(vectors)
        axes = [[1 - zeros / nest.extents[a.tap] for zeros in a.shared_zeros(nr)] for a in nest.filled]
        return vectors * sum(prod(parts) for parts in zip(*axes, strict=True))

    def blocks(self, mr: int, nr: int, much_data: int = 0) -> dict[str, int]:
        """Choose the blocks, who shares what, and where panels are packed.

        Threads share the rows where `packs_alone` holds. Of larger weights they share the columns where the
        panels can be dealt out evenly: each then packs its own, and all read the data. They share the rows
        otherwise, and where nothing is packed in the call and data are larger than the weight. A block's rows
        keep to half of L2, where each panel meets them; its panels keep to a part of a thread's share of L3,
        which others use as well: more would be evicted between one block of rows and the next. ``much_data``:
        threads also share the rows where data are so many times the weight, and this is packed in the call; 0
        for never.
        """
        nest, machine = self.nest, self.machine
        panels, tiles = self.panels(nr), self.row_tiles(mr)
        item = self._item
        settled = self._settled_packing(tiles, mr, nr)
        if not nest.is_worth_threads:
            pack = PACK_IN_BLOCK if settled is None else settled
            return {"block_rows": tiles, "block_columns": panels, "split_columns": 1, "pack": pack}
        threads = self.threads
        times = much_data if settled is None else 1
        rows_in_l2 = machine.l2_bytes // 2 // (nest.channels * mr * item)
        # A thread of several blocks of rows would wait for panels that all pack first: by columns 512 cubed
        # takes 0.95 of the time, 512 by 384 x 512 0.93, 1024 by 640 x 256 0.95 (2 threads of a Zen 5).
        alone = self.packs_alone and (settled == PACK_NOTHING or ceil(tiles / threads) <= rows_in_l2)
        by_columns = self._shares_columns(nr, tiles, alone)
        by_columns = by_columns and not (times and self.shares_rows(mr, threads, times))
        most = self._panels_in_cache(nest.depth * nr * item)
        columns = even_part(panels, most, threads if by_columns else 1)
        whole = nest.is_turned or (self.products > 1 and machine.has_masks and not nest.constant_weight)
        if whole and panels % columns:
            columns = even_divisor(panels, most, threads if by_columns else 1)
        if settled is None and not by_columns:
            settled = self._settled_packing(ceil(tiles / threads), mr, nr)
        # Rows of one block, and what is left of them, can be cut off where no panels are packed for it.
        one_block = settled == PACK_NOTHING and by_columns
        rows = tiles if one_block else even_part(tiles, rows_in_l2, 1 if by_columns else threads)
        if by_columns and 2 * rows <= min(tiles, rows_in_l2):
            # No size is even: of 7 tiles, of which L2 holds 4, each by itself would read all panels anew.
            # 49 rows by 4608 x 512 take 0.88 of the time, on 2 threads of a Zen 5.
            rows = ceil(tiles / ceil(tiles / rows_in_l2))
        if not by_columns and not nest.plain and nest.row_extent % mr:
            # Of tiles that have conditions LLVM keeps those of one line in registers, and spills others.
            rows = min(rows, nest.tiles_in_line(mr))
        rows = self.whole_lines(mr, rows)
        # Several blocks of rows would pack the weight again each.
        packs_own = by_columns or (self.weight.is_held and ceil(tiles / rows) <= threads)
        pack = (PACK_IN_BLOCK if packs_own else PACK_FIRST) if settled is None else settled
        return {
            "block_rows": rows,
            "block_columns": columns,
            "split_columns": int(by_columns),
            "pack": pack,
        }

    def _shares_columns(self, nr: int, tiles: int, alone: bool) -> bool:
        """Tell whether threads share the columns, by how wide panels are, and how many tiles rows have.

        ``alone``: whether a thread would pack for its own rows.
        """
        threads, panels = self.threads, self.panels(nr)
        if alone and ceil(tiles / threads) * threads <= _UNEVEN_TILES * tiles:
            return False
        if self.nest.filled and tiles >= 8 * threads:
            # Panels of different phases have one tap or several: shared, they keep one thread waiting.
            return False
        if tiles >= 8 * threads and self.weight.is_held and self._is_left_waiting(nr):
            return False
        uneven = ceil(panels / threads) * threads / panels - 1
        worth_waiting = uneven * self.nest.all_rows <= self._rows_of_packing
        return panels >= 8 * threads or tiles < threads or worth_waiting

    @property
    def _rows_of_packing(self) -> int:
        """Return the rows whose multiply-adds take as long as what threads save that share the panels."""
        if self.nest.weight_bytes > self.machine.kept_by_l3:
            return _ROWS_OF_A_PASS
        return 0 if self.products == 1 or self.nest.constant_weight else _ROWS_OF_GROUPS * self.products

    def _is_left_waiting(self, nr: int) -> bool:
        """Tell whether a thread waits for others because the last panel is narrow: see `narrow_panels`.

        Of 7 vectors in panels of two one thread has 3. 4 of 16x16 pixels, 32 to 104 channels, 3x3, take 0.92
        of the time if threads share the rows, on 2 threads of a Zen 5; 144 rows by 240 x 256 that is turned,
        of which one thread has 7 of 15, 1.04.
        """
        vectors = ceil(self.nest.columns / self.lanes)
        computed = self.columns_of_busiest(nr // self.lanes, self.threads)
        return self.products == 1 and computed > _WAITING * vectors

    def _panels_in_cache(self, panel: int) -> int:
        """Return how many panels of so many bytes a block may have, or 0: it has one then."""
        machine, share = self.machine, self.machine.l3_bytes // self.machine.cores
        if machine.has_far_l3:
            return machine.l2_bytes // _PART_OF_L2 // panel
        return max(share // _SHARERS_OF_L3 // panel, min(_FEWEST_PANELS, share // 2 // panel))

    def shares_rows(self, mr: int, threads: int, times: int) -> bool:
        """Tell whether threads share the rows: data exceed the weight so many times, and go into even parts.

        Each thread then reads and writes places of its own, which the other's cache need not give up.
        """
        nest, tiles = self.nest, self.row_tiles(mr)
        cut = nest.row_extent % mr != 0
        parts = nest.outer_rows if cut else tiles
        item = int(tvm.DataType(nest.data_dtype).bits) // 8
        more = nest.all_rows * nest.channels * item > times * nest.weight_bytes
        even = ceil(parts / threads) * threads <= UNEVEN * parts
        return more and tiles >= 8 * threads and even and not (cut and nest.plain)

    def _settled_packing(self, tiles: int, mr: int, nr: int) -> int | None:
        """Return where panels are packed, beforehand or nowhere; None where who shares what decides it."""
        if self.nest.constant_weight:
            return PACK_FIRST
        starves = self.weight.starves(self.row_tiles(mr), mr, nr)
        return PACK_NOTHING if self.weight.is_soon_read(tiles, nr) and not starves else None

    def is_worth_staging(self, nr: int) -> bool:
        """Tell whether data that lie along the rows are whole squares to be turned, often read from afar."""
        nest, lanes = self.nest, self.lanes
        in_squares = nest.data_dtype == "float32" and nest.row_extent % lanes == 0 == nest.depth % lanes
        far = nest.data_bytes > self.machine.l2_bytes // 2
        return in_squares and far and self.panels(nr) >= _STAGING_PANELS

    def whole_lines(self, mr: int, rows: int) -> int:
        """Round the row tiles of a block up to whole lines where they are more than one."""
        line = self.nest.tiles_in_line(mr)
        return rows if rows <= line else ceil(rows / line) * line


def tile_cost(mr: int, vectors: int, of_panel: float = _LOAD) -> float:
    """Estimate a multiply-add in a register tile: dearer with more loads each and too few in flight.

    ``of_panel``: what a load of the panel adds.
    """
    return (1 + of_panel / mr + _LOAD / vectors) / min(1, mr * vectors / FMAS_IN_FLIGHT)


def tile_choice(nest: Contraction, target: Any, products: int = 1, temporaries: int = 0) -> TileChoice:
    """Bring a nest and the facts of a target together."""
    return TileChoice(nest, facts(target), products, temporaries)
