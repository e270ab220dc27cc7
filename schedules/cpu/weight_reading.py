"""How tiles read a weight: where it lies, or packed into panels, and from which cache.

Packing writes and reads the weight once more, and then each tile reads it in one stream. Where it lies, its
rows are apart: they may evict each other, and lie in many pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ...machine.element import element_bytes
from ...machine.facts import LINE_BYTES, Facts
from ..nests.contraction import Contraction, weight_exceeds_l2
from ..passes.panel_prefetch import steps_between
from ..space import Knobs
from .weight_panels import PACK_IN_BLOCK, PACK_NOTHING, is_packed_along

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
# rows of 4096 or 12288 bytes L2 of 1 MiB keeps 256. Where it keeps not all, panels are packed for more rows
# than one tile has. On 2 threads of a Zen 5, 128 rows by 768 x n, packed over not packed: 0.58 for n = 2048,
# 0.67 for 1024, 3072 or 4096, 0.87 for 1536, 1.04 for 2304 or 2816; of an Emerald Rapids 0.54 for 3072.

# Vectors that lie in two lines are loaded twice, and units that take whole registers wait for that: 300^3
# reaches 0.66 of the peak of an Emerald Rapids, packed 0.82, 640 x 1000 x 200 0.62 and 0.81, 700 x 130 x 900
# 0.60 and 0.78; few tiles of rows gain nothing, 17 rows by 1000 x 256 0.70 and 0.56. These units also wait
# where translating addresses takes long, the longer the fewer lines are read in a row: the part of L2 that a
# weight is then, for each. Two lines of each row read where they lie and packed, in L2 of 2 MiB: 147 KB 0.96
# and 0.84, 295 KB 0.93 and 0.86, 590 KB 0.89 and 0.90, 1 MB 0.80 and 0.88, 1.2 MB 0.79 and 0.93; four lines:
# 1 MB 0.93 and 0.93, on a Xeon with AMX packed 0.95 of the time, 1.6 MB 0.93.
_KEPT_BY_L2, _MOST_KEPT = 3 / 16, 7 / 16
# So many tiles of so few rows are worth packing what would evict itself from L1. Tiles of 4 rows by 4 lines,
# packed over not packed, on 2 threads of a Zen 5: 3136 x 256 by a sum of 64 0.89, 1024 x 1024 0.69, 300 x
# 1024 0.73, 64 x 2048 by 48 0.84; 32 x 1024 by 64 1.10, 48 x 512 by 80 1.31; of rows that do not evict each
# other, 784 x 192 by 32 1.07, 12544 x 64 by 27 1.02; 6 rows by 4 lines, 784 x 512 by 128 1.02.
# Also what L3 gives twice, as rows begin within lines: 4x4 pixels of 488 to 598 channels, 3x3, 1, 2 and 4
# images 1.2, 1.0 and 0.8 to 0.9 on 2 threads of a Zen 4.
_FEW_ROWS, _STARVING_TILES = 4, 16
# Such tiles read more lines of each row at a time where L3 gives the weight: 4x4 pixels of 512 channels, 3x3,
# 1, 2 and 4 images take 0.9, 0.92 and 0.76 to 0.91 of the time of two lines, 3x3 of 512 0.72 to 0.96; tiles
# of 5 and 6 rows 1.0 (2 threads of a Zen 4).
_LINES_OF_L3 = 4
# Tiles of a thread, of a product and of a window, that read rows which begin within lines. Time of a packed
# weight, by each thread for itself, over that: 5 tiles of 9 rows by 99 x 219 1.15, 8 of 8 by 236 x 73 1.0, 14
# of 8 by 487 x 136 0.97; of 3x3 windows 4 tiles of 7 pixels of 17 to 405 channels 0.7.
_CROSSING_TILES, _CROSSING_TILES_OF_WINDOW = 8, 3

# Vectors that a mask ends are loaded slower, which shows where columns are few vectors and tiles more than
# these. On 2 threads of a Zen 4, packed over not packed: 3600 rows by 270 x 12 0.83, x 20 0.92 to 0.97, x 30
# 0.90, x 46 0.97, x 62 0.95, x 90 0.97 to 0.99, x 100 0.99, 160 rows x 30 0.94, 100 0.97; 60x60 pixels of 30
# channels, 3x3, 0.88, 5x5 0.86.
_MASKED_VECTORS, _MASKED_TILES = 2, 12

# Rows that a thread widens itself need not come from another: they may have fewer elements than a weight that
# each packs for itself. On 2 threads of an Emerald Rapids, time over that of shared columns: 200 rows by 100
# x 300 0.63, 553 by 131 x 435 0.92, 512 cubed 0.92; 128 by 768 x 768, a sixth of it, 1.26.
_WIDENED_WEIGHT = 2

# Units that take registers in halves multiply no faster than L3 gives two lines of each row, wherever rows
# lie, of a weight that is this part of L3. On 2 threads of a Zen 4, 8 to 150 rows by 30 matrices of 2 to
# 12 MB reach 0.80 to 0.97 of the peak so, packed 0.6 to 0.92, by `few_rows` 0.55 to 0.88; 3x3 windows of 7x7
# pixels of 512 channels 1.04 (0.87, 0.82), of 4x4 1.08 (0.65, 0.69). By 16 MB 0.55 to 0.85; one line of each
# row, as of AVX2, 0.35 to 0.70 (0.50 to 0.90, 0.66 to 0.86).
_KEPT_BY_L3 = 3 / 8

# The rows of a block that the wait for a panel shows beside.
_WAITING_ROWS = 256


@dataclass(frozen=True)
class WeightReading:
    """What the choice between packing a weight and leaving it where it lies depends on.

    Parameters
    ----------
    nest : Contraction
        The loops.
    machine : Facts
        The target's facts.
    products : int
        Products that one instruction sums in each lane; with more than one the weight is always packed.
    most_rows : int
        The most rows of a tile: no more of them read the weight once.
    """

    nest: Contraction
    machine: Facts
    products: int
    most_rows: int

    @property
    def is_held(self) -> bool:
        """Whether L2 holds the weight."""
        return self.nest.weight_bytes <= self.machine.l2_bytes

    @property
    def packs_alone(self) -> bool:
        """Whether threads are to share the rows, each packing the weight for itself or reading it as it lies.

        They need not wait for each other then, read what they have just written, and write whole rows. So
        they do where L2 holds the weight, and a thread's its rows of the data, which several blocks of rows
        would pack the weight again for. Data that lie along the rows are copied if they are more (`stage`),
        which tiles that ask for each row do not. Data that are widened are a thread's own then.
        """
        nest, near = self.nest, self.machine.l2_bytes // 2
        along = nest.data_channel != nest.data_rank - 1
        little = nest.weight_bytes <= _WIDENED_WEIGHT * nest.data_bytes
        soon_packed = little if nest.is_widened else nest.weight_lies
        plain = nest.plain and soon_packed and self.products == 1 and not nest.constant_weight
        held = self.is_held and nest.data_bytes <= near * (1 if along else self.machine.cores)
        return plain and held and not self.machine.takes_halves

    def lines(self, nr: int) -> int:
        """Return the lines of a cache that a step of the sum reads of the weight, for nr columns."""
        return ceil(nr * self._item / LINE_BYTES)

    def is_soon_read(self, tiles: int, nr: int) -> bool:
        """Tell whether tiles of rows, so many, are to read the weight where it lies: packing takes longer.

        Of threads that share the rows and would pack for themselves: so many tiles each.
        """
        if not self.reads_unpacked(nr):
            return False
        if self._crosses_lines:
            return tiles <= (_CROSSING_TILES if self.nest.plain else _CROSSING_TILES_OF_WINDOW)
        if self.stays_in_l2(nr):
            return tiles <= _MASKED_TILES or not self._ends_by_mask
        if self._streams_from_l3(nr):
            return tiles <= _UNPACKED_TILES * self.lines(nr)
        several = self.nest.all_rows > self.most_rows
        if several and self._evicts_itself(nr, self.machine.l2_bytes):
            return False
        pages = ceil(self.nest.depth / _STEPS_IN_PAGES)
        return tiles * pages <= _UNPACKED_TILES * self.lines(nr)

    def is_read_from_l3(self, tiles: int, nr: int) -> bool:
        """Tell whether each of so many tiles of rows is to read the weight from L3, where it lies."""
        return not self.is_held and self._streams_from_l3(nr) and self.is_soon_read(tiles, nr)

    def stays_in_l2(self, nr: int) -> bool:
        """Tell whether L2 holds the weight where it lies, in rows of which tiles read two lines, or all.

        Packing it gains nothing then. 46 convolutions and matmuls on 2 threads of a Zen 4 take 0.95 of the
        time without, and with rows shared instead of columns; with AVX2, of one line, 1.0 to 1.5.
        """
        part = 1 if self.machine.takes_halves else min(_MOST_KEPT, self.lines(nr) * _KEPT_BY_L2)
        near = self.nest.weight_bytes <= part * self.machine.l2_bytes
        wide = self.lines(nr) > 1 or nr >= self.nest.columns
        return near and wide

    @property
    def _ends_by_mask(self) -> bool:
        """Tell whether columns are few vectors, halves of them at least, of which a mask ends the last."""
        machine, lanes = self.machine, self.machine.lanes(self.nest.dtype)
        half = lanes * machine.unit_bits // machine.vector_bits
        return self.nest.columns <= _MASKED_VECTORS * lanes and self.nest.columns % half != 0

    def _streams_from_l3(self, nr: int) -> bool:
        """Tell whether L3 holds the weight, and gives it as fast as it is multiplied."""
        near = self.nest.weight_bytes <= _KEPT_BY_L3 * self.machine.l3_bytes
        return near and self.lines(nr) > 1 and self.machine.takes_halves

    @property
    def _item(self) -> int:
        return element_bytes(self.nest.dtype)

    def columns_of_l3(self, tiles: int, mr: int) -> int:
        """Return the columns that so many tiles of few rows read at a time of a weight in L3; 0 elsewhere."""
        nr = _LINES_OF_L3 * LINE_BYTES // self._item
        return nr if mr <= _FEW_ROWS and self.is_read_from_l3(tiles, nr) else 0

    @property
    def begins_within_lines(self) -> bool:
        """Whether rows of the weight begin within lines of a cache."""
        return self.nest.columns * self._item % LINE_BYTES != 0

    @property
    def _crosses_lines(self) -> bool:
        """Tell whether rows begin within lines of a cache, and units wait for the second one."""
        return self.begins_within_lines and not self.machine.takes_halves

    def starves(self, tiles: int, mr: int, nr: int) -> bool:
        """Tell whether so many tiles wait for panels whose rows, where they lie, evict each other from L1.

        Units that take whole registers multiply 4 lines by few rows in no more cycles than L2 needs to give
        these lines, of which L1 would hold all if they were packed. Others wait for L3, which gives lines
        twice that two panels share.
        """
        few = mr <= _FEW_ROWS and tiles >= _STARVING_TILES
        if self.machine.takes_halves:
            return few and self.begins_within_lines and self.is_read_from_l3(tiles, nr)
        fits = self.nest.depth * nr * self._item <= self.machine.l1_bytes // 2
        return few and fits and self._evicts_itself(nr, self.machine.l1_bytes)

    def _evicts_itself(self, nr: int, cache_bytes: int) -> bool:
        """Tell whether a panel's rows need more of a cache's sets, where they lie, than there are."""
        row = self.nest.columns * self._item
        apart = max(row & -row, nr * self._item)
        return self.nest.depth * apart >= cache_bytes

    def reads_unpacked(self, nr: int) -> bool:
        """Tell whether vectors of the weight can be read where it lies; the last may be masked."""
        nest = self.nest
        lies = nest.weight_lies and self.products == 1
        return lies and (nest.columns % nr == 0 or self.machine.has_masks)

    def can_pack(self, knobs: Knobs, beside: int) -> bool:
        """Tell whether so many panels can be packed side by side."""
        panels = ceil(self.nest.columns / knobs["nr"])
        at_once = min(knobs["block_columns"], panels) if knobs["pack"] == PACK_IN_BLOCK else panels
        packed = knobs["pack"] != PACK_NOTHING and is_packed_along(self.nest)
        return packed and at_once % beside == 0

    def beside(self, knobs: Knobs) -> int:
        """Choose how many panels are packed side by side: several where the weight comes from afar."""
        far = weight_exceeds_l2(self.nest, self.machine)
        return self.most_beside(knobs, _BESIDE) if far else 1

    def most_beside(self, knobs: Knobs, most: int) -> int:
        """Return how many panels can be packed side by side, of at most so many."""
        return next(b for b in range(most, 0, -1) if b == 1 or self.can_pack(knobs, b))

    def can_fetch(self, knobs: Knobs) -> bool:
        """Tell whether a panel follows another, and tiles that meet one can share the fetches of the next."""
        tiles = knobs["block_rows"]
        shared = self.products == 1 and tiles > 1 and steps_between(tiles, self.nest.channels) > 0
        return shared and knobs["block_columns"] > 1 and knobs["pack"] != PACK_IN_BLOCK

    def is_worth_fetching(self, knobs: Knobs) -> bool:
        """Tell whether panels come from beyond L2, so that the first tile would wait for each.

        Time with and without, constant weights, 2 threads of an Emerald Rapids: 128 rows by 3072 x 768 0.88,
        32 to 50 rows 0.89, 197 by 768 x 3072 0.88, 1024^3 1.0, 7x7 pixels of 512 to 2048 channels 0.90; with
        AVX2 0.90 to 1.0. Other layers of a model evict a constant weight that L2 would hold: read from 64 MiB
        of copies, 58 layers take 0.57 to 0.99 of the time for up to 132 rows in a block, 0.73 to 1.06 for up
        to 384, 0.90 to 1.08 for more; read from L2 0.7 to 1.14. What is no further than an L3 nearby CPUs
        fetch by themselves: on a Zen 5 0.99 to 1.0, but tiles of 4 rows by 5 vectors of 16x16 pixels, 3x3,
        1.05 to 1.18; on a Zen 4 1.0.
        """
        nest, machine = self.nest, self.machine
        evicted = nest.constant_weight and knobs["block_rows"] * knobs["mr"] <= _WAITING_ROWS
        far = evicted or nest.weight_bytes > machine.l2_bytes
        return machine.has_far_l3 and far and self.can_fetch(knobs)
