"""The knobs of attention, their candidates, constraints and default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Any

from ...machine.facts import Facts, facts
from ...machine.vector_math import CHAINS
from ..algorithms import THEN
from ..forms.attention import can_pad_keys, can_pad_values
from ..forms.attention_bound import can_bound
from ..forms.shared_keys import can_share, restate
from ..lane_reduction import best_width
from ..nests.attention import Attention, find_attention
from ..space import Constraint, Knob, Knobs, KnobSpace
from .attention_shares import Shares, are_even, even_shares, shares_constraints, shares_knobs
from .even_parts import LEAST_LANES
from .tile_choice import CLEARLY, tile_cost

# So many queries are multiplied with keys where they lie, in caches and beyond: see `_are_dots`.
_QUERIES_OF_DOTS = (4, 8)
_ROWS = (1, 2, 4, 6, 8, 12)
_BLOCKS = (8, 12, 16, 24, 32, 48, 64, 96, 128)
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
# Keys are padded to whole tiles of two vectors where that adds no more than this part of them, else of one.
_LITTLE = 12


@dataclass(frozen=True)
class _Choice:
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
        few = self.nest.m <= _QUERIES_OF_DOTS[1] and best_width(self.nest.d, self.lanes, 1) > 1
        return [0] * few + (self.widths(self.keys) if self.nest.m > 1 else [])

    @property
    def _are_dots(self) -> bool:
        """Whether keys are multiplied as they lie: more queries are worth panels where keys are near."""
        near, far = _QUERIES_OF_DOTS
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
            as_usual = shares.parts == 1 or self._is_shared_in_blocks(mr) or nest.m % (block or 1) == 0
            if block and (as_usual or (cost == _CUT and not nest.chosen)):
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
        return self.machine.vector_bits // 8 // self.machine.lanes(self.nest.dtype)


def attention_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the blocks and tiles to choose from, or None where it is no attention, or an odd one.

    Keys and columns must fill vectors where they cannot be padded, and a row of scores must be summed in
    parts. One query makes no matrix product: the keys are read where they lie, and their elements must be
    summed in parts as well. One key, or keys of one element, make no sum.
    """
    nest = find_attention(func)
    if nest is None:
        return None
    machine = facts(target)
    shared_keys = can_share(nest) and are_even(nest.heads // nest.group, machine.cores)
    if shared_keys:
        func = restate(func)
        nest = find_attention(func)
    if nest is None or 1 in (nest.n, nest.d):
        return None
    lanes, pad, widen = machine.lanes(nest.dtype), 0, 0
    if nest.columns % lanes and nest.m > 1 and can_pad_values(func):
        widen = lanes
    else:
        lanes = next(w for w in _powers(lanes) if nest.columns % w == 0)
    if nest.n % lanes and can_pad_keys(func):
        pad = next(w for w in (2 * lanes, lanes) if w == lanes or -nest.n % w * _LITTLE <= nest.n)
    elif nest.n % lanes:
        lanes = next(w for w in _powers(lanes) if nest.n % w == 0)
    bounded = nest.m > 1 and can_bound(func, nest)
    choice = _Choice(nest, machine, lanes, pad, widen, bounded, shared_keys)
    sums = [(choice.keys, CHAINS), *([(nest.d, 1)] if nest.m == 1 else [])]
    if lanes < LEAST_LANES or any(best_width(extent, lanes, vectors) == 1 for extent, vectors in sums):
        return None
    default = choice.default()
    blocks = sorted({*(b for b in _BLOCKS if b <= nest.m), default["block"]})
    knobs = (
        Knob("lanes", (lanes,), "elements in a vector"),
        Knob("block", tuple(blocks), "queries whose scores exist at a time"),
        Knob("mr", tuple(choice.rows), "queries of a register tile"),
        Knob("nr", tuple(choice.panels), "keys of a register tile; 0: each is a dot product"),
        Knob("nc", tuple(choice.widths(choice.columns)), "columns of a register tile of the second product"),
        Knob("values", (0, 1), "1: values are copied into panels; 0: they are read where they lie"),
        Knob("pad", (pad,), "keys are padded to a multiple of so many; 0: they are as they are"),
        Knob("widen", (widen,), "columns of values are padded to a multiple of so many; 0: as they are"),
        bounded_knob(choice.can_bound),
        *shares_knobs(nest, default["parts"]),
        Knob("shared_keys", (int(shared_keys),), "1: heads that read the same keys are queries of one"),
    )
    return KnobSpace(knobs, _constraints(choice), default)


def attention_algorithm(knobs: Knobs) -> str | None:
    """Name the form in which keys and columns fill vectors, and lengths bound the scores."""
    keys, columns, forms = knobs["pad"] or 1, knobs["widen"] or 1, ["shared_keys"] * knobs["shared_keys"]
    if knobs["bounded"]:
        forms.append(f"attention_{keys}_{columns}_{knobs['lanes']}")
    elif max(keys, columns) > 1:
        forms.append(f"padded_attention_{keys}_{columns}")
    return THEN.join(forms) or None


def _constraints(choice: _Choice) -> tuple[Constraint, ...]:
    """Return the rules between the knobs."""
    nest, lanes, keys, columns = choice.nest, choice.lanes, choice.keys, choice.columns
    given = {"lanes": lanes, "pad": choice.pad, "widen": choice.widen, "shared_keys": int(choice.shared_keys)}
    return (
        Constraint(
            f"{', '.join(f'{name} is {value}' for name, value in given.items())}: they follow from the "
            "heads, the keys, the columns and the target",
            lambda k: all(k[name] == value for name, value in given.items()),
        ),
        Constraint("block, mr and nc are at least 1", lambda k: min(k["block"], k["mr"], k["nc"]) >= 1),
        Constraint(
            f"nr is 0 with one query, at least 1 with more than {_QUERIES_OF_DOTS[1]}, or keys of no parts",
            lambda k: k["nr"] >= 0 and (nest.m > 1 if k["nr"] else 0 in choice.panels),
        ),
        Constraint(
            "values is 0 or 1, and 0 with one query or one panel of columns",
            lambda k: k["values"] == 0 or (k["values"] == 1 and nest.m > 1 and k["nc"] < columns),
        ),
        bounded_constraint(choice.can_bound),
        Constraint("bounded is 0 where nr is", lambda k: k["nr"] > 0 or k["bounded"] == 0),
        *shares_constraints(nest),
        Constraint("mr divides block", lambda k: k["block"] % k["mr"] == 0),
        Constraint(
            f"nr divides the keys ({keys}) and nc the columns ({columns}), in whole vectors",
            lambda k: keys % (k["nr"] or 1) == columns % k["nc"] == k["nr"] % lanes == k["nc"] % lanes == 0,
        ),
        Constraint(
            f"tiles, a row of a panel and a broadcast fit {choice.machine.vector_registers} registers",
            lambda k: choice.fits(k["nr"], k["mr"]) and choice.fits(k["nc"], k["mr"]),
        ),
    )


def bounded_knob(can_bound: bool) -> Knob:
    """Return the knob that leaves out maxima."""
    meaning = "1: where lengths bound the scores of a head, no maxima are taken"
    return Knob("bounded", (0, 1)[: 1 + can_bound], meaning)


def bounded_constraint(can_bound: bool) -> Constraint:
    """Return its rule."""
    return Constraint(
        "bounded is 0 or 1, and 0 where scores are more than products times a number or keys no vectors",
        lambda k: 0 <= k["bounded"] <= can_bound,
    )


def _powers(most: int) -> tuple[int, ...]:
    return tuple(1 << p for p in range(most.bit_length() - 1, -1, -1))
