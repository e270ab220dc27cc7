"""Which blocks and tiles of attention fit a machine, and which are the default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil

from ...machine.element import element_bytes
from ...machine.facts import Facts
from ..lane_reduction import best_width
from ..nests.attention import Attention
from ..space import Knobs
from .attention_shares import Shares, even_shares
from .tile_choice import CLEARLY, tile_cost

QUERIES_OF_DOTS = (4, 8)
"""So many queries are multiplied with keys where they lie, in caches and beyond."""

_ROWS = (1, 2, 4, 6, 8, 12)
# Rows are separate streams: with more than an L1 cache has ways, rows a power of two apart evict each other.
_TILE_ROWS = 8
_LEAST_ROWS = 4
# Vectors of a tile. With one query it is as wide as can be: rows of values are then read in long parts.
_VECTORS, _VECTORS_OF_ONE = (1, 2, 3, 4, 5, 7), (1, 2, 3, 4, 6, 8)
# Scores and weights of a block of queries keep to this part of L1 where at least a tile of queries does. On 2
# threads of a Zen 5, 12 heads, 256 keys of 64: 196 GFLOP/s with 8 queries, 188 with 32, 185 with 128.
_SHARE_OF_L1 = 2
# All queries of a block compute what its last one sees: with so many blocks it is a 32nd too much.
_CAUSAL_BLOCKS = 16
# Values of which each column's tile reads a part of a line are worth a copy where they fill this part of L2
# and so many tiles of queries read it.
_SHARE_OF_L2, _MANY_TILES = 4, 64
# With AVX-512 a power of two takes half as many operations, and tiles have room for it: 0.96 to 0.98 of the
# time on 2 threads of a Zen 4, with AVX2 1.03 to 1.07. Tiles of 8 rows by 2 vectors leave it none: 0.99.
_SCALING_BITS, _BOUNDED_ROWS = 512, 6
# The lengths of queries and keys are worth their time where so many products of each are made, at least.
_PRODUCTS_A_LENGTH = 80
# With fewer registers LLVM unrolls the loop over columns where a block is one tile of queries, and keeps sums
# while it computes others: blocks of 6 of 300 queries take 1.5 times as long as of 12, of 4 1.25 as of 8
# (AVX2 on 2 threads of a Zen 4).
_ENOUGH_REGISTERS = 32
# What parts take together where threads have as many blocks of queries only if these are large, over one
# part: 197 queries of 3 heads 1.07 to 1.1, of 5 1.1, 100 of 3 1.13 (2 threads of a Zen 4).
_CUT = 1.15


@dataclass(frozen=True)
class AttentionChoice:
    """What the choice of blocks and tiles depends on.

    Parameters
    ----------
    nest : Attention
        The nest.
    machine : Facts
        The target's facts.
    lanes : int
        Elements in a vector.
    pad, widen : int
        What the keys, and the columns of the values, are padded to a multiple of, or 0.
    can_bound : bool
        Whether lengths of queries and keys bound the scores.
    shared_keys : bool
        Whether its queries were heads that read the same keys.
    """

    nest: Attention
    machine: Facts
    lanes: int
    pad: int
    widen: int
    can_bound: bool
    shared_keys: bool

    @property
    def bounded(self) -> bool:
        """Whether lengths are to bound the scores: that pays with AVX-512, and beside enough products."""
        m, n = self.nest.m, self.nest.n
        scales = self.machine.vector_bits >= _SCALING_BITS
        return self.can_bound and scales and m * n >= _PRODUCTS_A_LENGTH * (m + n)

    @property
    def keys(self) -> int:
        """The keys, padded."""
        return ceil(self.nest.n / self.pad) * self.pad if self.pad else self.nest.n

    @property
    def columns(self) -> int:
        """The columns of the values, padded."""
        return ceil(self.nest.columns / self.widen) * self.widen if self.widen else self.nest.columns

    def widths(self, extent: int) -> list[int]:
        """Return the widths of a tile that divide an axis."""
        vectors = _VECTORS if self.nest.m > 1 else _VECTORS_OF_ONE
        return [v * self.lanes for v in vectors if extent % (v * self.lanes) == 0]

    @property
    def panels(self) -> list[int]:
        """The widths of a tile of keys; 0 where each may be multiplied as it lies."""
        few = self.nest.m <= QUERIES_OF_DOTS[1] and best_width(self.nest.d, self.lanes, 1) > 1
        return [0] * few + (self.widths(self.keys) if self.nest.m > 1 else [])

    @property
    def _are_dots(self) -> bool:
        """Whether keys are multiplied as they lie: more queries are worth panels where keys are near."""
        near, far = QUERIES_OF_DOTS
        return 0 in self.panels and self.nest.m <= (far if self._comes_from_afar(self.nest.d) else near)

    def fits(self, width: int, height: int) -> bool:
        """Tell whether sums, a row of a panel and a broadcast fit; one row's is multiplied from memory."""
        return (height + (height > 1)) * (width // self.lanes) < self.machine.vector_registers

    @property
    def rows(self) -> list[int]:
        """The heights of a tile."""
        return sorted({*(r for r in _ROWS if r <= self.nest.m), min(self.nest.m, _TILE_ROWS)})

    def default(self) -> Knobs:
        """Choose a tile two vectors wide, and of those that fit the height with which all queries cost least.

        Tiles that are not cut are those that leave no queries, if there are any of a few rows. Where columns
        are no whole tiles of two vectors, another tile is chosen that is clearly cheaper.
        """
        nest, lanes = self.nest, self.lanes
        widths = (self.panels, self.widths(self.columns))
        nr, nc = (max(w for w in each if w <= 2 * lanes or nest.m == 1) for each in widths)
        mr = min(self._heights(nr, nc), key=lambda r: (self._cost(r, max(nr, nc) // lanes), -r))
        if self._are_dots:
            mr, nr, nc = nest.m, 0, max(w for w in widths[1] if self.fits(w, nest.m))
        elif self.bounded:
            mr, nr, nc = self._cheapest_tile([nr], widths[1])
        elif nest.m > 1 and nc == lanes < self.columns:
            wider = [w for w in widths[0] if w >= nr], [w for w in widths[1] if w > nc]
            found = self._cheapest_tile(*wider)
            if self._cost_of(found) < CLEARLY * self._cost_of((mr, nr, nc)):
                mr, nr, nc = found
        shares, block = self._shares(mr)
        return {
            "lanes": lanes,
            "block": block,
            "mr": mr,
            "nr": nr,
            "nc": nc,
            "values": int(self._is_worth_copying(mr) and nc < self.columns),
            "pad": self.pad,
            "widen": self.widen,
            "bounded": int(self.bounded),
            **shares._asdict(),
            "shared_keys": int(self.shared_keys),
        }

    def _heights(self, nr: int, nc: int) -> list[int]:
        """Return the rows that fit tiles so wide; with a causal mask such as leave no queries, if any."""
        most = _BOUNDED_ROWS if self.bounded else _TILE_ROWS
        fitting = [r for r in self.rows if r <= most and self.fits(max(nr, nc), r)]
        even = [r for r in fitting if self.nest.chosen and r >= _LEAST_ROWS and self.nest.m % r == 0]
        shared = [r for r in even or fitting if r >= _LEAST_ROWS and self._is_shared_in_blocks(r)]
        return shared or even or fitting

    def _is_shared_in_blocks(self, mr: int) -> bool:
        """Tell whether threads that cannot share heads evenly have as many usual blocks of queries each.

        With a causal mask none may be left: of 197 queries parts take 2.6 times as long together.
        """
        parts = even_shares(self.nest, self.machine.cores).parts
        block = self._block(mr, parts)
        is_whole = block > 0 and (not self.nest.chosen or self.nest.m % block == 0)
        return parts > 1 and is_whole and block <= self._block(mr, 1)

    def _cheapest_tile(self, panels: Sequence[int], widths: Sequence[int]) -> tuple[int, int, int]:
        """Return the tile, of some widths, with which both products cost least.

        In tiles of one vector each row's weight is loaded for one multiply-add: attention over 512 keys of 40
        takes 0.91 of the time with AVX2, on 2 threads of a Zen 4, by fours of rows with all 5 vectors, of 24
        and 72 0.91 and 0.86.
        """
        pairs = product(panels, widths)
        return min(((rows, *pair) for pair in pairs for rows in self._heights(*pair)), key=self._cost_of)

    def _cost_of(self, tile: tuple[int, int, int]) -> float:
        """Estimate what both products take in a tile of so many rows, keys and columns."""
        rows, *both = tile
        return sum(self._cost(rows, width // self.lanes) for width in both)

    def _cost(self, mr: int, vectors: int) -> float:
        """Estimate what tiles of so many rows take, and the rest in a tile of its own."""
        rest = self.nest.m % mr
        return (self.nest.m - rest) * tile_cost(mr, vectors) + (rest and rest * tile_cost(rest, vectors))

    def _shares(self, mr: int) -> tuple[Shares, int]:
        """Choose what threads share, and the queries of a block, of which parts have as many.

        Blocks of more tiles, or which leave queries, cost more.
        """
        nest = self.nest
        for cost in (1.0, _CUT) if nest.m > 1 else ():
            shares = even_shares(nest, self.machine.cores, cost)
            block = self._block(mr, shares.parts)
            if not block:
                continue
            as_usual = shares.parts == 1 or nest.m % block == 0 or self._is_shared_in_blocks(mr)
            if as_usual or (cost == _CUT and not nest.chosen):
                return shares, block
        return Shares(1, 1), self._block(mr, 1)

    def _block(self, mr: int, parts: int) -> int:
        """Return as many queries as L1 holds scores of, and at least some tiles'; parts have as many blocks.

        If there are none, the fewest of which they do, or 0.
        """
        most = self.machine.l1_bytes // _SHARE_OF_L1 // (2 * self.keys * self._item)
        if self.nest.ahead is not None:
            most = min(most, self.nest.m // _CAUSAL_BLOCKS)
        most = min(max(most, _TILE_ROWS + mr - 1), self.nest.m)
        several = parts > 1 and self.machine.vector_registers < _ENOUGH_REGISTERS
        sizes = range(mr * (1 + several), self.nest.m + 1, mr)
        shared = [b for b in sizes if ceil(self.nest.m / b) % parts == 0]
        blocks = [b for b in shared if b <= most] or shared[:1]
        even = [b for b in blocks if self.nest.m % b == 0 and b >= min(_TILE_ROWS, most)]
        return max(even or blocks, default=0)

    def _is_worth_copying(self, mr: int) -> bool:
        """Tell whether values come from afar, and many tiles of queries read them."""
        return self._comes_from_afar(self.columns) and self.nest.m >= _MANY_TILES * mr

    def _comes_from_afar(self, width: int) -> bool:
        """Tell whether a matrix of so many elements a key fills a good part of L2."""
        return self.nest.n * width * self._item * _SHARE_OF_L2 >= self.machine.l2_bytes

    @property
    def _item(self) -> int:
        return element_bytes(self.nest.dtype)
