"""How much of a product of split operands a thread has in L2 at a time: rows, columns and a part of the sum.

What a thread does not keep streams past what it keeps: all panels of the weight past a block of rows, or all
rows past a block of panels. Where the sum is so long that a block has few of these, it is cut: a block has
more of them then, of one part of the sum after the other, and its sums are stored in between, as libraries
of linear algebra do (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import NamedTuple

from ..space import Constraint, Knob, Knobs, KnobSpace
from .even_parts import divisors, even_divisor, even_part
from .tile_choice import TileChoice
from .weight_panels import PACK_IN_BLOCK, is_packed_along

# What streaming past a block adds to its time: so much past one tile of rows, or past one panel, less past
# more. Of the stored sums a step less than so many elements of the sum deep adds as much again; if all keep
# to L2, fewer. On 2 threads of a Xeon, L3 30 GB/s, time over that of blocks of one tile: 788 rows by 768 x
# 768, 2 tiles 0.83, 4 0.80, 5 0.75; with parts of 512, 788 by 768 x 3072 0.83, 4096 by 256 x 4096 0.81; over
# one panel: 128 by 768 x 3072 0.83 (in 4 parts), 1024 by 1024 x 4096 0.85 (in 8).
_PAST_ROWS, _PAST_PANELS, _OF_STORED, _OF_STORED_NEAR = 0.55, 0.3, 60, 25

# A panel of more than this part of L2 does not stay while rows stream past it. With 0.22 of L2, 784 rows by
# 256 x 2304 take 1.05 to 1.15 of the time in parts.
_LONG = 1 / 4

# What short stretches of a weight's rows, each in a page of its own, add to the time of one tile of rows,
# and of more rows than a CPU knows pages. In stretches of 4 KiB, of parts of 128, 48 rows by 4096 x 4096
# take 0.85 of the time of those of 1 KiB and parts of 512, 100 0.83, 200 0.89; 49 by 2048 x 512 0.95; but
# 128 by 3072 x 768, in parts of 64, 1.08.
_OF_PAGES, _OF_MANY_PAGES, _PAGE_BYTES, _MOST_PAGES = 0.5, 2.5, 4096, 2048

# Where neither a panel nor a block's rows keep to L2 both stream past each other.
_BOTH = 2

# A block keeps to this part of L2. Where all panels do, it is short: its results, written in parts of lines,
# keep to another part. 3000 pixels of 80 to 512 channels, window of 3, take 0.70 of the time so.
_KEPT, _RESULTS = 3 / 8, 1 / 8

SUM_BYTES = 4
"""Bytes of a sum, and of an element before it is split."""

_BLOCKS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64)


class Blocks(NamedTuple):
    """Tiles of rows, panels, and steps of the sum in a block; 0: all steps."""

    rows: int
    columns: int
    sums: int


def with_sum_blocks(space: KnobSpace, choice: TileChoice, block: int) -> KnobSpace:
    """Return a space of tiles of a matrix unit, with blocks of the sum; ``block``: the default."""
    steps = ceil(choice.nest.channels / space.default["depth"])
    sizes = {0, block, *(n for n in _BLOCKS if n < steps and steps % n == 0)}
    meaning = "steps of the channels in a block, whose sums are stored until the next; 0: all"
    constraints = (
        Constraint(
            f"block_sums is 0, or divides the steps of the channels ({steps})",
            lambda k: k["block_sums"] == 0 or steps % k["block_sums"] == 0,
        ),
        Constraint(
            "with block_sums a thread's rows are lines of one image, or whole images",
            lambda k: not k["block_sums"] or _stores_its_own(choice, k),
        ),
    )
    return KnobSpace(
        (*space.knobs, Knob("block_sums", tuple(sorted(sizes)), meaning)),
        (*space.constraints, *constraints),
        {**space.default, "block_sums": block},
    )


def _stores_its_own(choice: TileChoice, knobs: Knobs) -> bool:
    by_columns = knobs["pack"] == PACK_IN_BLOCK and knobs["split_columns"] == 1
    return by_columns or _is_of_whole_lines(choice, knobs["mr"], knobs["block_rows"])


def _is_of_whole_lines(choice: TileChoice, mr: int, rows: int) -> bool:
    """Tell whether each block of so many tiles is lines of one image, or whole images.

    Blocks that store their sums write results line by line, of a range of each axis: of two images in part
    they would write what others do.
    """
    nest = choice.nest
    lines = rows // nest.tiles_in_line(mr)
    several = [nest.extents[axis] for axis in nest.rows[:-1] if nest.extents[axis] > 1]
    inside = prod(several[1:])
    if lines <= 1 or len(several) < 2 or inside % lines == 0:
        return True
    return lines % inside == 0 and nest.outer_rows % lines == 0


@dataclass(frozen=True)
class Blocking:
    """What a block may have.

    Parameters
    ----------
    choice : TileChoice
        The nest and the machine.
    mr, nr, depth : int
        See `matrix_unit`.
    item : int
        Bytes of an element that is split.
    """

    choice: TileChoice
    mr: int
    nr: int
    depth: int
    item: int

    @property
    def _kept(self) -> int:
        return int(self.choice.machine.l2_bytes * _KEPT)

    @property
    def _panel(self) -> int:
        return self.nr * self.choice.nest.depth * self.item

    @property
    def _steps(self) -> int:
        return ceil(self.choice.nest.channels / self.depth)

    def _parts(self) -> tuple[int, ...]:
        """Return the parts that the steps of the sum can be cut into."""
        return (1,) if self.choice.nest.batch else divisors(self._steps)

    def _stored(self, parts: int, sums: int | None = None) -> float:
        """Return what storing sums after each part adds; ``sums``: how many, where these may keep to L2."""
        near = sums is not None and 2 * sums * SUM_BYTES <= self.choice.machine.l2_bytes
        each = _OF_STORED_NEAR if near else _OF_STORED
        return 1 + (each * parts / self.choice.nest.depth if parts > 1 else 0)

    def by_rows(self) -> Blocks:
        """Choose blocks of threads that share the rows: each has all panels stream past its block."""
        choice = self.choice
        panels, l2_bytes = choice.panels(self.nr), choice.machine.l2_bytes
        if panels * self._panel > l2_bytes:
            return min(self._by_rows(parts) for parts in self._parts())[1]
        most = self._rows_kept(1)
        if panels * self._panel <= self._kept:
            results = int(l2_bytes * _RESULTS) // (self.mr * choice.nest.columns * SUM_BYTES)
            most = min(most, max(1, results))
        rows = even_part(choice.row_tiles(self.mr), most, choice.threads)
        return Blocks(choice.whole_lines(self.mr, rows), panels, 0)

    def _by_rows(self, parts: int) -> tuple[float, Blocks]:
        """Return the cost of the best block of rows of a part of the sum, and that block."""
        nest, choice = self.choice.nest, self.choice
        tiles, panels = choice.row_tiles(self.mr), choice.panels(self.nr)
        both = self._panel // parts > self._kept and not nest.plain

        def cost(rows: int) -> float:
            on_one = ceil(ceil(tiles / rows) / choice.threads) * rows
            streamed = (1 + _PAST_ROWS / rows**1.5) * (_BOTH if both else 1)
            return on_one * streamed * self._stored(parts)

        most = max(1, min(tiles, self._rows_kept(parts)))
        sizes = {choice.whole_lines(self.mr, rows) for rows in range(1, most + 1)}
        fitting = (size for size in sizes if parts == 1 or _is_of_whole_lines(choice, self.mr, size))
        best = min(fitting, key=lambda rows: (cost(rows), -rows))
        return cost(best), Blocks(best, panels, 0 if parts == 1 else self._steps // parts)

    def _rows_kept(self, parts: int) -> int:
        """Return the tiles of rows of a part of the sum that a block keeps, and if need be their sums."""
        nest = self.choice.nest
        line = self.mr * nest.channels * self.item // parts
        if parts == 1:
            return self._kept // line
        # A window's lines of taps may all be others.
        lines = nest.extents[nest.reductions[0]] if len(nest.reductions) > 2 else 1
        return min(self._kept // (line * lines), self._kept // (self.mr * nest.columns * SUM_BYTES))

    def by_columns(self) -> Blocks:
        """Choose blocks of threads that share the columns: each has all rows stream past its panels."""
        return min(self._by_columns(parts) for parts in self._parts())[1]

    def _by_columns(self, parts: int) -> tuple[float, Blocks]:
        """Return the cost of the best block of panels of a part of the sum, and that block."""
        nest, choice = self.choice.nest, self.choice
        panels, most = choice.panels(self.nr), self._kept * parts // self._panel
        columns = even_part(panels, most, choice.threads)
        if panels % columns:  # A block that is cut short would be packed element by element.
            columns = even_divisor(panels, most, choice.threads)
        long = self._panel > choice.machine.l2_bytes * _LONG
        streamed = 1 + (_PAST_PANELS / columns**1.5 if long else 0)
        sums = nest.all_rows * columns * self.nr
        cost = streamed * self._stored(parts, sums) + self._scattered(columns)
        return cost, Blocks(1, columns, 0 if parts == 1 else self._steps // parts)

    def _scattered(self, columns: int) -> float:
        """Return what reading short stretches of rows that are pages apart adds, to pack so many panels."""
        nest = self.choice.nest
        row, stretch = (extent * SUM_BYTES for extent in (nest.columns, columns * self.nr))
        part = row > _PAGE_BYTES > stretch and stretch * self.choice.threads < row
        pages = _OF_PAGES if nest.depth <= _MOST_PAGES else _OF_MANY_PAGES
        return pages / self.choice.row_tiles(self.mr) if part and is_packed_along(nest) else 0
