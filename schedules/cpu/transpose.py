"""Transposition: what is contiguous in the input is not in the output. Squares are transposed in registers.

Before::

    for i, j:  y[i, j] = x[j, i]

After::

    for parts of i, blocks of j (parallel):
        for squares along i, squares along j:
            16 vectors of x, swapped in 4 rounds, are 16 vectors of y

Past the caches squares are written in whole lines, if they divide the output's rows; else by way of a buffer
(`forms.buffered_squares`).

Other axes stay around it. Lines are read and written whole. A thread's rows of the output are its own where
there are enough: if two threads write parts of the same rows, each fetches lines that the other writes.
Without that 128 x 768 takes 0.56 of the time on 2 threads of a Zen 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import tvm
from tvm import s_tir

from ...machine.facts import facts
from ...machine.streaming_store import streams
from ..forms.buffered_squares import PARTS, can_restate
from ..forms.squares import SQUARES, Transposition, find_transposition
from ..passes.row_prefetch import fetch_ahead
from ..passes.streaming import exceeds_caches
from ..rule import ScheduleRule
from ..space import Constraint, Knob, Knobs, KnobSpace
from ..transforms import LEAST_PARALLEL_WORK, spread

# Squares in a block along the output's rows: several, of which lines become whole. Past the caches one is
# enough, if its vectors are lines; two, where they divide the rows, take 0.77 to 1.0 of its time on 2 threads
# of a Zen 5: 4096 x 4096 0.83, 1024 x 16384 0.81, 16 x 56 x 56 x 256 channels first 0.98, and last 0.77,
# float64 0.77 to 0.9; of float16, in squares of 32, 1.4; four 0.72 to 1.45.
SQUARES_OF_BLOCK, _PAIRED_BITS = 4, 32
_LINE_BITS = 512

# Squares along the input's rows. Past the caches it is read in long stretches, or, where it is fetched ahead,
# block after block along the same rows. Of 8 squares the same squares of the next block are far enough: on 2
# threads of a Zen 4, over stretches that nothing fetches, 4096 x 4096 takes 0.88, 3008 x 6016 0.86, 16384 x
# 1024 0.77, 1024 x 16384 0.82, 16 x 56 x 56 x 256 channels first 0.78 and last 0.96, 8 x 224 x 224 x 64 0.49,
# float64 0.74 to 0.97, AVX2's squares 0.64 to 0.92, by way of a buffer 0.74 to 0.96; float16 0.9 to 1.4.
STRETCH, _STRETCH_PAST_CACHES, _LEAST_BITS_AHEAD = 8, 64, 32

# The rows of a square are in registers with what they become: AVX2 has 16, AVX-512 and aarch64 have 32. Of
# bytes 16 are a quarter of a line only.
_BYTE = 8
_LANES = (4, 8, 16, 32)
_MOST_LANES, _MOST_LANES_OF_BYTES = 16, 32

# A buffer has more, and is read again while L2 still holds it.
_SQUARES, _MORE_SQUARES = (1, 2, 4, 8), (16, 32, 64, 128, 256)
_SHARE_OF_L2 = 8

# Narrower vectors written past the caches cost more than lines that are read before they are written.
_LEAST_BITS_PAST_CACHES = 256

# A core moves a square faster than elements: on 2 threads of a Zen 4 192 x 192 takes 1.1 (float32) and 1.5
# (int8) times as long as on one, 256 x 256 0.96 and 1.06, 384 x 384 0.66 and 0.98.
_LEAST_PARALLEL_WORK = 2 * LEAST_PARALLEL_WORK


def schedule_transpose(
    sch: s_tir.Schedule,
    *,
    lanes: int,
    squares: int,
    stretch: int,
    parallel: int,
    stream: int,
    ahead: int = 0,
    buffered: int = 0,
) -> None:
    """Rewrite a transposition, in the form of squares, in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` of squares, buffered or not.
    lanes : int
        Rows and columns of a square.
    squares : int
        Squares in a block along the output's rows; as many as divide them, if there are such.
    stretch : int
        The most squares in a block along the input's rows.
    parallel : int
        1 spreads the blocks over the threads; 0 stays on one.
    stream : int
        1 writes the output past the caches.
    ahead : int
        1: a block also asks for what the next one reads, see `row_prefetch`; buffered, its form does.
    buffered : int
        1: the function is in the form that `forms.buffered_squares` gives it, and blocks are its buffers;
        0: in that of `forms.squares`.
    """
    if buffered:
        work = prod(int(extent) for extent in sch.mod["main"].params[-1].shape)
        spread(sch, sch.get_loops(sch.get_sblock(PARTS)), work, parallel)
        return
    share_squares(
        sch, SQUARES, lanes, squares=squares, stretch=stretch, parallel=bool(parallel), ahead=bool(ahead)
    )


def share_squares(
    sch: s_tir.Schedule,
    name: str,
    lanes: int,
    *,
    squares: int,
    stretch: int,
    parallel: bool = True,
    by_columns: bool = False,
    ahead: bool = False,
) -> None:
    """Cut a block of squares into blocks that stay on few pages, and spread these over the threads.

    ``by_columns``: threads own columns of the output, else rows. ``ahead``: what the next block reads, the
    same rows of the input further on, is fetched.
    """
    *others, rows, columns = loops = sch.get_loops(sch.get_sblock(name))
    extents = [int(sch.get(loop).extent) for loop in loops]
    # As many parts as a power of two: threads that write parts of the same rows fetch each other's lines.
    count = 1 << (ceil(extents[-2] / stretch) - 1).bit_length()
    row_parts, rows = sch.split(rows, [None, ceil(extents[-2] / count)])
    column_blocks, columns = sch.split(columns, [None, squares_in_block(extents[-1], squares)])
    parts = (column_blocks, row_parts) if by_columns or ahead else (row_parts, column_blocks)
    sch.reorder(*others, *parts, rows, columns)
    blocks = sch.fuse(*others, *parts)
    if ahead:
        fetch_ahead(sch, blocks, columns, 1)
    if parallel and prod(extents) * lanes**2 >= _LEAST_PARALLEL_WORK:
        sch.parallel(blocks)


def squares_in_block(count: int, wanted: int) -> int:
    """Return the most squares, up to a number, that divide an axis; the fewest above it; else that number.

    A square a row is half a line: 16 x 56 x 56 x 256 with the channels moved first takes a third of the time
    with 7 squares in a row.
    """
    fewer, more = range(wanted, 1, -1), range(wanted + 1, 2 * wanted + 1 if wanted > 1 else 0)
    return next((s for s in (*fewer, *more) if count % s == 0), min(wanted, count))


def transpose_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the squares to choose from, or None where it is no transposition or no square fits into it."""
    nest = find_transposition(func)
    if nest is None:
        return None
    bits, (column, row) = int(tvm.DataType(nest.dtype).bits), nest.sides
    widest = facts(target).vector_bits // bits
    fitting = tuple(lanes for lanes in _LANES if lanes <= min(column, row, widest))
    if not fitting:
        return None
    streamed = [lanes for lanes in fitting if streams(nest.dtype) and column % lanes == 0]
    buffers = can_restate(nest)
    default, alternative = _defaults(func, target, nest, fitting, streamed, buffers)
    return KnobSpace(
        knobs=(
            Knob("lanes", fitting, "rows and columns of a square in registers"),
            Knob("squares", _SQUARES + _MORE_SQUARES * buffers, "squares in a block along the output's rows"),
            Knob("stretch", (4, 8, 16, 32, 64), "the most squares in a block along the input's rows"),
            Knob("parallel", (0, 1), "1: blocks are spread over the threads"),
            Knob("stream", (0, 1), "1: the output is written past the caches"),
            Knob("ahead", (0, 1), "1: a block also fetches what the next one reads"),
            Knob("buffered", (0, 1) if buffers else (0,), "1: squares are transposed into a buffer first"),
        ),
        constraints=(
            Constraint(f"lanes is one of {fitting}", lambda k: k["lanes"] in fitting),
            Constraint("squares and stretch are at least 1", lambda k: min(k["squares"], k["stretch"]) >= 1),
            Constraint(
                f"stream is 1 only with buffered=1, or lanes of {streamed}, which divide the output's rows",
                lambda k: k["stream"] == 0 or k["buffered"] == 1 or k["lanes"] in streamed,
            ),
            Constraint(
                "buffered is 1 only with stream=1, rows of many lines and 32 bits or more",
                lambda k: k["buffered"] == 0 or (buffers and k["stream"] == 1),
            ),
        ),
        default=default,
        alternative=alternative,
    )


def _defaults(
    func: Any,
    target: Any,
    nest: Transposition,
    fitting: Sequence[int],
    streamed: Sequence[int],
    buffers: bool,
) -> tuple[Knobs, Knobs | None]:
    """Choose the widest squares that registers hold; past the caches the widest of all.

    Returns the default, and where that is buffered, what is the best without.

    On 2 threads of a Zen 4 squares of 16 transpose 4096 x 4112 float32 in 0.50 of the time of squares of 4,
    and squares of 32 transpose 4096 x 8192 float16 in 0.54 of that of squares of 8. On 2 threads of a Xeon
    buffers transpose 4097 x 4001 in 0.28 of the time of squares that are not written past the caches, 1024 x
    16385 in 0.18, 3001 x 6001 in 0.60, 16 images of 255 x 55 x 57 in 0.65.
    """
    bits, past = int(tvm.DataType(nest.dtype).bits), exceeds_caches(func, target)
    stretch = _STRETCH_PAST_CACHES if past else STRETCH
    knobs = {"squares": SQUARES_OF_BLOCK, "stretch": stretch, "parallel": 1, "ahead": 0, "buffered": 0}
    widest = max(streamed, default=0)
    if past and widest * bits >= _LEAST_BITS_PAST_CACHES:
        in_pairs = bits >= _PAIRED_BITS and nest.sides[0] // widest % 2 == 0
        squares = (2 if in_pairs else 1) if widest * bits >= _LINE_BITS else SQUARES_OF_BLOCK
        fetched = {"stretch": STRETCH, "ahead": 1} if bits >= _LEAST_BITS_AHEAD else {}
        return knobs | fetched | {"lanes": widest, "squares": squares, "stream": 1}, None
    most = _MOST_LANES_OF_BYTES if bits == _BYTE else _MOST_LANES
    ordinary = knobs | {"lanes": max(lanes for lanes in fitting if lanes <= most), "stream": 0}
    if not past or not buffers:
        return ordinary, None
    row = SQUARES_OF_BLOCK * ordinary["lanes"] ** 2 * bits // _BYTE
    room = facts(target).l2_bytes // _SHARE_OF_L2
    squares = max(squares for squares in _SQUARES + _MORE_SQUARES if squares * row <= max(room, row))
    buffer = {"squares": squares, "stretch": SQUARES_OF_BLOCK, "stream": 1, "ahead": 1, "buffered": 1}
    return ordinary | buffer, ordinary


def _form(knobs: Knobs) -> str:
    """Name the form that a point wants."""
    if knobs["buffered"]:
        sizes = (knobs[name] for name in ("lanes", "squares", "stretch", "ahead"))
        return "_".join(["buffered_squares", *map(str, sizes)])
    return f"squares_{knobs['lanes']}_{knobs['stream']}"


TRANSPOSE = ScheduleRule(
    name="transpose",
    summary="squares transposed in registers, in blocks that stay on few pages",
    rewrite=schedule_transpose,
    open_space=transpose_space,
    algorithm=_form,
)
