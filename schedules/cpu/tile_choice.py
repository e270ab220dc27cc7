"""What a default register tile is chosen by: its cost, and the registers it fits.

Everything follows from the target's vectors, registers and caches and from the extents of the nest; no
number belongs to one machine or one shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from ...machine.element import element_bytes
from ...machine.facts import LINE_BYTES, Facts, facts
from ..nests.contraction import Contraction
from .even_parts import LEAST_LANES
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
LEAST_TALL_ROWS, TALL_ROWS = 5, 11

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

# Turned data are worth their copy where so many panels meet them, and they fill half of L2. Products of data
# that lie along the rows, 2 threads of a Zen 3: 128 x 768 x 768 take 0.77 of the time, 1024^3, where steps of
# the sum are a power of two apart, 0.62; but 768 x 64 x 384, with 4 panels, 1.06, and 100 x 300 x 200 1.1.
# Not element by element: on 2 threads of a Zen 4 1024 x 592 x 892 takes 1.22 of the time so, x 1000 1.27,
# 1024 x 592 x 1024 of float64 1.12.
_STAGING_PANELS = 16
# From a far L3 each panel reads them slowly: of float32 and float64, in squares or not, 18 products with 4 to
# 94 panels take 0.51 to 0.94 of the time, 4 images of 512 x 256 x 700 0.77 (2 threads of a Xeon with 2 MiB of
# L2); with 2 panels 0.97 and 1.32.
_STAGING_PANELS_FAR = 4

# Where units take registers in halves, vectors of halves cost no more than the loads they add. On 2 threads
# of a Zen 4, shares of the peak with whole vectors and with halves, 1x1: 96 to 24 channels at 56x56 0.70 and
# 0.94, 240 to 40 at 28x28 0.78 and 0.97, 16 to 72 at 112x112 0.58 and 0.75; 576 to 96 at 14x14 0.97, 0.95.
_WORTH_HALVES = 1.1

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
    def item_bytes(self) -> int:
        """Bytes of an operand: where one instruction sums several products, as much narrower than a sum."""
        return element_bytes(self.nest.dtype) // self.products

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

    @property
    def tall_tiles(self) -> list[tuple[int, int]]:
        """The tiles of five rows or more, and of two vectors where columns are as many: rows and vectors."""
        return self.tiles(range(min(2, self.widest), self.widest + 1), LEAST_TALL_ROWS, TALL_ROWS)

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
        far = self.nest.depth * vectors * self.lanes * self.item_bytes > self.machine.l1_bytes
        return far and self.nest.depth > self.nest.channels and not self.machine.takes_halves

    def _exceeds_l2(self, mr: int, vectors: int) -> bool:
        """Tell whether L2 does not hold a panel so wide while tiles of rows stream past it, but should."""
        nr = vectors * self.lanes
        far = self.nest.depth * nr * self.item_bytes > _HELD * self.machine.l2_bytes
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

    def is_worth_staging(self, nr: int) -> bool:
        """Tell whether data that lie along the rows are to be turned: often read from afar, or from far away.

        Or whether L2 would lose a window's data between their copy and the tiles. With blocks that copy their
        own lines 320x320 pixels of 32 to 64 channels, 3x3 by 2, take 0.91 of the time, 8 images of 112x112 of
        32 0.93, of 48 to 36, 5x5, 0.96, 160x160 of 64 to 128 0.98; 640x640 of 3 to 16 1.05, groups of 8
        channels 1.05 (2 threads of a Zen 4).
        """
        nest, lanes = self.nest, self.lanes
        if nest.staged_bytes:
            whole_lines = nest.channels * self.item_bytes >= LINE_BYTES and not nest.batch
            return nest.staged_bytes > self.machine.near_bytes and whole_lines
        if nest.data_bytes <= self.machine.l2_bytes // 2:
            return False
        if self.machine.has_far_l3 and nest.data_dtype in ("float32", "float64"):
            return self.panels(nr) >= _STAGING_PANELS_FAR
        in_squares = nest.data_dtype == "float32" and nest.row_extent % lanes == 0 == nest.depth % lanes
        return in_squares and self.panels(nr) >= _STAGING_PANELS

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
