"""Attention: a few queries at a time, whose scores never leave the cache.

Before::

    for h, i, k, c:  product[h, i, k] += Q[h, i, c] * K[h, k, c]
    for h, i, k:     score = product * scale, or masked
    for h, i, k:     row_max, weight = 2^(score - row_max), row_sum
    for h, i, e, j:  mixed[h, i, e] += weight[h, i, j] * V[h, j, e]
    for h, i, e:     O = mixed / row_sum

After::

    for h (parallel), or parts of its queries:
        panels = K[h] transposed in registers, nr keys a panel; V[h], nc columns a panel
        for blocks of queries:
            for panels, tiles of mr queries:  acc[mr, nr] over c; score = scaled or masked acc
            rows: maximum, weights, sum                          # in vectors, see rows.py
            for tiles of mr queries, nr columns of V:  acc[mr, nr] over all keys
            O = acc / sum

A few queries are no matrix product worth panels: each key is read where it lies, and its products are summed
in parts as a row is, of as many keys as are a vector of scores. Heads of one query each that read the same
keys are queries of one head (`forms.shared_keys`).
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

from collections.abc import Mapping
from math import gcd
from typing import Any

from tvm import s_tir

from ...machine.vector_math import CHAINS
from ..analysis import block_names, loops_by_kind
from ..lane_reduction import reduce_in_lanes
from ..nests.attention import (
    PADDED_KEYS,
    PARTS,
    Attention,
    find_attention,
)
from ..passes.loop_bounds import bound_loops
from ..passes.loop_partition import partition
from ..rule import ScheduleRule
from ..transforms import (
    finish_tile,
    panel_order,
    transpose_last,
    vectorize_last,
)
from .attention_blocks import (
    add_up,
    arrange_rows,
    blocks_of_queries,
    columns_of_output,
    inline_rounding,
    leave_out_maxima,
    panels,
    place_blocks,
    unrolled,
)
from .attention_space import attention_algorithm, attention_space
from .even_parts import LEAST_LANES


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
    group: int = 1,
    parts: int = 1,
    shared_keys: int = 0,
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
        The keys, and the columns of the values, are as many as `forms.attention` makes them: a multiple of
        this; 0: they are as they were.
    bounded : int
        1: where lengths bound a head's scores, weights are computed on each tile (`attention_bound`).
    group : int
        Heads in a row that share panels, as they share keys.
    parts : int
        Parts of the queries of a head, or of such a group, of which each makes panels of its own.
    shared_keys : int
        1: the function is in the form that `forms.shared_keys.restate` gives it; 0: it is as it was.
    """
    del pad, widen, shared_keys
    nest = find_attention(sch.mod["main"])
    assert nest is not None, "the rule's space says that there is one"
    inline_rounding(sch, nest)
    padded = not nr and PADDED_KEYS in block_names(sch)
    if padded:
        sch.compute_inline(sch.get_sblock(PADDED_KEYS))
    keys = panels(sch, nest.product, panel_order(3, [0], 1, [2], nr)) if nr else ""
    columns = panels(sch, nest.mixed, panel_order(3, [0], 2, [1], nc)) if values else ""
    dots = {} if nr else reduce_in_lanes(sch, nest.product, lanes, 1)
    # With a causal mask, steps over the keys no longer than a panel end where its scores do.
    most = nr // lanes if nr and nest.ahead is not None else CHAINS
    together = next(v for v in (CHAINS, 2, 1) if v <= most and nest.n % (v * lanes) == 0)
    ahead = nest.ahead if nr and nest.n > together * lanes else None
    width = None if ahead is None else together * lanes
    sums = [reduce_in_lanes(sch, name, lanes, CHAINS, width) for name in (nest.row_max, nest.row_sum)]
    loops = blocks_of_queries(sch, nest, block, group, parts)
    cut = nest.m % block != 0
    if cut:
        partition(sch, loops.block)
    place_blocks(sch, nest, lanes, loops, keys, columns)
    if values:
        vectorize_last(sch, sch.get_sblock(columns), lanes)
    if nr:
        _write_panels(sch, nest, keys, lanes, nr)
        panel = _score_tiles(sch, nest, loops.depth, lanes, mr, nr, cut and not nest.chosen)
    else:
        panel = _score_dots(sch, nest, loops.depth, lanes, dots)
        if padded:
            partition(sch, panel)
    key = _tile(sch, nest.mixed, loops.depth, lanes, mr, nc, cut)
    # Loops that a mask may cut to a few steps are taken register by register, see `lane_reduction`.
    steps = [arrange_rows(sch, loops.depth, each, 0 if ahead is None else lanes) for each in sums]
    vectorize_last(sch, sch.get_sblock(nest.weight), together * lanes)
    if bounded:
        leave_out_maxima(sch, nest, loops.depth, [name for each in sums for name in each])
    if ahead is not None:
        *_, vectors, _ = sch.get_loops(sch.get_sblock(nest.weight))
        bound_loops(sch, loops.block, block * parts, ahead, [panel, vectors, *steps, key], nest.n)
    across = columns_of_output(sch, nest)
    vectorize_last(sch, sch.get_sblock(nest.output), lanes if across <= lanes else gcd(across, lanes))


def _write_panels(sch: s_tir.Schedule, nest: Attention, name: str, lanes: int, nr: int) -> None:
    """Transpose the keys in registers, where types and widths let them be."""
    square = gcd(nest.d, lanes)
    if nest.packed_dtype == nest.dtype and square >= LEAST_LANES and nr % square == 0:
        transpose_last(sch, sch.get_sblock(name), square, nest.dtype)
    else:
        vectorize_last(sch, sch.get_sblock(name), lanes)


def _score_tiles(
    sch: s_tir.Schedule, nest: Attention, outer: int, lanes: int, mr: int, nr: int, cut: bool
) -> Any:
    """Compute scores on tiles whose products are in registers, and what is summed of them at once.

    ``outer``: loops around blocks of queries. ``cut``: one block of queries has fewer of them; its last tile,
    of fewer rows, is one of its own then. TVM must not cut a tile that has conditions on its rows: it would
    cut by those too, beyond the loop's ends. Returns the loop over panels.
    """
    score, product = (sch.get_sblock(name) for name in (nest.score, nest.product))
    *rows, column = sch.get_loops(score)[outer:]
    panel, vectors, lane = sch.split(column, [None, nr // lanes, lanes])
    tile, row = sch.split(rows[0] if rows else sch.add_unit_loop(panel), [None, mr])
    sch.reorder(panel, tile, row, vectors, lane)
    sch.compute_at(product, tile)
    along = _sum_in_registers(sch, product, outer + 2, lanes)
    if PARTS in block_names(sch):
        add_up(sch, sch.get_sblock(PARTS), tile, panel, outer + 2)
    unrolled(sch, [row, vectors], lane)
    if cut:
        partition(sch, tile)
    sch.decompose_reduction(product, along)
    return panel


def _score_dots(sch: s_tir.Schedule, nest: Attention, outer: int, lanes: int, dots: Mapping[str, int]) -> Any:
    """Compute scores of as many keys as are a vector from sums that stay in L1; return the loop over vectors.

    ``outer``: as in `_score_tiles`. ``dots``: the blocks of partial sums of a dot product.
    """
    score = sch.get_sblock(nest.score)
    *rows, column = sch.get_loops(score)[outer:]
    vector, lane = sch.split(column, [None, lanes])
    sch.reorder(vector, *rows, lane)
    for name in (nest.product, *dots):
        sch.compute_at(sch.get_sblock(name), vector)
    arrange_rows(sch, outer + 1, dots)
    sch.vectorize(lane)
    return vector


def _tile(sch: s_tir.Schedule, name: str, outer: int, lanes: int, mr: int, nr: int, cut: bool) -> Any:
    """Sum a product in tiles of registers; return the loop over what is summed.

    ``outer``, ``cut``: as in `_score_tiles`.
    """
    block = sch.get_sblock(name)
    kept, (along,) = loops_by_kind(sch, block, outer)
    row, column = kept[-2:] if len(kept) > 1 else (None, kept[-1])
    columns, column = sch.split(column, [None, nr])
    tile = columns
    if row is not None:
        tile, row = sch.split(row, [None, mr])
        sch.reorder(columns, tile, row, column)
    along = _sum_in_registers(sch, block, outer + 1 + (row is not None), lanes)
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
    unrolled(sch, [*rows, vectors], lane)
    return along


ATTENTION = ScheduleRule(
    name="attention",
    summary="scores of a block of queries at a time, between two register-tiled products",
    rewrite=schedule_attention,
    open_space=attention_space,
    algorithm=attention_algorithm,
)
