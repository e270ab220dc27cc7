"""What both schedules of attention share: the one in vector registers, and that by a matrix unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any, NamedTuple

from tvm import s_tir
from tvm.tirx import IndexMap

from ..analysis import block_names, block_of, loops_by_kind
from ..lane_reduction import arrange_parts
from ..nests.attention import LITTLE, LONGEST, PADDED_KEYS, PADDED_VALUES, Attention
from ..passes.in_place import compute_in_place
from ..passes.needless_loops import run_unless
from ..restatement import replaced
from ..transforms import LEAST_PARALLEL_SUMS, relayout_read, vectorize_last


def inline_rounding(sch: s_tir.Schedule, nest: Attention) -> None:
    """Compute what lies between the second product and the output where the output is."""
    for name in [str(sch.get(r).name_hint) for r in sch.get_consumers(sch.get_sblock(nest.mixed))]:
        if name != nest.output:
            sch.compute_inline(sch.get_sblock(name))


def panels(sch: s_tir.Schedule, name: str, order: IndexMap) -> str:
    """Lay the second operand of a product out in panels; return the name of the block that does."""
    product = sch.get_sblock(name)
    copy = sch.cache_read(product, 1, "global", [product])
    relayout_read(sch, product, 1, copy, order)
    return str(sch.get(copy).name_hint)


class BlockLoops(NamedTuple):
    """The outer loops: over what shares panels of keys, over heads in it, over blocks of queries.

    The first one goes over heads, groups or parts of them; it is the same as the second where each head has
    panels of its own. ``depth``: how many loops these are.
    """

    shared: Any
    head: Any
    block: Any
    depth: int


def blocks_of_queries(sch: s_tir.Schedule, nest: Attention, block: int, group: int, parts: int) -> BlockLoops:
    """Split the queries into blocks, and share heads, groups of them, or parts of these among the threads.

    Blocks take turns at the parts: with a causal mask the first ones have less to do than the last ones.
    """
    shared, query, *_ = sch.get_loops(sch.get_sblock(nest.output))
    blocks, *part, _ = sch.split(query, [None, *([parts] if parts > 1 else []), block])
    shared, *head = sch.split(shared, [None, group]) if group > 1 else [shared]
    if part:
        sch.reorder(shared, *part, *head, blocks)
        shared = sch.fuse(shared, *part)
    if nest.heads * nest.m * nest.n * nest.d >= LEAST_PARALLEL_SUMS:
        sch.parallel(shared)
    return BlockLoops(shared, [shared, *head][-1], blocks, 2 + len(head))


def place_blocks(
    sch: s_tir.Schedule, nest: Attention, lanes: int, loops: BlockLoops, keys: str, values: str
) -> None:
    """Compute what is of a head before its queries, and all else in the loop over blocks of these.

    ``keys``, ``values``: the blocks that write panels, "" where there are none.
    """
    _keep_columns(sch, nest)
    names = block_names(sch)
    copies = [name for name in (keys, values, PADDED_KEYS, PADDED_VALUES) if name in names]
    once = [name for name in (LITTLE, *LONGEST) if name in names]
    for name in reversed(names[: names.index(nest.output)]):
        if name not in (*copies, *once):
            sch.compute_at(sch.get_sblock(name), loops.block)
    for name in once:
        sch.compute_at(sch.get_sblock(name), loops.head)
    for name in copies:
        sch.compute_at(sch.get_sblock(name), loops.shared)
    # No vector of what is padded, or of what is left of it, ends within a row.
    for name, along in ((PADDED_KEYS, nest.d), (PADDED_VALUES, columns_of_output(sch, nest))):
        if name in copies:
            vectorize_last(sch, sch.get_sblock(name), gcd(along, lanes))


def columns_of_output(sch: s_tir.Schedule, nest: Attention) -> int:
    """Return the columns of the result, which are fewer than those of values that are padded."""
    return int(block_of(sch, nest.output).iter_vars[-1].dom.extent)


def _keep_columns(sch: s_tir.Schedule, nest: Attention) -> None:
    """Say that the output reads padded columns as well: else they would not be computed, but masked."""
    output = sch.get_sblock(nest.output)
    node, mixed = sch.get(output), block_of(sch, nest.mixed).writes[0].source
    at, read = next((i, each) for i, each in enumerate(node.reads) if each.source.same_as(mixed))

    def whole_rows(*axes: Any) -> list[Any]:
        given = dict(zip((v.var for v in node.iter_vars), axes, strict=True))
        starts = [replaced(each.min, given) for each in read.region[:-1]]
        return [*((start, start + 1) for start in starts), (0, nest.columns)]

    if nest.columns > int(node.iter_vars[-1].dom.extent):
        sch.annotate_buffer_access(output, at, "read", whole_rows)


def leave_out_maxima(sch: s_tir.Schedule, nest: Attention, outer: int, partial: Sequence[str]) -> None:
    """Let weights take the place of scores; where scores are little they are weights, and this is all.

    ``outer``: the loops around blocks of rows. ``partial``: the blocks of partial results of rows' maxima and
    sums.
    """
    compute_in_place(sch, nest.score, nest.weight)
    for name in (nest.row_max, nest.weight, nest.row_sum, *(f"{part}_update" for part in partial)):
        run_unless(sch, sch.get_loops(sch.get_sblock(name))[outer], LITTLE)


def arrange_rows(sch: s_tir.Schedule, outer: int, parts: Mapping[str, int], lanes: int = 0) -> Any:
    """Order the loops of a row's partial results; return the loop over vectors of the row itself."""
    return [arrange_parts(sch, name, dimensions, outer, lanes) for name, dimensions in parts.items()][-1]


def add_up(sch: s_tir.Schedule, parts: Any, at: Any, panel: Any, depth: int) -> None:
    """Add weights, where they are computed, to the parts of their rows' sums: zero before the first panel.

    ``at``, ``panel``: the loop in which they are, inside ``depth`` - 1 others, and that over panels of keys.
    """
    sch.reverse_compute_at(parts, at)
    (*rows, part), vectors = loops_by_kind(sch, parts, depth)
    sch.reorder(*rows, *vectors, part)
    unrolled(sch, [*rows, *vectors], part)
    zeros = sch.decompose_reduction(parts, panel)
    sch.vectorize(sch.get_loops(zeros)[-1])


def unrolled(sch: s_tir.Schedule, loops: Sequence[Any], lane: Any) -> None:
    """Unroll loops of a tile, and make the innermost one a vector."""
    for loop in loops:
        sch.unroll(loop)
    sch.vectorize(lane)
