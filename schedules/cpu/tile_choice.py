"""What a default register tile is chosen by: its cost, the registers it fits, the blocks that caches hold.

Everything follows from the target's vectors, registers and caches and from the extents of the nest; no
number belongs to one machine or one shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd
from typing import Any

import tvm

from ...machine.facts import Facts, facts
from ..contraction import Contraction, weight_exceeds_l2
from ..space import Knobs
from .operand_layout import PACK_FIRST, PACK_IN_BLOCK, PACK_NOTHING, is_packed_along

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

# What a load adds to the cost of a multiply-add, and what a tile must save to be chosen for that. Fitted
# to 19 convolutions 1x1, one thread of a Zen 5: ratios of times of tiles as these say, within 5 % for most.
_LOAD = 0.25
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

# Larger blocks are worth this much more work on the thread that has most.
_UNEVEN = 1.06

# Turned data are worth their copy where so many panels meet them, and they fill half of L2. Products of data
# that lie along the rows, 2 threads of a Zen 3: 128 x 768 x 768 take 0.77 of the time, 1024^3, where steps of
# the sum are a power of two apart, 0.62; but 768 x 64 x 384, with 4 panels, 1.06, and 100 x 300 x 200 1.1.
_STAGING_PANELS = 16

# Panels packed side by side: 4 are read in stretches of 256 or 512 bytes, and more gain nothing. On 2 threads
# of a Zen 3, 128 rows by 4096 x 4096 take 36 ms with 1, 32.7 with 2, 32.3 with 4, 33.7 with 8, 70 rows with 4
# 0.75 of the time; weights that keep to L2 the same or a little more.
BESIDE_CANDIDATES = (1, 2, 3, 4, 8)
_BESIDE = 4

# Tiles of rows that are not worth packing panels for, for each line of a cache that a step of the sum reads.
# On 2 threads of a Zen 4, packed over not packed: 32 to 128 rows by 512 x 512 1.2 to 1.03, by 384 x 96 4.2 to
# 1.3, 49 pixels of 320 to 1280 channels 1.1; with AVX2, of one line, 32 rows 1.0 to 1.2, 64 rows 0.9 to 1.06.
_UNPACKED_TILES = 8
# Each step of a sum may be in another page: fewer tiles are worth it where these are more than the
# translation of addresses keeps: 128 rows by 3072 x 768 0.91, 61 by 3000 x 300 0.84, 64 by 2048 x 1000 1.2.
_STEPS_IN_PAGES = 1024
# Rows whose bytes are a multiple of a large power of two share few sets of a cache: of a panel that lies in
# rows of 4096 or 12288 bytes L2 of 1 MiB keeps 256. Where it keeps less than this part, panels are packed
# for more rows than one tile has. On 2 threads of a Zen 5, 128 rows by 768 x n, packed over not packed: 0.58
# for n = 2048, 0.67 for 1024, 3072 or 4096, 0.87 for 1536, 1.04 for 2304 or 2816; over 24 random matmuls
# that this concerns 0.72 in geometric mean, with AVX2 (18) 0.59.
_KEPT = 0.5
# Units that take registers in halves multiply no faster than L3 gives two lines of each row, wherever rows
# lie, of a weight that is this part of L3. On 2 threads of a Zen 4, 8 to 150 rows by 30 matrices of 2 to
# 12 MB reach 0.80 to 0.97 of the peak so, packed 0.6 to 0.92, by `few_rows` 0.55 to 0.88; 3x3 windows of 7x7
# pixels of 512 channels 1.04 (0.87, 0.82), of 4x4 1.08 (0.65, 0.69). By 16 MB 0.55 to 0.85; one line of each
# row, as of AVX2, 0.35 to 0.70 (0.50 to 0.90, 0.66 to 0.86).
_KEPT_BY_L3 = 3 / 8
_LINE_BYTES = 64

# Vectors of fewer elements are worth no trouble.
LEAST_LANES = 4

# Vectors of a tile.
VECTOR_CANDIDATES = (1, 2, 3, 4, 6, 8)


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
        """Elements in a vector; fewer where there are fewer columns."""
        columns = 1 << max(0, self.nest.columns - 1).bit_length()
        return min(self.machine.lanes(self.nest.dtype), columns)

    @property
    def most_rows(self) -> int:
        """The most rows of a tile two vectors wide that fit the registers."""
        return self.fitting_rows(2)

    def fitting_rows(self, vectors: int) -> int:
        """Return the most rows that fit the registers beside a panel's vectors and a broadcast, or 0."""
        free = self.machine.vector_registers - vectors - BROADCAST_REGISTERS - self.temporaries
        return free // vectors

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
        """Return the vectors of a tile: two, more where few rows leave too few multiply-adds in flight."""
        needed = max(2, ceil(FMAS_IN_FLIGHT / mr))
        fitting = next(v for v in range(needed, 0, -1) if v == 1 or mr <= self.fitting_rows(v))
        return max(1, min(fitting, ceil(self.nest.columns / self.lanes)))

    def cheaper_tile(self, mr: int, vectors: int) -> tuple[int, int]:
        """Return the tile of the least cost, or the given one where none is clearly cheaper.

        Columns that fill few panels are padded most where these are wide: 40 columns are 3 vectors, and 4 in
        panels of 2 (72 to 40 channels 1x1 at 28x28: 76 us with those, 56 with 3, one thread of a Zen 5).
        """
        extent = self.nest.row_extent
        tiles = [
            (rows, width)
            for width in range(1, min(ceil(self.nest.columns / self.lanes), VECTOR_CANDIDATES[-1]) + 1)
            for rows in range(
                min(_LEAST_ROWS, extent), min(self.fitting_rows(width), ROW_STREAMS, extent) + 1
            )
        ]
        best = min([(mr, vectors), *tiles], key=lambda tile: self._cost(*tile))
        return best if self._cost(*best) < CLEARLY * self._cost(mr, vectors) else (mr, vectors)

    def computed_columns(self, vectors: int) -> int:
        """Return the columns of whole panels so wide, in vectors."""
        return self.panels(vectors * self.lanes) * vectors

    def _cost(self, mr: int, vectors: int) -> float:
        """Estimate what a line takes."""
        sums = self.nest.tiles_in_line(mr) * mr * self.computed_columns(vectors)
        return sums * tile_cost(mr, vectors)

    def blocks(self, mr: int, nr: int) -> dict[str, int]:
        """Choose the blocks, who shares what, and where panels are packed.

        Threads share the columns where the panels can be dealt out evenly: each then packs its own, and all
        read the data. They share the rows otherwise. A block's rows keep to half of L2, where each panel
        meets them; its panels keep to a part of a thread's share of L3, which others use as well: more
        would be evicted between one block of rows and the next.
        """
        nest, machine = self.nest, self.machine
        panels, tiles = self.panels(nr), self.row_tiles(mr)
        # Where one instruction sums several products, operands are that much narrower than sums.
        item = int(tvm.DataType(nest.dtype).bits) // 8 // self.products
        if not nest.is_worth_threads:
            pack = self._packing(mr, nr, by_columns=True)
            return {"block_rows": tiles, "block_columns": panels, "split_columns": 1, "pack": pack}
        # A batch that the threads share evenly needs no other sharing.
        shared = nest.batches % machine.cores == 0 or nest.batches >= 8 * machine.cores
        threads = 1 if shared else machine.cores
        by_columns = panels % threads == 0 or panels >= 8 * threads or tiles < threads
        share, panel = machine.l3_bytes // machine.cores, nest.depth * nr * item
        panels_in_l3 = max(share // _SHARERS_OF_L3 // panel, min(_FEWEST_PANELS, share // 2 // panel))
        rows_in_l2 = machine.l2_bytes // 2 // (nest.channels * mr * item)
        columns = _part(panels, panels_in_l3, threads if by_columns else 1)
        pack = self._packing(mr, nr, by_columns)
        # Rows of one block, and what is left of them, can be cut off where no panels are packed for it.
        one_block = pack == PACK_NOTHING and by_columns
        rows = tiles if one_block else _part(tiles, rows_in_l2, 1 if by_columns else threads)
        return {
            "block_rows": self.whole_lines(mr, rows),
            "block_columns": columns,
            "split_columns": int(by_columns),
            "pack": pack,
        }

    def _packing(self, mr: int, nr: int, by_columns: bool) -> int:
        """Choose where panels are packed: beforehand, in the block that reads them, or nowhere."""
        if self.nest.constant_weight:
            return PACK_FIRST
        if self.is_soon_read(mr, nr):
            return PACK_NOTHING
        return PACK_IN_BLOCK if by_columns else PACK_FIRST

    def lines(self, nr: int) -> int:
        """Return the lines of a cache that a step of the sum reads of the weight, for nr columns."""
        return max(1, nr * int(tvm.DataType(self.nest.dtype).bits) // 8 // _LINE_BYTES)

    def is_soon_read(self, mr: int, nr: int) -> bool:
        """Tell whether too few tiles read a weight for packing it, and they can read it where it lies."""
        if not self.reads_unpacked(nr):
            return False
        if self._streams_from_l3(nr):
            return self.row_tiles(mr) <= _UNPACKED_TILES * self.lines(nr)
        if self.nest.outer_rows * self.nest.row_extent > self.most_rows and self._evicts_itself(nr):
            return False
        tiles = self.row_tiles(mr) * ceil(self.nest.depth / _STEPS_IN_PAGES)
        return tiles <= _UNPACKED_TILES * self.lines(nr)

    def is_read_from_l3(self, mr: int, nr: int) -> bool:
        """Tell whether each tile is to read a weight from L3, where it lies."""
        far = self.nest.weight_bytes > self.machine.l2_bytes
        return far and self._streams_from_l3(nr) and self.is_soon_read(mr, nr)

    def _streams_from_l3(self, nr: int) -> bool:
        """Tell whether L3 holds the weight, and gives it as fast as it is multiplied."""
        near = self.nest.weight_bytes <= _KEPT_BY_L3 * self.machine.l3_bytes
        return near and self.lines(nr) > 1 and self.machine.unit_bits < self.machine.vector_bits

    def _evicts_itself(self, nr: int) -> bool:
        """Tell whether L2 keeps less than half of a panel's rows where they lie: see `_KEPT`."""
        item = int(tvm.DataType(self.nest.dtype).bits) // 8
        row = self.nest.columns * item
        apart = max(row & -row, nr * item)
        return self.nest.depth * apart * _KEPT >= self.machine.l2_bytes

    def is_worth_staging(self, nr: int) -> bool:
        """Tell whether data that lie along the rows are read often enough, and from afar."""
        nest = self.nest
        size = nest.outer_rows * nest.row_extent * nest.depth * int(tvm.DataType(nest.data_dtype).bits) // 8
        return self.panels(nr) >= _STAGING_PANELS and size > self.machine.l2_bytes // 2

    def reads_unpacked(self, nr: int) -> bool:
        """Tell whether vectors of the weight can be read where it lies; the last may be masked."""
        nest = self.nest
        lies = nest.weight_block is None and nest.weight_axes[-1] == nest.column and self.products == 1
        return lies and (nest.columns % nr == 0 or self.machine.has_masks)

    def can_pack(self, knobs: Knobs, beside: int) -> bool:
        """Tell whether so many panels can be packed side by side."""
        panels = self.panels(knobs["nr"])
        at_once = min(knobs["block_columns"], panels) if knobs["pack"] == PACK_IN_BLOCK else panels
        packed = knobs["pack"] != PACK_NOTHING and is_packed_along(self.nest, self.products)
        return packed and at_once % beside == 0

    def beside(self, knobs: Knobs) -> int:
        """Choose how many panels are packed side by side: several where the weight comes from afar."""
        if not weight_exceeds_l2(self.nest, self.machine):
            return 1
        return next(b for b in range(_BESIDE, 0, -1) if b == 1 or self.can_pack(knobs, b))

    def whole_lines(self, mr: int, rows: int) -> int:
        """Round the row tiles of a block up to whole lines where they are more than one."""
        line = self.nest.tiles_in_line(mr)
        return rows if rows <= line else ceil(rows / line) * line


def dividing_lanes(columns: int, lanes: int) -> int:
    """Return the elements of the widest vectors, of at most ``lanes``, that columns are whole ones of.

    Shorter vectors of a weight that is read as it lies are no slower than waiting for memory is. Vectors of
    fewer than four elements are worth less than what they save; ``lanes`` is the answer then.
    """
    whole = gcd(columns, lanes)
    return whole if whole >= LEAST_LANES else lanes


def tile_cost(mr: int, vectors: int) -> float:
    """Estimate a multiply-add in a register tile: dearer with more loads each and too few in flight."""
    return (1 + _LOAD * (1 / mr + 1 / vectors)) / min(1, mr * vectors / FMAS_IN_FLIGHT)


def tile_choice(nest: Contraction, target: Any, products: int = 1, temporaries: int = 0) -> TileChoice:
    """Bring a nest and the facts of a target together."""
    return TileChoice(nest, facts(target), products, temporaries)


def _part(whole: int, most: int, threads: int) -> int:
    """Return the largest even part of at most ``most`` that leaves no thread much more than its share."""
    sizes = ((n, ceil(whole / (threads * n))) for n in range(1, whole + 1))
    share = ceil(whole / threads)
    part = next((size for n, size in sizes if size <= most and n * size <= _UNEVEN * share), 1)
    # A divisor that is not much smaller cuts no block short.
    return next((d for d in range(part, part * 3 // 4, -1) if share % d == 0), part)
