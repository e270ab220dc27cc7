"""Attention: a few queries at a time, whose scores never leave the cache.

Before::

    for h, i, k, c:  product[h, i, k] += Q[h, i, c] * K[h, k, c]
    for h, i, k:     score = product * scale, or masked
    for h, i, k:     row_max, weight = 2^(score - row_max), row_sum
    for h, i, e, j:  mixed[h, i, e] += weight[h, i, j] * V[h, j, e]
    for h, i, e:     O = mixed / row_sum

After::

    for h (parallel):
        panels = K[h] transposed in registers, nr keys a panel; V[h], nc columns a panel
        for blocks of queries:
            for panels, tiles of mr queries:  acc[mr, nr] over c; score = scaled or masked acc
            rows: maximum, weights, sum                          # in vectors, see rows.py
            for tiles of mr queries, nr columns of V:  acc[mr, nr] over all keys
            O = acc / sum

One query makes no matrix product: each key is read where it lies, and summed in parts as a row is.
With a causal mask, a block of queries goes no further than to its last query's last key (`loop_bounds`).
Where the lengths of queries and keys bound the scores, weights are computed and added up on the tiles of the
first product, and no maxima are taken (`attention_bound`).

Of the m x n scores a block of rows exists at a time, in L2. The sum over all keys is known before the
second product, so nothing is scaled again as an online softmax must: on a CPU a row of scores is small beside
L2.

References
----------
Dao et al., "FlashAttention", 2022 (which keeps scores in shared memory, where whole rows do not fit).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

from tvm import s_tir
from tvm.tirx import IndexMap

from ...machine.vector_math import CHAINS
from ..analysis import block_names, loops_by_kind
from ..attention_nest import (
    LITTLE,
    LONGEST,
    PADDED_KEYS,
    PADDED_VALUES,
    PARTS,
    Attention,
    find_attention,
)
from ..in_place import compute_in_place
from ..lane_reduction import arrange_parts, reduce_in_lanes
from ..loop_bounds import bound_loops
from ..loop_partition import partition
from ..needless_loops import run_unless
from ..restatement import replaced
from ..rule import ScheduleRule
from ..space import Knobs
from ..transforms import (
    LEAST_PARALLEL_SUMS,
    finish_tile,
    panel_order,
    relayout_read,
    transpose_last,
    vectorize_last,
)
from .attention_space import attention_space
from .tile_choice import LEAST_LANES

# Loops around what is computed on a tile of scores: heads, blocks of queries, panels, tiles.
_ON_TILE = 4


def schedule_attention(
    sch: s_tir.Schedule,
    *,
    lanes: int,
    block: int,
    mr: int,
    nr: int,
    nc: int,
    pad: int,
    values: int = 0,
    widen: int = 0,
    bounded: int = 0,
) -> None:
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
        Keys of a register tile of the first product: a panel; 0: keys are read where they lie, and each makes
        a dot product.
    nc : int
        Columns of a register tile of the second product.
    values : int
        1: values are copied into panels of ``nc`` columns; 0: they are read where they lie.
    pad, widen : int
        The keys, and the columns of the values, are as many as `attention_form` makes them: a multiple of
        this; 0: they are as they were.
    bounded : int
        1: where lengths bound a head's scores, weights are computed on each tile (`attention_bound`).
    """
    del pad, widen
    nest = find_attention(sch.mod["main"])
    assert nest is not None, "the rule's space says that there is one"
    _inline_rounding(sch, nest)
    keys = _panels(sch, nest.product, panel_order(3, [0], 1, [2], nr)) if nr else ""
    columns = _panels(sch, nest.mixed, panel_order(3, [0], 2, [1], nc)) if values else ""
    dots = {} if nr else reduce_in_lanes(sch, nest.product, lanes, 1)
    # With a causal mask, steps over the keys no longer than a panel end where its scores do.
    most = nr // lanes if nr and nest.ahead is not None else CHAINS
    together = next(v for v in (CHAINS, 2, 1) if v <= most and nest.n % (v * lanes) == 0)
    ahead = nest.ahead if nr and nest.n > together * lanes else None
    width = None if ahead is None else together * lanes
    sums = [reduce_in_lanes(sch, name, lanes, CHAINS, width) for name in (nest.row_max, nest.row_sum)]
    _keep_columns(sch, nest)
    head, block_loop = _blocks_of_queries(sch, nest, block)
    names = block_names(sch)
    once = [LITTLE, *LONGEST] if bounded else []
    copies = [name for name in (keys, columns, PADDED_KEYS, PADDED_VALUES) if name in names]
    across = int(sch.get(sch.get_loops(sch.get_sblock(nest.output))[-1]).extent)
    # No vector of what is padded, or of what is left of it, ends within a row.
    parts = {PADDED_KEYS: gcd(nest.d, lanes), PADDED_VALUES: gcd(across, lanes)}
    moved = [name for name in names[: names.index(nest.output)] if name not in (*copies, *once)]
    for name in reversed(moved):
        sch.compute_at(sch.get_sblock(name), block_loop)
    for name in once:
        sch.compute_at(sch.get_sblock(name), head)
    for name in copies:
        sch.compute_at(sch.get_sblock(name), head)
        if name != keys:
            vectorize_last(sch, sch.get_sblock(name), parts.get(name, lanes))
    cut = nest.m % block != 0
    if nr:
        _write_panels(sch, nest, keys, lanes, nr)
        panel = _score_tiles(sch, nest, lanes, mr, nr, cut and not nest.chosen)
    else:
        panel = _arrange(sch, dots)
        vectorize_last(sch, sch.get_sblock(nest.score), lanes)
    key = _tile(sch, nest.mixed, lanes, mr, nc, cut)
    # Loops that a mask may cut to a few steps are taken register by register, see `lane_reduction`.
    steps = [_arrange(sch, parts, 0 if ahead is None else lanes) for parts in sums]
    vectorize_last(sch, sch.get_sblock(nest.weight), together * lanes)
    if bounded:
        _leave_out_maxima(sch, nest, [name for parts in sums for name in parts])
    if ahead is not None:
        *_, vectors, _ = sch.get_loops(sch.get_sblock(nest.weight))
        bound_loops(sch, block_loop, block, ahead, [panel, vectors, *steps, key], nest.n)
    vectorize_last(sch, sch.get_sblock(nest.output), lanes if across <= lanes else gcd(across, lanes))


def _leave_out_maxima(sch: s_tir.Schedule, nest: Attention, partial: Sequence[str]) -> None:
    """Let weights take the place of scores; where scores are little they are weights, and this is all.

    ``partial``: the blocks of partial results of rows' maxima and sums.
    """
    compute_in_place(sch, nest.score, nest.weight)
    for name in (nest.row_max, nest.weight, nest.row_sum, *(f"{part}_update" for part in partial)):
        run_unless(sch, sch.get_loops(sch.get_sblock(name))[2], LITTLE)


def _write_panels(sch: s_tir.Schedule, nest: Attention, panels: str, lanes: int, nr: int) -> None:
    """Transpose the keys in registers, where types and widths let them be."""
    square = gcd(nest.d, lanes)
    if nest.packed_dtype == nest.dtype and square >= LEAST_LANES and nr % square == 0:
        transpose_last(sch, sch.get_sblock(panels), square, nest.dtype)
    else:
        vectorize_last(sch, sch.get_sblock(panels), lanes)


def _arrange(sch: s_tir.Schedule, parts: Mapping[str, int], lanes: int = 0) -> Any:
    """Order the loops of a row's partial results; return the loop over vectors of the row itself."""
    return [arrange_parts(sch, name, dimensions, 2, lanes) for name, dimensions in parts.items()][-1]


def _inline_rounding(sch: s_tir.Schedule, nest: Attention) -> None:
    """Compute what lies between the second product and the output where the output is."""
    for name in [str(sch.get(r).name_hint) for r in sch.get_consumers(sch.get_sblock(nest.mixed))]:
        if name != nest.output:
            sch.compute_inline(sch.get_sblock(name))


def _keep_columns(sch: s_tir.Schedule, nest: Attention) -> None:
    """Say that the output reads padded columns as well: else they would not be computed, but masked."""
    output = sch.get_sblock(nest.output)
    node, mixed = sch.get(output), sch.get(sch.get_sblock(nest.mixed)).writes[0].source
    at, read = next((i, each) for i, each in enumerate(node.reads) if each.source.same_as(mixed))

    def whole_rows(*axes: Any) -> list[Any]:
        given = dict(zip((v.var for v in node.iter_vars), axes, strict=True))
        starts = [replaced(each.min, given) for each in read.region[:-1]]
        return [*((start, start + 1) for start in starts), (0, nest.columns)]

    if nest.columns > int(node.iter_vars[-1].dom.extent):
        sch.annotate_buffer_access(output, at, "read", whole_rows)


def _panels(sch: s_tir.Schedule, name: str, order: IndexMap) -> str:
    """Lay the second operand of a product out in panels; return the name of the block that does."""
    product = sch.get_sblock(name)
    copy = sch.cache_read(product, 1, "global", [product])
    relayout_read(sch, product, 1, copy, order)
    return str(sch.get(copy).name_hint)


def _blocks_of_queries(sch: s_tir.Schedule, nest: Attention, block: int) -> tuple[Any, Any]:
    """Split the queries into blocks and share the heads among the threads; return the loops over both."""
    head, query, *_ = sch.get_loops(sch.get_sblock(nest.output))
    blocks, _ = sch.split(query, [None, block])
    if nest.m % block:
        partition(sch, blocks)
    if nest.heads * nest.m * nest.n * nest.d >= LEAST_PARALLEL_SUMS:
        sch.parallel(head)
    return head, blocks


def _score_tiles(sch: s_tir.Schedule, nest: Attention, lanes: int, mr: int, nr: int, cut: bool) -> Any:
    """Compute scores on tiles whose products are in registers, and what is summed of them at once.

    ``cut``: one block of queries has fewer of them; its last tile, of fewer rows, is one of its own then. TVM
    must not cut a tile that has conditions on its rows: it would cut by those too, beyond the loop's ends.
    Returns the loop over panels.
    """
    score, product = (sch.get_sblock(name) for name in (nest.score, nest.product))
    _, _, *rows, column = sch.get_loops(score)
    panels, vectors, lane = sch.split(column, [None, nr // lanes, lanes])
    tile, row = sch.split(rows[0] if rows else sch.add_unit_loop(panels), [None, mr])
    sch.reorder(panels, tile, row, vectors, lane)
    sch.compute_at(product, tile)
    along = _sum_in_registers(sch, product, _ON_TILE, lanes)
    if PARTS in block_names(sch):
        parts = sch.get_sblock(PARTS)
        sch.reverse_compute_at(parts, tile)
        _add_up(sch, parts, panels)
    _unrolled(sch, [row, vectors], lane)
    if cut:
        partition(sch, tile)
    sch.decompose_reduction(product, along)
    return panels


def _add_up(sch: s_tir.Schedule, parts: Any, panels: Any) -> None:
    """Add a tile's weights to the parts of its rows' sums, which are zero before the first panel."""
    (*rows, part), vectors = loops_by_kind(sch, parts, _ON_TILE)
    sch.reorder(*rows, *vectors, part)
    _unrolled(sch, [*rows, *vectors], part)
    zeros = sch.decompose_reduction(parts, panels)
    sch.vectorize(sch.get_loops(zeros)[-1])


def _tile(sch: s_tir.Schedule, name: str, lanes: int, mr: int, nr: int, cut: bool) -> Any:
    """Sum a product in tiles of registers; return the loop over what is summed.

    ``cut``: as in `_score_tiles`.
    """
    block = sch.get_sblock(name)
    kept, (along,) = loops_by_kind(sch, block, 2)
    row, column = kept[-2:] if len(kept) > 1 else (None, kept[-1])
    columns, column = sch.split(column, [None, nr])
    tile = columns
    if row is not None:
        tile, row = sch.split(row, [None, mr])
        sch.reorder(columns, tile, row, column)
    along = _sum_in_registers(sch, block, 3 + (row is not None), lanes)
    tail = sch.cache_write(block, 0, "global")
    if row is None:
        # Unrolled as other tiles are, one row as wide as this takes registers from its sums.
        sch.reverse_compute_at(tail, tile)
        vectorize_last(sch, tail, lanes)
    else:
        finish_tile(sch, tail, tile, lanes)
    if cut:
        partition(sch, tile)
    sch.decompose_reduction(block, along)
    return along


def _sum_in_registers(sch: s_tir.Schedule, product: Any, depth: int, lanes: int) -> Any:
    """Order the loops of a tile inside ``depth`` others; return the one over what is summed."""
    (*rows, column), (along,) = loops_by_kind(sch, product, depth)
    vectors, lane = sch.split(column, [None, lanes])
    sch.reorder(along, *rows, vectors, lane)
    _unrolled(sch, [*rows, vectors], lane)
    return along


def _unrolled(sch: s_tir.Schedule, loops: Sequence[Any], lane: Any) -> None:
    for loop in loops:
        sch.unroll(loop)
    sch.vectorize(lane)


def _form(knobs: Knobs) -> str | None:
    """Name the form in which keys and columns fill vectors, and lengths bound the scores."""
    keys, columns = knobs["pad"] or 1, knobs["widen"] or 1
    if knobs["bounded"]:
        return f"attention_{keys}_{columns}_{knobs['lanes']}"
    return f"padded_attention_{keys}_{columns}" if max(keys, columns) > 1 else None


ATTENTION = ScheduleRule(
    name="attention",
    summary="scores of a block of queries at a time, between two register-tiled products",
    rewrite=schedule_attention,
    open_space=attention_space,
    algorithm=_form,
)
