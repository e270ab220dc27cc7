"""The tiles of `few_rows`: which there are to choose from, which is the default, where the rule applies."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd
from typing import Any

from ...machine.facts import Facts, facts
from ..nests.contraction import Contraction, find_contraction, weight_exceeds_l2
from ..space import Constraint, Knob, Knobs, KnobSpace
from .even_parts import dividing_lanes
from .tile_choice import FMAS_IN_FLIGHT, ROW_STREAMS, tile_choice

# More rows use what is packed into panels often enough. On 2 threads of a Zen 3, by 4096 x 4096: 16 rows take
# 4.3 ms (10.7 by `matmul`), 32 rows 7.1 (14.4), 64 rows 13.4 (19.4), 128 rows 29.1 (33.8).
MOST_ROWS = 64
# But tiles of two lines, of AVX-512, read a weight that L3 holds as fast where it has not many columns. On 2
# threads of a Zen 4 this rule's times over theirs: 8 to 64 rows by 1024 x 768 1.03 to 1.38, by 1024 x 1024
# 1.05 to 1.33, 49 pixels of 2048 to 512 channels 1.16, of 512 to 2048 0.89, 64 rows by 1000 x 2048 0.93. A
# Zen 5 multiplies twice as fast: 35 rows by 1024 x 1024, a weight whose rows evict each other, 0.58; 24 to
# 63 rows by 736 to 1760 columns 1.1 to 2.3.
# Tiles of a window leave out what meets only padding: of 2x2 pixels of 512 channels, 3x3, they take 0.77 to
# 0.84 of this rule's time, 2x3 0.61, of 3x3, 2x2 0.71 to 0.80, a single pixel of 4x4 1.34 (2 threads of a
# Zen 4).
_TIMES_L2, _TILED_ROWS, _TILED_PIXELS, _TILED_BYTES = 4, 8, 4, 8000
_DEPTHS = (4, 8, 16, 32)
# Rows of the weight that are read side by side, while sums are held in registers: so many if they keep to a
# part of L1's ways, in which those a way's bytes apart have the same places. Times over those of 8 steps,
# unrolled, 2 threads of a Zen 5: held for 32 steps 4 to 8 rows by 768 to 2304 columns 0.65 to 0.77, 1 and 2
# by 1000 0.8 to 0.9, 32 by 1000 0.89; for 16 steps 20 by 1536 0.7, 40 0.92, 64 by 768 0.96; by columns
# a power of two apart 1.2 to 1.8, one tile of 4 or 8 rows 0.84 to 1.0; windows 1.0 to 1.1. For 8 steps 7x7 of
# 512, 3x3 by 2 0.87, 4x4 of 1024 0.75, others 0.97 to 1.02. From memory 12 by 4000 (16 steps) 0.4 to 0.6, 16
# by 4096 (8) 0.92; fewer rows 1.0 to 1.25.
_DEPTH, _HELD, _HELD_OF_MANY, _MANY_ROWS = 8, 32, 16, 32
_WAY_BYTES, _OF_WAYS = 4096, 2 / 3
# Multiply-adds that must be in flight: half of what hides their latency, because tiles are many, and the next
# one's begin while one's end.
_SUMS = FMAS_IN_FLIGHT // 2
# Columns that threads cannot share evenly go into more parts where rows are few: 1000 are five of 25 vectors,
# one of two threads takes three. By 2048 x 1000, 2 rows take 0.53 to 0.69 of `matmul`'s time, 4 rows 0.4 to
# 0.5, 8 rows 0.85; 16 rows 1.16, and 1 row, which `matmul` reads as it lies, 1.2 to 1.5.
_MOST_SHARES, _UNEVEN, _UNEVEN_ROWS = 8, 1.25, range(2, 9)
# What the CPU fetches by itself ends with a page. Of a weight that comes from memory, times with fetches over
# those without on 2 threads of a Zen 5: 4 rows by 1000 to 1536 columns 0.64 to 0.86, 8 to 16 rows by 2048 and
# 4096 0.82 to 0.92, 4x4 of 1024, 3x3 0.75; but 4 rows by 2048 to 4096 1.0 to 1.14; and from L3 1.0 to 1.04.
_PAGE_BYTES, _BUSY_ROWS = 4096, 8
_VECTORS = (1, 2, 3, 4, 6, 8)
_ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14)


def reads_lines(nest: Contraction, mr: int) -> bool:
    """Tell whether tiles are part of a line of a padded image, of which a tap's windows lie side by side.

    7x7 of 512 channels, 3x3, take 0.82 of the time of copied windows on 2 threads of a Zen 5.
    """
    return bool(nest.padded) and nest.row_extent % mr == 0


@dataclass(frozen=True)
class _Choice:
    """What the choice of a tile depends on."""

    nest: Contraction
    machine: Facts

    @property
    def pads(self) -> bool:
        """Whether threads have vectors of the columns evenly only if the last ones end within by masks.

        8x8 pixels of 480 to 712 channels, 7x7, take 0.46 of the time of panels, 5x5 of 1024 to 1500, 3x3,
        0.44, 3x3 of 1280 to 546 0.33, 14x14 of 512 to 1026 by 2 0.72 to 0.79 (2 threads of a Zen 4).
        """
        whole = self.machine.cores * self.machine.lanes(self.nest.dtype)
        return self.machine.has_masks and self.nest.columns % whole != 0

    @property
    def lanes(self) -> int:
        lanes = self.machine.lanes(self.nest.dtype)
        return lanes if self.pads else dividing_lanes(self.nest.columns, lanes)

    @property
    def shares(self) -> tuple[int, ...]:
        """Into how many parts of whole vectors the columns can go, as many for each thread or nearly so."""
        cores = self.machine.cores
        if self.pads:
            return tuple(s for s in (cores, 2 * cores) if self.widths(s))
        parts = [
            s for s in range(cores, _MOST_SHARES * cores + 1) if self.nest.columns % (s * self.lanes) == 0
        ]
        even = tuple(s for s in parts if s in (cores, 2 * cores))
        if even or self.nest.all_rows not in _UNEVEN_ROWS:
            return even
        return tuple(s for s in parts if ceil(s / cores) * cores <= _UNEVEN * s)[:1]

    def widths(self, shares: int) -> tuple[int, ...]:
        """Return the vectors of a tile that leave no rest of a part."""
        if self.pads:
            return tuple(v for v in _VECTORS if self.shares_columns(v * self.lanes, shares))
        return tuple(v for v in _VECTORS if self.nest.columns % (v * self.lanes * shares) == 0)

    def shares_columns(self, width: int, shares: int) -> bool:
        """Tell whether several parts have columns, in tiles so wide, or there is but one.

        Columns that are all of one part of several TVM writes from each.
        """
        return shares == 1 or ceil(self.nest.columns / (width * shares)) * width < self.nest.columns

    def fits(self, mr: int, vectors: int, steps: int = 1) -> bool:
        """Tell whether sums, the vectors of so many steps if rows share them, and a broadcast fit."""
        return vectors * (mr + (mr > 1) * steps) + 1 <= self.machine.vector_registers

    def default(self) -> Knobs:
        """Return the tile with the fewest loads, and as deep a part of the sum as L1 holds.

        Where the steps are unrolled and there are several tiles of rows, LLVM keeps the weight's vectors of
        all steps for the next one. Where they do not fit, those of three steps shall: 64 rows by 3072 x 768,
        2 threads of a Zen 3, take 2.4 ms with tiles of 5 or 6 rows, 2.2 with 4.
        """
        shares, hold = self.shares[0], int(self._holds)
        extent = self.nest.all_rows
        alone = [(extent, vectors) for vectors in self.widths(shares) if self.fits(extent, vectors)]
        several = next(filter(None, (self._tiles(shares, steps) for steps in (_DEPTH, 3))), [])
        tiles = [*several, *alone] or [(1, self.widths(shares)[0])]
        mr, vectors = min(tiles, key=lambda tile: self._cost(*tile) * self._computed(tile[1], shares))
        depth, fetch = self._depth(mr), int(self._fetches(shares))
        tile = {"lanes": self.lanes, "vectors": vectors, "depth": depth, "shares": shares, "mr": mr}
        return {**tile, "hold": hold, "fetch": fetch}

    @property
    def _is_from_memory(self) -> bool:
        return self.nest.weight_bytes > self.machine.kept_by_l3 // 2

    @property
    def _holds(self) -> bool:
        """Whether sums are held in registers: but for very few rows by a weight of memory."""
        return not self._is_from_memory or self.nest.all_rows >= _BUSY_ROWS

    def _depth(self, mr: int) -> int:
        """Return the rows of the weight that are read side by side, which do not evict each other from L1.

        One tile of rows reads them once, wherever they are.
        """
        depths = [d for d in _DEPTHS if self.nest.channels % d == 0]
        most = _DEPTH
        if self._holds and len(self.nest.reductions) == 1:
            row = self.nest.weight_bytes // self.nest.depth
            apart = _WAY_BYTES // gcd(row, _WAY_BYTES)
            ways = self.machine.l1_bytes // _WAY_BYTES
            many = self._is_from_memory or self.nest.all_rows > _MANY_ROWS
            deepest = _HELD_OF_MANY if many else _HELD
            least = _HELD_OF_MANY if mr == self.nest.all_rows and not self._is_from_memory else _DEPTH
            most = max(least, min(deepest, int(apart * ways * _OF_WAYS)))
        return max(d for d in depths if d <= max(most, depths[0]))

    def _fetches(self, shares: int) -> bool:
        """Tell whether threads wait for the weight: memory's, in stretches that the CPU does not foresee."""
        nest = self.nest
        waits = nest.weight_bytes // (nest.depth * shares) < _PAGE_BYTES or nest.all_rows >= _BUSY_ROWS
        return waits and self._is_from_memory

    def _tiles(self, shares: int, steps: int) -> list[tuple[int, int]]:
        """List the tiles of several, rows and vectors, that leave room for the weight's vectors of steps."""
        return [
            (mr, vectors)
            for vectors in self.widths(shares)
            for mr in range(2, self.nest.all_rows)
            if mr * vectors >= FMAS_IN_FLIGHT and self.fits(mr, vectors, steps)
        ]

    def _computed(self, vectors: int, shares: int) -> int:
        """Return the columns that tiles so wide compute."""
        width = vectors * self.lanes * shares
        return ceil(self.nest.columns / width) * width

    def _cost(self, mr: int, vectors: int) -> float:
        """Estimate what a vector of columns takes: its multiply-adds and loads, too few of them in flight.

        Tiles that fill lines leave out those that meet nothing but padding.
        """
        whole, left = divmod(self.nest.all_rows, mr)
        return sum(
            (rows + 1 + rows / vectors) / min(1, rows * vectors / _SUMS)
            for rows in [mr] * whole + [left] * (left > 0)
        ) * (self.nest.share_met(mr) if reads_lines(self.nest, mr) else 1)


def few_rows_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the tiles to choose from; None where rows are many, or the weight is small or lies otherwise."""
    nest = find_contraction(func)
    if nest is None or not _fits(nest):
        return None
    machine, registers = facts(target), facts(target).vector_registers
    choice = _Choice(nest, machine)
    if not weight_exceeds_l2(nest, machine) or not choice.shares or nest.channels % _DEPTHS[0]:
        return None
    if _is_read_in_tiles(nest, target):
        return None
    default = choice.default()
    rows = tuple(sorted({*(r for r in _ROWS if r <= nest.all_rows), default["mr"]}))
    widths = sorted({v for shares in choice.shares for v in choice.widths(shares)})
    return KnobSpace(
        knobs=(
            Knob("lanes", (default["lanes"],), "elements in a vector"),
            Knob("vectors", tuple(widths), "vectors of columns in a tile"),
            Knob(
                "depth",
                tuple(d for d in _DEPTHS if nest.channels % d == 0),
                "rows of the weight that are read side by side",
            ),
            Knob("shares", choice.shares, "parts of the columns that threads take"),
            Knob("mr", rows, "rows of a tile"),
            Knob("hold", (0, 1), "1: a tile's sums are in registers for so many rows of the weight"),
            Knob("fetch", (0, 1), "1: ask for the rows of the weight that are read next"),
        ),
        constraints=(
            Constraint(
                "lanes, vectors, depth, shares and mr are at least 1",
                lambda k: min(number for name, number in k.items() if name not in ("hold", "fetch")) >= 1,
            ),
            Constraint(
                f"lanes * vectors * shares divides the columns ({nest.columns}), or masks end them",
                lambda k: choice.pads or nest.columns % (k["lanes"] * k["vectors"] * k["shares"]) == 0,
            ),
            Constraint(
                f"more shares than one have some of the {nest.columns} columns",
                lambda k: choice.shares_columns(k["lanes"] * k["vectors"], k["shares"]),
            ),
            Constraint(f"depth divides the sum ({nest.channels})", lambda k: nest.channels % k["depth"] == 0),
            Constraint(f"mr is at most the rows ({nest.all_rows})", lambda k: k["mr"] <= nest.all_rows),
            Constraint(
                f"vectors * (mr + 1) sums and weights and a broadcast fit {registers} registers",
                lambda k: choice.fits(k["mr"], k["vectors"]),
            ),
        ),
        default=default,
    )


def _fits(nest: Contraction) -> bool:
    alone = not nest.batch and not nest.rest and nest.weight_block is None
    along = nest.weight_axes[-1] == nest.column and nest.output_column == nest.output_rank - 1
    # Panels of a constant weight are packed beforehand, and read in one stretch each: 4 rows by 3072 x 768
    # take 0.13 ms with them, 0.29 with this rule.
    return alone and along and not nest.constant_weight and nest.all_rows <= MOST_ROWS


def _is_read_in_tiles(nest: Contraction, target: Any) -> bool:
    """Tell whether a register tile reads the weight as fast: from L3, two lines of each row at a time."""
    choice, machine = tile_choice(nest, target), facts(target)
    reading, columns = choice.weight, 2 * choice.lanes
    tiles = choice.row_tiles(min(nest.row_extent, ROW_STREAMS))
    if reading.is_read_from_l3(tiles, columns):
        return nest.all_rows >= (_TILED_ROWS if nest.plain else _TILED_PIXELS)
    if nest.all_rows < _TILED_ROWS:
        return False
    near = nest.weight_bytes <= _TIMES_L2 * machine.near_bytes
    short = nest.columns % columns == 0 and nest.weight_bytes <= _TILED_BYTES * nest.depth
    return near and short and reading.lines(columns) > 1 and reading.is_soon_read(tiles, columns)
