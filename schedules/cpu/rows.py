"""Row by row: softmax, the norms, reductions along any axes. Each row is finished while it is in the cache.

Before::

    for i, k:  row_max[i] = max(row_max[i], x[i, k])
    for i, j:  e[i, j] = exp(x[i, j] - row_max[i])
    for i, k:  row_sum[i] += e[i, k]
    for i, j:  y[i, j] = e[i, j] / row_sum[i]

After, where a row is contiguous::

    for i (parallel):
        for k // wide: part[k % wide] = max(part[k % wide], x[i, k])  # vectors, several in flight
        row_max = max(part)                                           # by fours
        for j // lanes: e[j] = exp(x[i, j] - row_max)                 # vectors; e is one row
        ... the sum likewise ...
        for j // lanes: y[i, j] = e[j] / row_sum

Where neighbouring rows are contiguous, as in a softmax along the first axis, vectors hold one element each
of ``wide`` rows, and no partial results are needed. A reduction with fewer rows than threads is cut into
parts that are reduced in parallel first.

The input is read from memory once; only rows that do not fit a cache are read more often. What does not fill
a vector is computed after a loop without conditions (`loop_partition`). Rows of a length that no vectors
divide are reduced as if they were longer, in the form of ``forms.whole_rows``. Where pieces of other rows
lie between those of a row, as those of other channels in images, rows are reduced piece by piece, in the
order of memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from tvm import s_tir

from ...machine.element import element_bytes
from ...machine.streaming_store import streams
from ...machine.vector_math import EXPONENTIALS
from ..analysis import block_names, block_of, flat_axes, loops_by_kind, loops_inside, writes_in_order
from ..expressions import called
from ..forms.whole_rows import lengthened_axes
from ..lane_reduction import reduce_as_computed, reduce_in_lanes, vectors_of_parts
from ..nests.rows import RowNest, find_rows, inline_cheap
from ..passes.aligned_rows import LEAST_LINES, write_in_lines
from ..passes.in_place import compute_in_place
from ..passes.row_chunks import take_in_order
from ..passes.row_prefetch import fetch_ahead
from ..passes.streaming import STREAM_MARK, row_lanes, stream_output
from ..passes.written_behind import write_behind
from ..rule import ScheduleRule
from ..transforms import LEAST_PARALLEL_WORK
from .even_parts import divisors
from .row_choice import LEAST_BITS, LEAST_BITS_IN_PLACE, LEAST_LINES_IN_PLACE
from .row_loops import arrange, row_loop
from .row_space import rows_space, whole_rows

# An exponential takes as long as so many elements that are read and written. On 2 threads of a Zen 3 softmax
# of 96 x 128 takes 0.70 of the time it takes on one, of 16 x 1024 0.72, of 8 x 1024 as long.
_EXPONENTIAL = 3


def schedule_rows(
    sch: s_tir.Schedule,
    *,
    lanes: int,
    vectors: int,
    block: int,
    parallel: int,
    parts: int,
    whole: int,
    stream: int,
    ahead: int = 0,
    chunk: int = 1,
    behind: int = 0,
) -> None:
    """Rewrite a function that works row by row in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of an unscheduled PrimFunc named ``main``.
    lanes : int
        Elements in a vector; 1 leaves vectors to LLVM.
    vectors : int
        Vectors of partial results along a row; of neighbouring rows across them.
    block : int
        Rows that are taken through each step together: their sums do not wait for each other.
    parallel : int
        1 spreads the rows over the threads; 0 stays on one.
    parts : int
        1: every row is reduced as a whole; more: into so many parts first, in parallel.
    whole : int
        1: the function is in the form that `forms.whole_rows.restate` gives it, and each part of a row, or
        each of its pieces, is whole vectors; 2: in that of ``restate_with_values``; 0: it is as it was.
    stream : int
        1 writes an output as long as its rows past the caches.
    ahead : int
        Blocks of rows that the last pass over a row fetches ahead: see `row_prefetch`; 0: none.
    chunk : int
        Blocks of rows that a thread takes one after the other: what is left of a line of memory at a row's
        end is written with the next row's begin, see `aligned_rows`.
    behind : int
        1 writes a row of a chunk while the next is computed: see `written_behind`; 0 finishes it first.
    """
    del whole
    nest = find_rows(sch.mod["main"])
    assert nest is not None, "the rule's space says that there is one"
    work = nest.work * (_EXPONENTIAL if EXPONENTIALS & called(sch.mod["main"].body) else 1)
    *apart, piece = (nest.is_one_reduction and lengthened_axes(sch.mod["main"], 1)) or (0,)
    inline_cheap(sch, nest.output)
    last, rows, reductions = nest.output, nest.rows, nest.reductions
    if parts > 1:
        last = _cut(sch, reductions[0], parts)
        rows, reductions = ((0, 1), *((position + 1, 1) for position, _ in rows)), (last,)
    dimensions: dict[str, int] = {}
    if nest.contiguous and lanes > 1:
        for name in reductions:
            dimensions |= reduce_in_lanes(sch, name, lanes, vectors)
    length = _flatten(sch, nest, lanes)
    streamed = _streamed_lanes(sch, nest, length, lanes) if stream else 0
    in_lines = bool(streamed) and length % streamed > 0
    divided = bool(streamed) and length == nest.extents[-1] and not in_lines
    copy = sch.cache_write(sch.get_sblock(last), 0, "global") if divided else None
    if nest.in_place and not streamed:
        compute_in_place(sch, nest.in_place, last)
    wide = 0 if nest.contiguous or lanes == 1 else lanes * vectors
    spread = parallel == 1 and work >= LEAST_PARALLEL_WORK
    lines = max(divisors(nest.lines, max(1, wide // nest.row_extent)))
    wide = nest.row_extent if lines > 1 else min(wide, ceil(nest.row_extent / lanes) * lanes)
    row = row_loop(sch, last, rows, wide, lines, block, spread)
    names = block_names(sch)
    names = names[: names.index(last) + 1]
    for name in reversed(names[:-1]):
        sch.compute_at(sch.get_sblock(name), row)
    across = 0 if not wide else 2 if lines > 1 else 1
    reading, writing = _arrange_passes(
        sch, names, row, lanes, dimensions, across, streamed or lanes, in_lines, piece if apart else 0
    )
    if copy is not None:
        stream_output(sch, copy, writing, streamed, nest.output_dtype)
    elif in_lines:
        write_in_lines(sch, sch.get_loops(sch.get_sblock(last))[-1], length)
    elif streamed:
        sch.annotate(sch.get_loops(sch.get_sblock(last))[-1], STREAM_MARK, 1)
    if in_lines or behind:
        take_in_order(sch, row, chunk)
    if ahead and reading is not None:
        fetch_ahead(sch, row, reading, ahead)
    if behind and None not in (reading, writing) and reading is not writing:
        row_bytes = length * element_bytes(nest.output_dtype)
        write_behind(sch, row, reading, writing, row_bytes)


ROWS = ScheduleRule(
    name="rows",
    summary="rows of a reduction, a norm or a softmax, each finished in cache, in vectors of partial results",
    rewrite=schedule_rows,
    open_space=rows_space,
    algorithm=whole_rows,
)


def _arrange_passes(
    sch: s_tir.Schedule,
    names: Sequence[str],
    row: Any,
    lanes: int,
    dimensions: Mapping[str, int],
    across: int,
    written: int,
    in_lines: bool,
    piece: int,
) -> tuple[Any, Any]:
    """Order and vectorize the loops of each block inside the loop over rows.

    ``dimensions``: those of each block that count parts of a row. ``across``: how many of the last loops
    count neighbouring rows, which are vectors then. ``written``: elements in a vector of the last block;
    ``in_lines``: they are lines of memory. ``piece``: as in `arrange_parts`.

    Returns the last block's loop over vectors of a row, after that of the last block that reads an input: of
    those that compute exponentials, if there are such, as memory has nothing to do meanwhile.
    """
    around = sch.get_loops(sch.get_sblock(names[-1]))
    depth = len(around) - len(loops_inside(sch, sch.get_sblock(names[-1]), row))
    summed, reading, steps, computes = "", None, None, False
    for name, after in zip(names, [*names[1:], ""], strict=True):
        if name == summed:
            continue
        reads = _reads_input(sch, name)
        exponential = bool(EXPONENTIALS & called(block_of(sch, name).body))
        together = vectors_of_parts(sch, name, after, dimensions.get(after, 0), depth, lanes)
        width = lanes if after else written
        counted, cut = dimensions.get(name, 0), bool(after) or not in_lines
        steps = arrange(
            sch, name, depth, width, counted, across, max(1, together), cut, piece if reads else 0
        )
        if reads and steps is not None and (exponential or not computes):
            reading, computes = steps, exponential
        if together and steps is not None:
            reduce_as_computed(sch, after, steps)
            summed = after
    return reading, steps


def _flatten(sch: s_tir.Schedule, nest: RowNest, lanes: int) -> int:
    """Make one loop of the output's last ones if the last is no whole vectors; return how long the last is.

    They are inside of a row, and lie in memory like one: lines of 14 pixels are an image of 196. On 2 threads
    of a Xeon group_norm of 512 channels of 14x14 takes 0.85 of the time so, of 7x7 0.73.
    """
    around = max((position for position, _ in nest.rows), default=-1)
    flat = min(flat_axes(sch, nest.output), len(nest.extents) - 1 - around)
    if not nest.contiguous or nest.output in nest.reductions or flat < 2 or nest.extents[-1] % lanes == 0:
        return nest.extents[-1]
    fused = sch.fuse(*sch.get_loops(sch.get_sblock(nest.output))[-flat:])
    return int(sch.get(fused).extent)


def _streamed_lanes(sch: s_tir.Schedule, nest: RowNest, length: int, lanes: int) -> int:
    """Return how many elements to write past the caches at a time, 0 where the output is not written so.

    It must be computed element by element along its rows, or lines of them, of so many elements, which are
    whole vectors, or many.
    """
    axes = sum(extent > 1 for extent in nest.extents)
    along = nest.contiguous and nest.output not in nest.reductions and len(nest.rows) < axes
    if not along or not streams(nest.output_dtype) or not writes_in_order(sch, sch.get_sblock(nest.output)):
        return 0
    least = LEAST_BITS_IN_PLACE if nest.in_place else LEAST_BITS
    lines = LEAST_LINES_IN_PLACE if nest.in_place else LEAST_LINES
    width = row_lanes(lanes, length, nest.output_dtype, least, lines)
    return width if length > width > 1 else 0


def _reads_input(sch: s_tir.Schedule, name: str) -> bool:
    """Tell whether a block reads a parameter of the function."""
    parameters = sch.mod["main"].params
    reads = block_of(sch, name).reads
    return any(read.source.same_as(each) for read in reads for each in parameters)


def _cut(sch: s_tir.Schedule, name: str, parts: int) -> str:
    """Reduce so many parts of each row apart from each other; return the name of that block."""
    _, reduced = loops_by_kind(sch, sch.get_sblock(name), 0)
    along = sch.fuse(*reduced) if len(reduced) > 1 else reduced[0]
    part, _ = sch.split(along, [parts, None])
    cut = sch.rfactor(part, 0)
    (*kept, part), sums = loops_by_kind(sch, cut, 0)
    sch.reorder(part, *kept, *sums)
    return str(sch.get(cut).name_hint)
