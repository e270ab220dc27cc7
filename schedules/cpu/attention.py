"""Attention: a few queries at a time, whose scores never leave the cache.

Before::

    for h, i, k, c:  product[h, i, k] += Q[h, i, c] * K[h, k, c]
    for h, i, k:     score = product * scale, or masked
    for h, i, k:     row_max, weight = exp(score - row_max), row_sum
    for h, i, e, j:  mixed[h, i, e] += weight[h, i, j] * V[h, j, e]
    for h, i, e:     O = mixed / row_sum

After::

    for h (parallel):
        panels = K[h] transposed in registers, nr keys a panel
        for blocks of queries:
            for panels, tiles of mr queries:  acc[mr, nr] over c; score = scaled or masked acc
            rows: maximum, weights, sum                          # in vectors, see rows.py
            for tiles of mr queries, nr columns of V:  acc[mr, nr] over all keys
            O = acc / sum

With a causal mask, a block of queries goes no further than to its last query's last key (`loop_bounds`).
Of the m x n scores a block of rows exists at a time, in L2. The sum over all keys is known before the second
product, so nothing is scaled again as an online softmax must: on a CPU a row of scores is small beside L2.

References
----------
Dao et al., "FlashAttention", 2022 (which keeps scores in shared memory, where whole rows do not fit).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tvm import s_tir
from tvm.tirx import LE, Add, FloatImm, IntImm, IterVar, Select

from ...machine.facts import facts
from ...machine.vector_math import CHAINS
from ..analysis import block_names, is_reduction, loops_by_kind, output_blocks, static_extents
from ..contraction import product_operands
from ..lane_reduction import arrange_parts, reduce_in_lanes
from ..loop_bounds import bound_loops
from ..loop_partition import partition
from ..rule import ScheduleRule
from ..space import Constraint, Knob, KnobSpace
from ..transforms import panel_order, relayout_read, transpose_last, vectorize_last
from .register_tile import LEAST_PARALLEL_SUMS

# A score below is that of a masked key: beside any other its weight is 0.
_HIDDEN = -1e20
_ROWS = (1, 2, 4, 6, 8, 12)
_BLOCKS = (8, 16, 24, 32, 48, 64, 96, 128)
# Rows are separate streams: with more than an L1 cache has ways, rows a power of two apart evict each other.
_TILE_ROWS = 8
# Scores and weights of a block of queries keep to this part of L1 where at least a tile of queries does. On 2
# threads of a Zen 5, 12 heads, 256 keys of 64: 196 GFLOP/s with 8 queries, 188 with 32, 185 with 128.
_SHARE_OF_L1 = 2
# All queries of a block compute what its last one sees: with so many blocks it is a sixteenth too much.
_CAUSAL_BLOCKS = 8


@dataclass(frozen=True)
class Attention:
    """The blocks of scaled dot-product attention, by what they compute.

    Parameters
    ----------
    product, score, row_max, weight, row_sum, mixed, output : str
        Blocks of these quantities, as in `kernels.attention`.
    inverse : str or None
        The block of a row's factor, where there is one.
    heads, m, n, d, columns : int
        Heads, queries, keys, and the extents of a key and of a value.
    dtype : str
        The type that is summed in.
    packed_dtype : str
        The type of the keys.
    ahead : int or None
        With a causal mask, query i sees the keys up to i + ahead; None without.
    """

    product: str
    score: str
    row_max: str
    weight: str
    row_sum: str
    inverse: str | None
    mixed: str
    output: str
    heads: int
    m: int
    n: int
    d: int
    columns: int
    dtype: str
    packed_dtype: str
    ahead: int | None


@lru_cache(maxsize=16)  # each rule asks, and then its rewriting
def find_attention(func: Any) -> Attention | None:
    """Find attention in an unscheduled PrimFunc: two products, between them a softmax that divides last."""
    sch = s_tir.Schedule(func)
    names = block_names(sch)
    if not names or len(set(names)) != len(names) or len(output_blocks(sch)) != 1:
        return None
    if any(static_extents(sch, name) is None for name in names):
        return None
    reductions = [n for n in names if is_reduction(sch, n)]
    products = [n for n in reductions if product_operands(sch.get(sch.get_sblock(n))) is not None]
    if len(reductions) != 4 or len(products) != 2:
        return None

    def readers(name: str) -> list[str]:
        return [str(sch.get(r).name_hint) for r in sch.get_consumers(sch.get_sblock(name))]

    def only(found: list[str]) -> str:
        return found[0] if len(found) == 1 else ""

    first = products[0]
    score = only(readers(first))
    row_max = only([r for r in readers(score) if r in reductions]) if score else ""
    weight = only(readers(row_max)) if row_max else ""
    row_sum = only([r for r in readers(weight) if r not in products and r in reductions]) if weight else ""
    mixed = only([r for r in readers(weight) if r in products]) if weight else ""
    if not row_sum or not mixed or mixed == first:
        return None
    (output,) = output_blocks(sch)
    inverse = only(readers(row_sum))
    known = {first, score, row_max, weight, row_sum, mixed, output, inverse, *readers(mixed)}
    shapes = static_extents(sch, first), static_extents(sch, mixed)
    if known != set(names) or shapes[0] is None or shapes[1] is None or len(shapes[0]) != 4 != len(shapes[1]):
        return None
    (heads, m, n, d), columns = shapes[0], shapes[1][2]
    block = sch.get(sch.get_sblock(first))
    kinds = [v.iter_type == IterVar.CommReduce for v in block.iter_vars]
    operands = product_operands(block)
    if kinds != [False, False, False, True] or operands is None:
        return None
    return Attention(
        product=first,
        score=score,
        row_max=row_max,
        weight=weight,
        row_sum=row_sum,
        inverse=inverse if inverse != output else None,
        mixed=mixed,
        output=output,
        heads=heads,
        m=m,
        n=n,
        d=d,
        columns=columns,
        dtype=str(block.writes[0].source.dtype),
        packed_dtype=str(operands[1].source.dtype),
        ahead=_keys_ahead(sch.get(sch.get_sblock(score))),
    )


def _keys_ahead(score: Any) -> int | None:
    """Return how many keys after its own position a query sees, None where the score is not masked so."""
    value = getattr(score.body, "value", None)
    if not isinstance(value, Select) or not isinstance(value.condition, LE) or len(score.iter_vars) != 3:
        return None
    (_, query, key), seen, hidden = (v.var for v in score.iter_vars), value.condition, value.false_value
    last, ahead = (seen.b.a, seen.b.b) if isinstance(seen.b, Add) else (seen.b, 0)
    masked = (
        isinstance(hidden, FloatImm)
        and float(hidden) <= _HIDDEN
        and isinstance(ahead, (int, IntImm))
        and int(ahead) >= 0
    )
    return int(ahead) if masked and seen.a.same_as(key) and last.same_as(query) else None


def schedule_attention(sch: s_tir.Schedule, *, lanes: int, block: int, mr: int, nr: int, nc: int) -> None:
    """Rewrite attention in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of an unscheduled PrimFunc named ``main``.
    lanes : int
        Elements in a vector.
    block : int
        Queries whose scores exist at a time.
    mr : int
        Queries of a register tile.
    nr : int
        Keys of a register tile of the first product: a panel.
    nc : int
        Columns of a register tile of the second product.
    """
    nest = find_attention(sch.mod["main"])
    assert nest is not None, "the rule's space says that there is one"
    _inline_rounding(sch, nest)
    panels = _panels(sch, nest, nr)
    together = next(vectors for vectors in (CHAINS, 2, 1) if nest.n % (vectors * lanes) == 0)
    causal = nest.ahead is not None and nest.n > together * lanes
    # What goes over the keys in the same steps can end at the same key.
    width = together * lanes if causal else None
    sums = [reduce_in_lanes(sch, name, lanes, CHAINS, width) for name in (nest.row_max, nest.row_sum)]
    head, block_loop = _blocks_of_queries(sch, nest, block)
    names = block_names(sch)
    moved = [name for name in names[: names.index(nest.output)] if name != panels]
    for name in reversed(moved):
        sch.compute_at(sch.get_sblock(name), block_loop)
    sch.compute_at(sch.get_sblock(panels), head)
    transposed = nest.packed_dtype == nest.dtype and nest.d % lanes == 0 and nr % lanes == 0
    if transposed:
        transpose_last(sch, sch.get_sblock(panels), lanes, nest.dtype)
    else:
        vectorize_last(sch, sch.get_sblock(panels), lanes)
    panel, _ = _tile(sch, nest.product, nest.score, lanes, mr, nr)
    _, key = _tile(sch, nest.mixed, None, lanes, mr, nc)
    steps = [_arrange(sch, parts) for parts in sums]
    vectorize_last(sch, sch.get_sblock(nest.weight), together * lanes)
    if causal:
        *_, vectors, _ = sch.get_loops(sch.get_sblock(nest.weight))
        bound_loops(sch, block_loop, block, nest.ahead, [panel, key, vectors, *steps], nest.n)
    vectorize_last(sch, sch.get_sblock(nest.output), lanes)


def _arrange(sch: s_tir.Schedule, parts: Mapping[str, int]) -> Any:
    """Order the loops of a row's partial results; return the loop over vectors of the row itself."""
    return [arrange_parts(sch, name, dimensions, depth=2) for name, dimensions in parts.items()][-1]


def _inline_rounding(sch: s_tir.Schedule, nest: Attention) -> None:
    """Compute what lies between the second product and the output where the output is."""
    for name in [str(sch.get(r).name_hint) for r in sch.get_consumers(sch.get_sblock(nest.mixed))]:
        if name != nest.output:
            sch.compute_inline(sch.get_sblock(name))


def _panels(sch: s_tir.Schedule, nest: Attention, nr: int) -> str:
    """Lay the keys out in panels: (head, key // nr, c, key % nr); return the name of the block that does."""
    product = sch.get_sblock(nest.product)
    keys = sch.cache_read(product, 1, "global")
    relayout_read(sch, product, 1, keys, panel_order(3, [0], 1, [2], nr))
    return str(sch.get(keys).name_hint)


def _blocks_of_queries(sch: s_tir.Schedule, nest: Attention, block: int) -> tuple[Any, Any]:
    """Split the queries into blocks and share the heads among the threads; return the loops over both."""
    head, query, *_ = sch.get_loops(sch.get_sblock(nest.output))
    blocks, _ = sch.split(query, [None, block])
    if nest.m % block:
        partition(sch, blocks)
    if nest.heads * nest.m * nest.n * nest.d >= LEAST_PARALLEL_SUMS:
        sch.parallel(head)
    return head, blocks


def _tile(sch: s_tir.Schedule, name: str, after: str | None, lanes: int, mr: int, nr: int) -> tuple[Any, Any]:
    """Sum tiles of a product in registers, and compute what reads it on each tile.

    Returns the loops over tiles of columns and over what is summed.
    """
    block = sch.get_sblock(name)
    kept, (along,) = loops_by_kind(sch, block, 2)
    row, column = kept[-2:] if len(kept) > 1 else (None, kept[-1])
    columns, vectors, lane = sch.split(column, [None, nr // lanes, lanes])
    if row is None:
        sch.reorder(columns, along, vectors, lane)
        tile = columns
    else:
        tile, row = sch.split(row, [None, mr])
        sch.reorder(columns, tile, along, row, vectors, lane)
        sch.unroll(row)
    sch.unroll(vectors)
    sch.vectorize(lane)
    if after is None:
        tail = sch.cache_write(block, 0, "global")
    else:
        tail = sch.get_sblock(after)
    # Unlike other tiles' (`finish_tile`), its rows stay a loop: without one, LLVM runs out of registers here.
    sch.reverse_compute_at(tail, tile)
    vectorize_last(sch, tail, lanes)
    sch.decompose_reduction(block, along)
    return columns, along


def attention_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the blocks and tiles to choose from, or None where it is no attention, or an odd one.

    Keys and columns must fill vectors; one query is no matrix product.
    """
    nest = find_attention(func)
    if nest is None:
        return None
    machine = facts(target)
    lanes = next((w for w in _powers(machine.lanes(nest.dtype)) if nest.n % w == nest.columns % w == 0), 1)
    if lanes < 4 or nest.m < 2:
        return None
    widths = {
        extent: [v * lanes for v in (1, 2, 3, 4) if extent % (v * lanes) == 0]
        for extent in (nest.n, nest.columns)
    }
    rows = [r for r in _ROWS if r <= nest.m]
    item = machine.vector_bits // 8 // machine.lanes(nest.dtype)
    most = max(1, machine.l1_bytes // _SHARE_OF_L1 // (2 * nest.n * item))
    if nest.ahead is not None:
        most = min(most, nest.m // _CAUSAL_BLOCKS)
    blocks = sorted({*(b for b in _BLOCKS if b <= nest.m), min(nest.m, _BLOCKS[0])})
    least = min(nest.m, _TILE_ROWS)
    block = max((b for b in blocks if least < b <= most and nest.m % b == 0), default=least)
    nr, nc = (max(w for w in widths[extent] if w <= 2 * lanes) for extent in (nest.n, nest.columns))
    registers = machine.vector_registers

    def fits(width: int, height: int) -> bool:
        return (height + 1) * (width // lanes) < registers

    mr = max(r for r in rows if r <= _TILE_ROWS and block % r == 0 and fits(max(nr, nc), r))
    return KnobSpace(
        knobs=(
            Knob("lanes", (lanes,), "elements in a vector"),
            Knob("block", tuple(sorted({*blocks, block})), "queries whose scores exist at a time"),
            Knob("mr", tuple(rows), "queries of a register tile"),
            Knob("nr", tuple(widths[nest.n]), "keys of a register tile"),
            Knob("nc", tuple(widths[nest.columns]), "columns of a register tile of the second product"),
        ),
        constraints=(
            Constraint("mr divides block", lambda k: k["block"] % k["mr"] == 0),
            Constraint(
                f"nr divides the keys ({nest.n}) and nc the columns ({nest.columns}), in whole vectors",
                lambda k: (
                    nest.n % k["nr"] == nest.columns % k["nc"] == k["nr"] % lanes == k["nc"] % lanes == 0
                ),
            ),
            Constraint(
                f"tiles, a row of a panel and a broadcast fit {registers} registers",
                lambda k: fits(k["nr"], k["mr"]) and fits(k["nc"], k["mr"]),
            ),
        ),
        default={"lanes": lanes, "block": block, "mr": mr, "nr": nr, "nc": nc},
    )


def _powers(most: int) -> tuple[int, ...]:
    return tuple(1 << p for p in range(most.bit_length() - 1, -1, -1))


ATTENTION = ScheduleRule(
    name="attention",
    summary="scores of a block of queries at a time, between two register-tiled products",
    rewrite=schedule_attention,
    open_space=attention_space,
)
