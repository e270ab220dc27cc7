"""The schedule for everything that has none of its own: inline, fuse, spread over the threads, vectorize.

Before::

    for i, j: a[i, j] = f(x[i, j])
    for i, j: b[i, j] = g(a[i, j])
    for i, j, k: c[i, j] += h(b, i, j, k)

After::

    for i, j // lanes (fused, parallel):
        for k:
            for j % lanes (vectorized): c[i, j] += h(g(f(x)), i, j, k)

- What is computed element by element is computed where it is used, unless it is dear and used more than once.
- Sums are kept in registers, as `general_reduction` says.
- Neighbours that read the same elements are left to LLVM's loop vectorizer: it reads a vector and writes it
  in several, where TVM would read element by element.
- Rows that are no whole vectors are one axis where they lie in memory like one (a sigmoid of 25200 x 85).
  Elsewhere, if nothing is reduced beside, each is vectors and a shorter one: LLVM would unroll rows of up to
  60 elements, and gather vectors from several (768 x 49 rows of 49, exchanged: 2.9 ms so, 0.14 with vectors).
- Each step is taken where the computation allows it, so the rule applies to every PrimFunc: what it cannot
  improve it leaves as it is.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Any

from tvm import s_tir
from tvm.tirx import ForKind

from ...machine.element import element_bits, element_bytes
from ...machine.streaming_store import streams
from ...machine.vector_math import POLYNOMIAL_CALLS
from ..analysis import (
    block_names,
    block_of,
    chooses_along,
    flat_axes,
    has_condition,
    is_read_by_more,
    is_reduction,
    output_blocks,
    static_extents,
    steps_of_reading,
    uses_calls,
    writes_in_order,
)
from ..expressions import called
from ..passes.aligned_rows import LEAST_LINES, write_in_lines
from ..passes.loop_partition import partition
from ..passes.row_chunks import take_in_order
from ..passes.row_prefetch import fetch_ahead
from ..passes.streaming import STREAM_MARK, row_lanes, stream_output
from ..rule import ScheduleRule
from ..transforms import attempt, enough_to_share, spread, vectorize_last
from .general_reduction import schedule_reduction
from .general_space import fills_vectors, general_space

# A function such as exp takes as long as so many elements that are moved. On 2 threads of a Zen 3, 16384
# elements of exp, tanh, sigmoid, silu, swiglu, gelu take 0.83 to 1.01 of the time of one, 8192 1.12 to 1.37.
_CALL = 2

# What is written past the caches at a time is at least a narrowest vector.
_LEAST_BITS = 128

# Rows of fewer lines of polynomials are not written in lines (`aligned_rows`). On 2 threads of a Zen 4
# bias_gelu of rows of 197, 301, 500 and 700 elements takes 0.94, 0.95, 0.80 and 0.77 of the time so, of 301
# of float16 0.74; of 100 1.03, of 49 1.15.
_LEAST_LINES_OF_POLYNOMIALS = 8

# So many rows are spread without the vectors in them: an index is taken apart once a row, not once a vector.
_ENOUGH_ROWS = 64


def schedule_general(
    sch: s_tir.Schedule,
    *,
    lanes: int,
    parallel: int,
    stream: int,
    rows: int = 1,
    chunk: int = 1,
    ahead: int = 0,
) -> None:
    """Inline, fuse, parallelize and vectorize whatever can be, in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of any PrimFunc.
    lanes : int
        Elements in a vector; 1 leaves vectors to LLVM.
    parallel : int
        1 spreads loops with enough work over the threads; 0 stays on one.
    stream : int
        1 writes outputs past the caches where they are whole vectors.
    rows : int
        Rows that are computed together, vector by vector, where it divides their number: what all of them
        read is read once.
    chunk : int
        Rows that a thread takes one after the other, if they are written past the caches and begin anywhere:
        what is left of a line of memory at a row's end is written with the next row's begin.
    ahead : int
        Inputs are fetched when so many bytes of the output are to be computed before; 0: they are not.
    """
    _inline_elementwise(sch)
    for name in block_names(sch):
        if not _is_simple(sch, name):
            continue
        if is_reduction(sch, name):
            schedule_reduction(sch, name, lanes, parallel)
        elif _is_line(sch, name):
            continue  # its reader places it
        elif not _is_placed(sch, name) and not _schedule_padding(sch, name, lanes, parallel):
            _schedule_elementwise(sch, name, lanes, parallel, stream, rows, chunk)
            if ahead:
                _fetch(sch, name, ahead)


GENERAL = ScheduleRule(
    name="general",
    summary="inline, fuse, parallelize and vectorize: the schedule for everything else",
    rewrite=schedule_general,
    open_space=general_space,
)


def _inline_elementwise(sch: s_tir.Schedule) -> None:
    """Compute elementwise blocks inside their readers, unless that repeats dear work or breaks up vectors."""
    for name in block_names(sch):
        if is_reduction(sch, name) or name in output_blocks(sch):
            continue
        readers = sch.get_consumers(sch.get_sblock(name))
        reduced = [r for r in readers if is_reduction(sch, str(sch.get(r).name_hint))]
        dear = uses_calls(sch, name) and (len(readers) > 1 or is_read_by_more(sch, name))
        if not dear and not (reduced and has_condition(sch, name)) and not _is_line(sch, name):
            attempt(sch.compute_inline, sch.get_sblock(name))


def _is_simple(sch: s_tir.Schedule, name: str) -> bool:
    """Tell whether a block has one static loop for each of its axes, as an unscheduled one has."""
    block = sch.get_sblock(name)
    return len(sch.get_loops(block)) == len(sch.get(block).iter_vars) > 0


def _is_placed(sch: s_tir.Schedule, name: str) -> bool:
    """Tell whether a block was moved into another's loops: a reduction's, on one thread or on all."""
    loops = sch.get_loops(sch.get_sblock(name))
    beside = [str(sch.get(block).name_hint) for block in sch.get_child_blocks(loops[0])]
    reduces = any(is_reduction(sch, each) for each in beside if each != name)
    return reduces or any(sch.get(loop).kind != ForKind.SERIAL for loop in loops)


def _schedule_elementwise(
    sch: s_tir.Schedule, name: str, lanes: int, parallel: int, stream: int, rows: int, chunk: int
) -> None:
    """Spread the outer loops over the threads, the innermost over vectors."""
    block, flattened = sch.get_sblock(name), _flatten(sch, name, lanes)
    extents, dtype = static_extents(sch, name), str(sch.get(block).writes[0].source.dtype)
    copy, steps = None, steps_of_reading(sch, name)
    stream = stream and extents is not None and steps == 1 and _can_stream(sch, name)
    if stream and not flattened:
        streamed = _streamed_lanes(sch, name, lanes)
        lanes, stream = streamed or lanes, min(1, streamed)
    vectors = extents is not None and lanes > 1 and extents[-1] % lanes == 0
    if stream and vectors and not flattened:
        copy = sch.cache_write(block, 0, "global")
    loops = sch.get_loops(block)
    if extents is None:
        attempt(sch.parallel, loops[0])
        return
    count, flat = prod(extents[:-1]), flat_axes(sch, name)
    outer, inner, in_lines = list(loops[:-1]), loops[-1], False
    if steps > 1:
        tiles, neighbours = sch.split(inner, [None, steps])
        sch.unroll(neighbours)
        outer = outer or [tiles]
    elif vectors or flattened or (extents[-1] > lanes > 1 and _ends_rows(sch, name)):
        tiles, inner = sch.split(inner, [None, lanes])
        is_flat = flattened or flat == len(loops)
        in_lines = bool(stream and copy is None) and not is_flat and count > 1
        if in_lines:
            write_in_lines(sch, inner, extents[-1])
        elif stream and copy is None:
            sch.annotate(inner, STREAM_MARK, 1)
        sch.vectorize(inner)
        if not (vectors or in_lines) or len(loops) - 1 in chooses_along(sch, name):
            # What is concatenated along a row becomes a loop each, without conditions; so does what is left.
            partition(sch, tiles)
            outer = outer if count > 1 else [tiles]
        elif is_flat or (count < _ENOUGH_ROWS and not in_lines):
            outer.append(tiles)
        if vectors and not flattened and outer == list(loops[:-1]):
            tiles = _take_rows(sch, outer, tiles, rows)
        if copy is not None:
            stream_output(sch, copy, tiles, lanes, dtype)
    elif len(loops) == 1:
        outer = [inner]
    lines = [p for p in sch.get_producers(block) if _is_line(sch, str(sch.get(p).name_hint))]
    # What lies in memory like one axis has one index.
    shared = outer if lines or flat > 1 else enough_to_share(sch, outer)
    at = spread(sch, shared, prod(extents) * (_CALL if uses_calls(sch, name) else 1), parallel)
    if in_lines:
        take_in_order(sch, at, max(1, chunk * int(sch.get(at).extent) // count))
    for producer in lines:
        if attempt(sch.compute_at, producer, at):
            partition(sch, sch.get_loops(producer)[-1])


def _fetch(sch: s_tir.Schedule, name: str, ahead: int) -> None:
    """Fetch what a block's vectors read, so many bytes of what it writes ahead."""
    block = sch.get_sblock(name)
    *around, vector = sch.get_loops(block)
    steps = [loop for loop in around if sch.get(loop).kind != ForKind.UNROLLED]
    if steps and sch.get(vector).kind == ForKind.VECTORIZED:
        vector_bytes = int(sch.get(vector).extent) * element_bytes(sch.get(block).writes[0].source.dtype)
        fetch_ahead(sch, steps[-1], steps[-1], ceil(ahead / vector_bytes))


def _take_rows(sch: s_tir.Schedule, outer: list[Any], tiles: Any, rows: int) -> Any:
    """Compute so many rows together, if that divides their number; return the loop over single vectors."""
    if rows == 1 or int(sch.get(outer[-1]).extent) % rows:
        return tiles
    outer[-1], together = sch.split(outer[-1], [None, rows])
    sch.reorder(tiles, together)
    sch.unroll(together)
    return together


def _can_stream(sch: s_tir.Schedule, name: str) -> bool:
    """Tell whether a block computes the elements of an output in order, of a type that is streamed."""
    block = sch.get_sblock(name)
    dtype = str(sch.get(block).writes[0].source.dtype)
    return name in output_blocks(sch) and streams(dtype) and writes_in_order(sch, block)


def _streamed_lanes(sch: s_tir.Schedule, name: str, lanes: int) -> int:
    """Return how many elements of a block's rows to write past the caches at a time, 0 if none."""
    node, extents = block_of(sch, name), static_extents(sch, name)
    assert extents is not None, "what is streamed has static loops"
    dtype = str(node.writes[0].source.dtype)
    if POLYNOMIAL_CALLS & called(node.body):
        # Nothing narrower.
        bits = lanes * element_bits(dtype)
        return row_lanes(lanes, extents[-1], dtype, bits, _LEAST_LINES_OF_POLYNOMIALS)
    return row_lanes(lanes, extents[-1], dtype, _LEAST_BITS, LEAST_LINES)


def _ends_rows(sch: s_tir.Schedule, name: str) -> bool:
    """Tell whether rows of a block may have a rest: nothing is reduced, no other place chooses with theirs.

    Beside reductions TVM may lose the condition of the rest, and beside that of a rest a causal mask.
    """
    last = len(block_of(sch, name).iter_vars) - 1
    chosen = chooses_along(sch, name)
    reduces = any(is_reduction(sch, each) for each in block_names(sch))
    return name in output_blocks(sch) and not reduces and (chosen <= {last} or last not in chosen)


def _is_line(sch: s_tir.Schedule, name: str) -> bool:
    """Tell whether a block is best computed line by line, where its only reader is.

    It has conditions at the ends of lines, and the reader takes several steps to read on.
    """
    readers = [str(sch.get(reader).name_hint) for reader in sch.get_consumers(sch.get_sblock(name))]
    if len(readers) != 1 or uses_calls(sch, name) or is_reduction(sch, readers[0]):
        return False
    node = block_of(sch, name)
    return len(node.iter_vars) - 1 in chooses_along(sch, name) and steps_of_reading(sch, readers[0]) > 1


def _flatten(sch: s_tir.Schedule, name: str, lanes: int) -> bool:
    """Make one axis of those that lie in memory like one, where the last fills no vectors and they do."""
    extents = static_extents(sch, name)
    if extents is None or lanes == 1 or extents[-1] % lanes == 0 or not fills_vectors(sch, name, lanes):
        return False
    flat = flat_axes(sch, name)
    # Refused where the loops are another block's as well.
    return attempt(sch.fuse, *sch.get_loops(sch.get_sblock(name))[-flat:])


def _schedule_padding(sch: s_tir.Schedule, name: str, lanes: int, parallel: int) -> bool:
    """Fill lines with the constant and copy rows into them, where channels are too few for vectors.

    No element then asks where it is: 224 x 224 x 3. False where the block does something else.
    """
    extents = static_extents(sch, name)
    if extents is None or len(extents) < 3 or extents[-1] % lanes == 0 or not has_condition(sch, name):
        return False
    copy = sch.get_sblock(name)
    *outer, pixel, _ = sch.get_loops(copy)
    try:
        fill = sch.decompose_padding(copy, pixel)
    except s_tir.ScheduleError:
        return False
    for block in (fill, copy):
        along = sch.fuse(*sch.get_loops(block)[-2:])
        if int(sch.get(along).extent) % lanes == 0:
            vectorize_last(sch, block, lanes)
    spread(sch, outer, prod(extents), parallel)
    return True
