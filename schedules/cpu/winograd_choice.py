"""Which tiles of Winograd's form fit a convolution and a machine, and whether they are worth it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, product
from math import ceil, gcd

from ...machine.facts import Facts
from ..forms.winograd import MOST_SPARE, POINTS, TAPS, Convolution, filled, tiles_along
from ..space import Knobs
from .even_parts import LEAST_LANES, divisors
from .few_rows_space import MOST_ROWS
from .tile_choice import ROW_STREAMS, tile_cost

SPARE = tuple(range(MOST_SPARE + 1))
"""Lines of tiles, and tiles in a line, beyond the image, so that blocks and registers share them evenly."""

TILE_ROWS = tuple(range(1, 15))
_ITEM = 4  # bytes of a float32
# A change of basis takes about this many times as long as its multiply-adds: it is mostly loads and stores,
# those of a weight to a larger cache. Fitted to 20 layers on 2 threads of a Zen 5, where L3 is near, since
# positions do not evict each other; with an L3 that is far not measured since. Units that take registers in
# halves multiply half as fast, and load no slower: so estimated, 42 layers on 2 threads of a Zen 4 take 0.76
# to 1.17 of what is counted. A weight that L3 does not hold costs as one to a far L3, which shows beside what
# `few_rows` reads once, channels first `im2col`: 8x8 pixels of 1024 channels take 1.07 and 1.63 of their
# time, 4 of 4x4 of 768 1.05 and 1.53; of more pixels it is packed, and 10x10 of 1024 take 0.70, of 1024 to
# 720 0.85.
_CHANGE_COST, _WEIGHT_COST, _WEIGHT_COST_FAR = 2, 2, 4
_CHANGE_COST_IN_HALVES = 1
# So many multiply-adds reading an element of it takes where threads share blocks of tiles and L2 does not
# hold it: from a near L3, and where it fills most of that. In tiles of 2 28x28 of 256 channels take 1.13 of
# what is counted without, 8 images of 7x7 of 512 1.4.
_READ_COST, _READ_COST_FAR, _OF_L3 = 3, 7, 0.4
# The last thread to end is alone with the caches: 7 blocks of 56x56 of 64 channels take 0.88 of the time of 8
# with a seventh more lines. 3 panels of 14x14 of 96 channels take 1.27 of the time of 6 narrower ones, of
# 28x28 1.23 (2 threads of a Zen 4).
_OF_UNEVEN = 0.75
# 56x56 of 64 channels takes 1.02 to 1.1 of the time for AVX2 in one block that counts 0.98 of seven.
_OF_WAITING = 1.05
# What threads that wait for each other take at its steps, in multiply-adds: 3 us on 2 threads of a Zen 4,
# where 8x8 of 32 channels takes 1.4 times as long as the direct sum, 14x14 of 48 to 16 1.13. Others' costs
# were fitted without.
_STEPS_IN_HALVES = 400_000
# Of the direct sum's multiply-adds; where they are as good as equal, the direct sum rounds less.
_WORTHWHILE = 0.9
# The channels from which on tiles of so many outputs stay within the tolerance of direct sums. 3.2 million
# outputs after ReLU, which leaves 0.7 of their root mean square to measure errors by, reach 0.81 of it with
# 16 channels, 0.83 with 24, 0.62 with 32 (the most of four sets of inputs); summed in one part up to 1.06.
_LEAST_CHANNELS = {2: 1, 4: 16}
# A block of fewer tiles than these is not worth reading all panels of the weight for; nor are more tiles
# where panels come from an L3 that is far. In one block, whose panels threads share, 4 images of 14x14
# of 256 channels take 0.67 of the time, 8 0.79; 4 of 28x28 0.97; 8 of 28x28 of 128 1.28 (Xeon, 2 threads).
_LEAST_TILES, _LEAST_TILES_FAR = 14, 48


@dataclass(frozen=True)
class WinogradChoice:
    """What a choice of tiles depends on: a convolution on a machine."""

    conv: Convolution
    machine: Facts

    @property
    def sizes(self) -> tuple[int, ...]:
        """Outputs of a tile in each direction that are exact enough."""
        return tuple(m for m in POINTS if self.conv.ci >= _LEAST_CHANNELS[m])

    @property
    def lanes(self) -> int:
        """Elements in a vector."""
        return self.machine.lanes(self.conv.nest.dtype)

    @property
    def fills(self) -> tuple[int, int]:
        """What input and output channels are filled up to a multiple of: vectors, or 1 where they are such.

        Input channels to half of one where that is enough.
        """
        lanes, ci, co = self.lanes, self.conv.ci, self.conv.co
        inputs = min((lanes, max(lanes // 2, LEAST_LANES)), key=lambda part: filled(ci, part))
        return 1 if ci % lanes == 0 else inputs, 1 if co % lanes == 0 else lanes

    @property
    def ci(self) -> int:
        """Input channels, filled up."""
        return filled(self.conv.ci, self.fills[0])

    @property
    def co(self) -> int:
        """Output channels, filled up."""
        return filled(self.conv.co, self.fills[1])

    def multiply_adds(self, knobs: Knobs) -> float:
        """Count those of the products and, weighed with what they cost, those of the changes of basis."""
        m, edge = knobs["m"], knobs["m"] + TAPS - 1
        positions, tiles = edge * edge, self.conv.n * self.lines(knobs) * self.tiles_in_line(knobs)
        takes_halves = self.machine.takes_halves
        # What takes halves of vectors takes twice as many, unless units take all in halves.
        vectors = 1 if takes_halves else self.lanes // gcd(self.ci, self.lanes)
        data = tiles * vectors * self.ci * positions * edge * 2
        output = tiles * self.co * m * edge * (edge + m)
        # Where threads share the panels of a block, each block brings the weight to the other basis.
        blocks = self.blocks(knobs)
        changes = 1 if knobs["share_lines"] else blocks
        weight = changes * self.ci * self.co * TAPS * edge * (TAPS + edge)
        change = _CHANGE_COST_IN_HALVES if takes_halves else _CHANGE_COST
        of_tiles = self._products(knobs) + change * (data + output)
        of_weight = (_WEIGHT_COST_FAR if self._writes_far(positions) else _WEIGHT_COST) * weight
        read = blocks * self._read(m) if knobs["share_lines"] else 0
        return of_tiles * self._busiest(knobs) + of_weight + read

    def _writes_far(self, positions: int) -> bool:
        """Tell whether the weight in the other basis goes further than it costs the direct sum to read."""
        exceeds = positions * self.ci * self.co * _ITEM > self.machine.l3_bytes
        return self.machine.has_far_l3 or (exceeds and self.conv.nest.all_rows <= MOST_ROWS)

    def _read(self, m: int) -> float:
        """Return how many multiply-adds reading all panels takes in the basis of ``m`` by ``m``."""
        machine, elements = self.machine, (m + TAPS - 1) ** 2 * self.ci * self.co
        if elements * _ITEM <= machine.l2_bytes or machine.has_far_l3:
            return 0
        fills = elements * _ITEM > _OF_L3 * machine.l3_bytes
        return elements * (_READ_COST_FAR if fills else _READ_COST)

    def _busiest(self, knobs: Knobs) -> float:
        """Return what the thread of most blocks, or panels, takes for its share to take 1.

        Threads that share what is in a block wait for each other at its steps.
        """
        shares = self.blocks(knobs) if knobs["share_lines"] else self.co // knobs["nr"]
        most = ceil(shares / self.machine.cores) * self.machine.cores / shares
        return (1 if knobs["share_lines"] else _OF_WAITING) + _OF_UNEVEN * (most - 1)

    def _products(self, knobs: Knobs) -> int:
        tiles = self.conv.n * self.lines(knobs) * self.tiles_in_line(knobs)
        return (knobs["m"] + TAPS - 1) ** 2 * tiles * self.ci * self.co

    @property
    def direct(self) -> int:
        """Multiply-adds of the convolution as it is written, in vectors or halves of them, filled or not."""
        conv = self.conv
        return conv.n * conv.p * conv.q * conv.ci * filled(conv.co, self.lanes // 2) * TAPS * TAPS

    def lines(self, knobs: Knobs) -> int:
        """Lines of tiles in an image, with those beyond it."""
        return tiles_along(self.conv.p, knobs["m"], knobs["spare_lines"])

    def tiles_in_line(self, knobs: Knobs) -> int:
        """Tiles in a line, with those beyond it."""
        return tiles_along(self.conv.q, knobs["m"], knobs["spare_tiles"])

    def block_tiles(self, knobs: Knobs) -> int:
        """Tiles in a block of lines."""
        return knobs["images"] * knobs["lines"] * self.tiles_in_line(knobs)

    def blocks(self, knobs: Knobs) -> int:
        """Blocks of lines, of all images."""
        return self.conv.n * self.lines(knobs) * self.tiles_in_line(knobs) // self.block_tiles(knobs)

    def has_whole_images(self, knobs: Knobs) -> bool:
        """Tell whether blocks are parts of an image, or whole images."""
        images = knobs["images"]
        return images > 0 == self.conv.n % images and (images == 1 or knobs["lines"] == self.lines(knobs))

    def shares_tiles(self, knobs: Knobs, rows: int) -> bool:
        """Tell whether register tiles of some rows share a block evenly: parts of an image, or several."""
        of_image = knobs["lines"] * self.tiles_in_line(knobs)
        return self.block_tiles(knobs) % rows == 0 in (of_image % rows, rows % of_image)

    def fits(self, mr: int, nr: int) -> bool:
        """Tell whether accumulators, a panel's vectors and a broadcast fit the registers."""
        return (mr + 1) * (nr // self.lanes) + 1 <= self.machine.vector_registers

    def rows(self, block: Knobs, nr: int) -> int:
        """Return the rows of a register tile that share a block's tiles evenly: most, but few streams."""
        rows = [r for r in TILE_ROWS if self.shares_tiles(block, r) and self.fits(r, nr)]
        few = max(r for r in rows if r <= ROW_STREAMS)
        return few if 2 * few >= ROW_STREAMS else max(rows)

    def default(self) -> Knobs | None:
        """Choose without a search; None where the convolution as it is written takes fewer operations.

        17 lines of 17 tiles share nothing evenly; 18 of 18 do: 66x66x64 takes 1.05 ms so, 2.2 in smaller
        tiles, of which there are 33 (2 threads of a Zen 3).
        """
        widths = [nr for nr in (2 * self.lanes, self.lanes) if self.co % nr == 0]
        grids = product(self.sizes, SPARE, SPARE, widths)
        choices = (self._choices(*grid) for grid in grids)
        best = min(chain.from_iterable(choices), key=self._cost)
        steps = _STEPS_IN_HALVES if self.machine.takes_halves else 0
        return None if self._cost(best) + steps > _WORTHWHILE * self.direct else best

    def _choices(self, m: int, spare_lines: int, spare_tiles: int, nr: int) -> Iterator[Knobs]:
        grid = {"m": m, "spare_lines": spare_lines, "spare_tiles": spare_tiles, "lanes": self.lanes}
        for lines_of_images, shared in self._blocks(grid, nr):
            images = max(1, lines_of_images // self.lines(grid))
            block = {**grid, "lines": min(lines_of_images, self.lines(grid)), "images": images}
            yield {**block, "mr": self.rows(block, nr), "nr": nr, "share_lines": int(shared)}

    def _cost(self, knobs: Knobs) -> float:
        """Weigh multiply-adds: those of the products are dearer in a tile of many loads or few sums.

        49 tiles go in rows of 7 or 1. With 16 registers and two vectors that is 1: 14x14x512 takes 9.1 ms so,
        6.8 in 16 larger tiles (2 threads of a Zen 3).
        """
        mr, vectors = knobs["mr"], knobs["nr"] // knobs["lanes"]
        most = max(r for r in range(1, ROW_STREAMS + 1) if self.fits(r, 2 * self.lanes))
        dearer = tile_cost(mr, vectors) / tile_cost(most, 2)
        return self.multiply_adds(knobs) + (dearer - 1) * self._products(knobs)

    def _blocks(self, grid: Knobs, nr: int) -> Iterator[tuple[int, bool]]:
        """Yield the lines of tiles in a block, of one image or more, and whether threads share the blocks.

        They do where a block that keeps to L2, beside the panel that streams through, has tiles enough to be
        worth reading all panels for, or where there are fewer panels than threads: 28x28 of 128 to 32
        channels takes 0.68 of the time (2 threads of a Zen 4). Else, or where it is the only one, products
        of a block by a panel keep to L2, and its data to a part of L3: 4 images of 13x13 of 248 to 392
        channels take 0.70 of the time in one block, of 14x14 of 256 0.82 (Zen 4).
        """
        conv, machine, lines, wide = self.conv, self.machine, self.lines(grid), self.tiles_in_line(grid)
        edge = grid["m"] + TAPS - 1
        bytes_of_line = edge * edge * wide * _ITEM
        sizes = [*divisors(lines), *(lines * images for images in divisors(conv.n)[1:])]
        few_panels = self.co // nr < machine.cores
        far = machine.has_far_l3 and edge * edge * self.ci * self.co * _ITEM > machine.l2_bytes
        least_tiles = _LEAST_TILES_FAR if far else _LEAST_TILES
        least, rounds = (1, 1) if few_panels else (ceil(least_tiles / wide), 2)
        most = min(
            machine.l2_bytes // (bytes_of_line * (self.ci + nr)), conv.n * lines // (rounds * machine.cores)
        )
        shared = max((d for d in sizes if least <= d <= most), default=0)
        if shared:
            yield shared, True
        most = min(machine.l2_bytes // 2 // nr, machine.l3_bytes // 4 // self.ci) // bytes_of_line
        alone = max((d for d in sizes if d <= most), default=1)
        if not shared or alone == conv.n * lines:
            yield alone, False
