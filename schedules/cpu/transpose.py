"""Transposition: what is contiguous in the input is not in the output. Squares are transposed in registers.

Before::

    for i, j:  y[i, j] = x[j, i]

After::

    for blocks of j (parallel), blocks of i:
        for squares in a block:
            16 vectors of x, swapped in 4 rounds, are 16 vectors of y

Other axes stay around it. A block's rows lie on few pages in both tensors, and lines are read and written
whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import tvm
from tvm import s_tir
from tvm.ir import TensorLoad
from tvm.tirx import BufferStore, IterVar, Var

from ...machine.facts import facts
from ..analysis import block_names, output_blocks, static_extents
from ..rule import ScheduleRule
from ..space import Constraint, Knob, KnobSpace
from ..streaming import exceeds_caches, stream_intrinsic, streams
from ..transforms import LEAST_PARALLEL_WORK, next_to_last, relayout_read, vectorize_last
from ..transposition import transposition_intrinsic

# Squares in a block, in each direction: 64 rows of two tensors are pages enough for a first-level TLB.
_SQUARES = 4

_LEAST_LANES = 4
_BITS_PAST_CACHES = 256


@dataclass(frozen=True)
class Transposition:
    """A copy whose input is contiguous along another axis than its output.

    Parameters
    ----------
    block : str
        The block that copies.
    row : int
        The loop along which the input is contiguous; the output is along the last.
    column : int
        The dimension of the input that the last loop indexes.
    extents : tuple of int
        Iterations of the loops.
    dtype : str
        The element type.
    """

    block: str
    row: int
    column: int
    extents: tuple[int, ...]
    dtype: str


@lru_cache(maxsize=16)  # each rule asks, and then its rewriting
def find_transposition(func: Any) -> Transposition | None:
    """Find the one copy that a PrimFunc consists of, if its axes change places and the last is another."""
    sch = s_tir.Schedule(func)
    names = block_names(sch)
    if len(names) != 1 or set(names) != output_blocks(sch):
        return None
    block, extents = sch.get(sch.get_sblock(names[0])), static_extents(sch, names[0])
    variables = [v.var for v in block.iter_vars if v.iter_type == IterVar.DataPar]
    body = block.body
    if extents is None or len(extents) != len(variables) or not isinstance(body, BufferStore):
        return None
    load = body.value
    if not isinstance(load, TensorLoad) or list(body.indices) != variables:
        return None
    if not all(isinstance(i, Var) for i in load.indices) or len(set(load.indices)) != len(variables):
        return None
    row = variables.index(load.indices[-1])
    if row == len(variables) - 1:
        return None
    column = list(load.indices).index(variables[-1])
    return Transposition(names[0], row, column, extents, str(body.buffer.dtype))


def schedule_transpose(sch: s_tir.Schedule, *, lanes: int, squares: int, parallel: int, stream: int) -> None:
    """Rewrite a transposition in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of an unscheduled PrimFunc named ``main``.
    lanes : int
        Rows and columns of a square.
    squares : int
        Squares in a block, in each direction, where as many divide the axes.
    parallel : int
        1 spreads the blocks over the threads; 0 stays on one.
    stream : int
        1 writes the output past the caches.
    """
    nest = find_transposition(sch.mod["main"])
    assert nest is not None, "the rule's space says that there is one"
    block, rank = sch.get_sblock(nest.block), len(nest.extents)
    streamed = bool(stream) and streams(nest.dtype)
    # TVM matches a square in the last two dimensions only: elsewhere it goes through a buffer of its own.
    before = after = None
    if nest.column != rank - 2:
        before = sch.cache_read(block, 0, "global")
        relayout_read(sch, block, 0, before, next_to_last(rank, nest.column))
    if nest.row != rank - 2:
        after = sch.cache_write(block, 0, "global")
        sch.transform_layout(block, ("write", 0), next_to_last(rank, nest.row))
    loops = list(sch.get_loops(block))
    column, row = loops.pop(), loops.pop(nest.row)
    rows, row_squares, row = sch.split(
        row, [None, whole_squares(nest.extents[nest.row], lanes, squares), lanes]
    )
    columns, column_squares, column = sch.split(
        column, [None, whole_squares(nest.extents[-1], lanes, squares), lanes]
    )
    # What is written past the caches is written in long stretches, what is read from them read so.
    squared = [row_squares, column_squares] if streamed else [column_squares, row_squares]
    sch.reorder(*loops, columns, rows, *squared, row, column)
    blocks = sch.fuse(*loops, columns, rows)
    if parallel and prod(nest.extents) >= LEAST_PARALLEL_WORK:
        sch.parallel(blocks)
    if before is not None:
        sch.compute_at(before, squared[-1])
        vectorize_last(sch, before, lanes)
    if after is not None:
        sch.reverse_compute_at(after, squared[-1])
        if streamed:
            sch.tensorize(sch.get_loops(after)[-1], stream_intrinsic(lanes, nest.dtype))
        else:
            vectorize_last(sch, after, lanes)
    sch.tensorize(row, transposition_intrinsic(lanes, nest.dtype, streamed and after is None))


def whole_squares(extent: int, lanes: int, wanted: int) -> int:
    """Return the most squares, up to a number, that divide an axis; the fewest above it before one alone.

    A square a row is half a line: 16 x 56 x 56 x 256 with the channels moved first takes a third of the time
    with 7 squares in a row.
    """
    fewer, more = range(wanted, 1, -1), range(wanted + 1, 2 * wanted + 1 if wanted > 1 else 0)
    return next((s for s in (*fewer, *more) if extent % (s * lanes) == 0), 1)


def transpose_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the squares to choose from, or None where it is no transposition or no square divides it."""
    nest = find_transposition(func)
    if nest is None:
        return None
    bits = int(tvm.DataType(nest.dtype).bits)
    widest = facts(target).vector_bits // max(bits, 32)
    both = (nest.extents[nest.row], nest.extents[-1])
    widths = [w for w in (widest, widest // 2, widest // 4) if w >= _LEAST_LANES]
    fitting = tuple(sorted(w for w in widths if all(extent % w == 0 for extent in both)))
    if not fitting or bits not in (32, 64):
        return None
    stream = exceeds_caches(func, target)
    return KnobSpace(
        knobs=(
            Knob("lanes", fitting, "rows and columns of a square in registers"),
            Knob("squares", (1, 2, 4, 8), "squares in a block, in each direction"),
            Knob("parallel", (0, 1), "1: blocks are spread over the threads"),
            Knob("stream", (0, 1), "1: the output is written past the caches"),
        ),
        constraints=(
            Constraint(f"lanes is one of {fitting}: it divides both axes", lambda k: k["lanes"] in fitting),
            Constraint("squares is at least 1", lambda k: k["squares"] >= 1),
        ),
        default={
            "lanes": _lanes(fitting, bits, stream),
            "squares": _SQUARES,
            "parallel": 1,
            "stream": stream,
        },
    )


def _lanes(fitting: Sequence[int], bits: int, stream: int) -> int:
    """Choose the widest squares; past the caches, where blocks of fewer rows are better, of 256 bits.

    On 2 threads of a Zen 5 transposing 4096 x 4096, 4096 x 4112 and 16 of 1024 x 1024 float32 reaches 0.72 to
    0.92 of the rate of a ReLU in squares of 8, 0.43 to 0.7 in squares of 16, and of 4 0.5.
    """
    most = max(_BITS_PAST_CACHES // bits, fitting[0]) if stream else fitting[-1]
    return max(w for w in fitting if w <= most)


TRANSPOSE = ScheduleRule(
    name="transpose",
    summary="squares transposed in registers, in blocks that stay on few pages",
    rewrite=schedule_transpose,
    open_space=transpose_space,
)
