"""Attention by a matrix unit of bfloat16: numbers of float32 are sums of three of these (`float32_parts`).

The nest is that of `attention`; both products are made of tiles of the unit, as in `float32_matrix_unit`::

    for h (parallel):
        panels = parts of K[h], turned, and of V[h], in pairs of neighbours along the sums
        for blocks of queries:
            queries = parts of Q[h, block]
            for panels of nr keys, tiles of mr queries:
                sums = products by the unit
                for rows:  weight = parts of 2^sums; their sum        # where lengths bound the scores
            rows: maximum, weights, sum                               # elsewhere, see rows.py
            for nr columns of V, tiles:  sums = products by the unit; O = sums / sum

Where lengths bound the scores, weights are split while they are in registers. Where they do not, scores take
the same place, also in parts: these lose no bit, unless a score is infinite.

Queries, keys and values of bfloat16 are multiplied as they are. Their weights are sums of two parts, 16 bits
where a result has 8; scores stay float32, and have maxima.
"""

from __future__ import annotations

from math import ceil, inf, isinf
from typing import Any

from tvm import s_tir
from tvm.tirx import FloatImm
from tvm_ffi import structural_walk

from ...machine.facts import Facts, facts, has_feature
from ...machine.tile_instructions import TILE_ROWS, TileInstruction, tile_instruction
from ..analysis import block_names, loops_by_kind
from ..forms.attention import can_pad_keys, can_pad_values
from ..forms.attention_bound import can_bound
from ..lane_reduction import reduce_in_lanes
from ..nests.attention import PARTS, Attention, find_attention
from ..nests.products import product_operands
from ..passes.loop_bounds import bound_loops
from ..passes.matrix_tiles import THREADS_MARK, mark_tiles
from ..restatement import held_blocks
from ..rule import ScheduleRule
from ..space import Constraint, Knob, Knobs, KnobSpace
from ..transforms import finish_tile, panel_order, vectorize_last
from ..weight_groups import interleave, turn
from .attention_blocks import (
    add_up,
    arrange_rows,
    blocks_of_queries,
    inline_rounding,
    leave_out_maxima,
    panels,
    place_blocks,
    unrolled,
)
from .attention_shares import Shares, even_shares, shares_constraints, shares_knobs
from .attention_space import bounded_constraint, bounded_knob

_ROWS = (16, 24, 32)
_BLOCKS = (16, 32, 64, 96, 128)

# Panels keep to this part of L2; others are read once for so many tiles. On 2 threads of a Xeon, time over
# that of one tile: 4096 queries and keys of 64 0.73, 2048 of 128 0.75; 2048 of 64, which L2 holds, 1.09.
_KEPT, _TILES = 7 / 8, 4

# What parts of 200 queries take together, on one thread, as each makes panels of its own.
_COST_OF_PARTS = 1.12

# Cycles on a Xeon with AMX: what a product takes in `attention`, and what it saves; what a score costs, an
# element of panels, one of a query, and a head. 512 queries of 64 and of 128, and 1024 of 64, take 0.92, 0.77
# and 0.91 of the time.
_OF_PRODUCT, _SAVED, _OF_SCORE, _OF_PANEL, _OF_QUERY, _OF_HEAD = 0.037, 0.0162, 1.38, 0.61, 1.15, 740


def schedule_attention_matrix_unit(
    sch: s_tir.Schedule,
    *,
    lanes: int,
    block: int,
    mr: int,
    nr: int,
    depth: int,
    pad: int = 0,
    bounded: int = 0,
    group: int = 1,
    parts: int = 1,
) -> None:
    """Rewrite attention in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of an unscheduled PrimFunc named ``main``.
    lanes : int
        Elements of a vector, and columns of a tile of the unit.
    block : int
        Queries whose scores exist at a time.
    mr, nr : int
        Rows and columns whose sums are in the unit's registers.
    depth : int
        Products of a step of a sum; so many divide elements of a key, keys and columns.
    pad : int
        The keys are as many as `forms.attention` makes them: a multiple of this; 0: they are as they were.
    bounded : int
        1: where lengths bound a head's scores, weights are computed on each tile (`attention_bound`).
    group : int
        Heads in a row that share panels, as they share keys.
    parts : int
        Parts of the queries of a head, or of such a group, of which each makes panels of its own.
    """
    del pad
    nest = find_attention(sch.mod["main"])
    instruction = None if nest is None else _instruction(nest)
    assert nest is not None and instruction is not None, "the rule's space says that there is one"
    products = instruction.products
    inline_rounding(sch, nest)
    product = sch.get_sblock(nest.product)
    queries = sch.cache_read(product, 0, "global", [product])
    keys = panels(sch, nest.product, panel_order(3, [0], 1, [2], nr, products))
    values = panels(sch, nest.mixed, panel_order(3, [0], 2, [1], nr, products))
    # What is in parts is read in vectors that do not cross the end of a stretch of them.
    width = depth if nest.n > depth else lanes
    sums = [reduce_in_lanes(sch, name, lanes, width // lanes, width) for name in (nest.row_max, nest.row_sum)]
    loops = blocks_of_queries(sch, nest, block, group, parts)
    place_blocks(sch, nest, lanes, loops, keys, values)
    turn(sch, sch.get_sblock(keys), instruction)
    interleave(sch, sch.get_sblock(values), instruction)
    vectorize_last(sch, queries, lanes)
    panel = _score_tiles(sch, nest, loops.depth, lanes, mr, nr, depth, products)
    key = _mixed_tiles(sch, nest, loops.depth, lanes, mr, nr, depth, products)
    steps = [arrange_rows(sch, loops.depth, each) for each in sums]
    vectorize_last(sch, sch.get_sblock(nest.weight), width)
    if bounded:
        leave_out_maxima(sch, nest, loops.depth, [name for each in sums for name in each])
    if nest.ahead is not None:
        *_, vectors, _ = sch.get_loops(sch.get_sblock(nest.weight))
        bound_loops(sch, loops.block, block * parts, nest.ahead, [panel, vectors, *steps, key], nest.n)
    vectorize_last(sch, sch.get_sblock(nest.output), lanes)
    sch.annotate(loops.shared, THREADS_MARK, 1)


def _score_tiles(
    sch: s_tir.Schedule, nest: Attention, outer: int, lanes: int, mr: int, nr: int, depth: int, products: int
) -> Any:
    """Compute scores from tiles of sums, and what is summed of them at once; return the loop over panels."""
    score, product = (sch.get_sblock(name) for name in (nest.score, nest.product))
    row, column = sch.get_loops(score)[outer:]
    panel, vectors, lane = sch.split(column, [None, nr // lanes, lanes])
    tile, row = sch.split(row, [None, mr])
    sch.reorder(panel, tile, row, vectors, lane)
    sch.compute_at(product, tile)
    along, rows = _steps(sch, product, outer + 2, depth, products)
    if PARTS in block_names(sch):
        add_up(sch, sch.get_sblock(PARTS), row, panel, outer + 3)
    unrolled(sch, [vectors], lane)
    sch.decompose_reduction(product, along)
    mark_tiles(sch, tile, rows)
    return panel


def _mixed_tiles(
    sch: s_tir.Schedule, nest: Attention, outer: int, lanes: int, mr: int, nr: int, depth: int, products: int
) -> Any:
    """Sum what is mixed in tiles; return the loop over what is summed."""
    block = sch.get_sblock(nest.mixed)
    *_, row, column = loops_by_kind(sch, block, outer)[0]
    columns, column = sch.split(column, [None, nr])
    tile, row = sch.split(row, [None, mr])
    sch.reorder(columns, tile, row, column)
    along, rows = _steps(sch, block, outer + 2, depth, products)
    finish_tile(sch, sch.cache_write(block, 0, "global"), tile, lanes)
    sch.decompose_reduction(block, along)
    mark_tiles(sch, tile, rows)
    return along


def _steps(sch: s_tir.Schedule, block: Any, outer: int, depth: int, products: int) -> tuple[Any, Any]:
    """Order the loops of a tile inside others; return those over steps of the sum, and over rows of one."""
    kept, (along,) = loops_by_kind(sch, block, outer)
    row, column = kept
    along, group, each = sch.split(along, [None, depth // products, products])
    sch.reorder(along, row, column, group, each)
    return along, row


def _instruction(nest: Attention) -> TileInstruction | None:
    """Return what multiplies tiles of both products, None where nothing does."""
    return tile_instruction(nest.packed_dtype, nest.packed_dtype, nest.dtype)


def _are_alike(func: Any, nest: Attention) -> bool:
    """Tell whether queries, keys, values and results are of one type, and keys and values lie head by head.

    Weights beside values of bfloat16 have no more bits than such a result shows.
    """
    blocks = held_blocks(func)
    operands = [load for name in (nest.product, nest.mixed) for load in product_operands(blocks[name]) or ()]
    found = [*(load.source for load in operands), blocks[nest.output].writes[0].source]
    packed = nest.packed_dtype
    alike = [str(buffer.dtype) for buffer in found] == [packed, packed, nest.dtype, packed, packed]
    return alike and can_pad_keys(func) and can_pad_values(func)


def _are_finite(score: Any) -> bool:
    """Tell whether no score is hidden by an infinity, which has no parts."""
    constants: list[float] = []
    structural_walk(score.body, [(FloatImm, lambda each: constants.append(float(each.value)))])
    return not any(map(isinf, constants))


def _algorithm(knobs: Knobs) -> str | None:
    """Name the form in which keys fill steps of both sums, and lengths bound the scores."""
    lanes = knobs["lanes"] if knobs["bounded"] else 0
    return f"attention_{knobs['pad'] or 1}_1_{lanes}_1" if knobs["pad"] or lanes else None


def attention_matrix_unit_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the space of tiles, or None where it is no such attention, or vectors are as fast.

    Of float32 it is not preferred, as `float32_matrix_unit` is not.
    Elements of a key, and columns, fill steps and tiles; keys do, or are padded.
    """
    nest = find_attention(func)
    instruction = None if nest is None else _instruction(nest)
    if nest is None or instruction is None or not _are_alike(func, nest):
        return None
    most, width = 2 * TILE_ROWS, instruction.elements
    if not has_feature(target, instruction.feature) or nest.d % width or nest.columns % width:
        return None
    shares = even_shares(nest, facts(target).cores, _COST_OF_PARTS)
    mr = _rows(nest, shares.parts)
    if not mr:
        shares, mr = Shares(1, 1), _rows(nest, 1)
    if _share_of_vectors(nest, mr, shares, instruction) >= 1:
        return None
    # Scores that take the place of weights are as exact as these: in three parts.
    bounded = instruction.parts > 1 and can_bound(func, nest) and _are_finite(held_blocks(func)[nest.score])
    fixed = {"lanes": instruction.lanes, "nr": width, "depth": width, "pad": width if nest.n % width else 0}
    block = _block(nest, mr, instruction, facts(target), shares.parts)
    default = {**fixed, "block": block, "mr": mr, "bounded": int(bounded), **shares._asdict()}
    candidates = tuple(sorted({*(rows for rows in _ROWS if rows <= nest.m), mr}))
    blocks = tuple(sorted({*(rows for rows in _BLOCKS if rows <= nest.m), mr, block}))
    knobs = (
        Knob("lanes", (fixed["lanes"],), "elements in a vector"),
        Knob("block", blocks, "queries whose scores exist at a time"),
        Knob("mr", candidates, "queries whose sums are in tiles"),
        Knob("nr", (width,), "keys, or columns, whose sums are in tiles"),
        Knob("depth", (width,), "products of a step of a sum"),
        Knob("pad", (fixed["pad"],), "keys are padded to a multiple of so many; 0: they are as they are"),
        bounded_knob(bounded),
        *shares_knobs(nest, shares.parts),
    )
    constraints = (
        Constraint(
            " and ".join(f"{name} is {value}" for name, value in fixed.items()),
            lambda k: all(k[name] == value for name, value in fixed.items()),
        ),
        Constraint(
            f"mr is 1 to {most}, and at most the queries", lambda k: 1 <= k["mr"] <= min(most, nest.m)
        ),
        Constraint("mr divides block", lambda k: k["block"] > 0 == k["block"] % k["mr"]),
        bounded_constraint(bounded),
        *shares_constraints(nest),
    )
    return KnobSpace(knobs, constraints, default, preferred=instruction.parts == 1)


def _rows(nest: Attention, parts: int) -> int:
    """Choose the queries of a tile: as many as can be, in even tiles, of which each part has as many.

    0 where there are none.
    """
    shared = [rows for rows in range(1, 2 * TILE_ROWS + 1) if ceil(nest.m / rows) % parts == 0]
    return ceil(nest.m / ceil(nest.m / shared[-1])) if shared else 0


def _block(nest: Attention, mr: int, instruction: TileInstruction, machine: Facts, parts: int) -> int:
    """Choose the queries of a block: more than a tile's where panels of a head come from beyond L2.

    With a causal mask they would all compute what the last one sees. As many blocks go into each part.
    """
    panels = nest.n * (nest.d + nest.columns) * instruction.parts * instruction.part_bytes
    if panels <= machine.l2_bytes * _KEPT or nest.ahead is not None:
        return mr
    tiles = ceil(nest.m / mr)
    of_part = tiles // parts
    counts = (ceil(of_part / ceil(of_part / _TILES)), *range(_TILES, 0, -1))
    return mr * next(count for count in counts if ceil(tiles / count) % parts == 0)


def _share_of_vectors(nest: Attention, mr: int, shares: Shares, instruction: TileInstruction) -> float:
    """Estimate which part of the time of vectors the unit takes, splitting operands and weights included.

    Operands of bfloat16 are not split: 12 heads of 16 to 128 queries take 0.37 to 1.01 of the time so.
    """
    if nest.m < TILE_ROWS or instruction.parts == 1:
        return inf if nest.m < TILE_ROWS else 0.0
    width, each = instruction.elements, nest.d + nest.columns
    rows, keys = ceil(nest.m / mr) * mr, ceil(nest.n / width) * width
    seen = 1.0 if nest.ahead is None else ((nest.m + mr) / 2 + nest.ahead) / nest.n
    scores = rows * keys * min(seen, 1)
    panels = keys * each * shares.parts / shares.group
    splitting = _OF_SCORE * scores + _OF_PANEL * panels + _OF_QUERY * nest.m * nest.d + _OF_HEAD
    return 1 + (splitting / (scores * each) - _SAVED) / _OF_PRODUCT


ATTENTION_MATRIX_UNIT = ScheduleRule(
    name="attention_matrix_unit",
    summary="attention by tiles of a matrix unit (AMX): bfloat16, or float32 as sums of three of these",
    rewrite=schedule_attention_matrix_unit,
    open_space=attention_matrix_unit_space,
    algorithm=_algorithm,
)
"""The schedule rule of attention by a matrix unit."""
