"""The knobs of the schedule for everything else, their candidates and default."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import s_tir

from ...machine.element import element_bits, element_bytes
from ...machine.facts import Facts, facts, line_elements
from ...machine.vector_math import CHAINS, EXPONENTIALS, POLYNOMIAL_CALLS
from ..analysis import (
    block_names,
    block_of,
    flat_axes,
    gathered_buffers,
    is_reduction,
    output_blocks,
    schedule_to_read,
    static_extents,
)
from ..expressions import called, index_variables, loads_of
from ..passes.row_chunks import CHUNKS, default_chunk
from ..passes.streaming import exceeds_caches, exceeds_near_caches
from ..space import Constraint, Knob, KnobSpace

# What computes exponentials keeps its stores busy.
_EXPONENTIALS = EXPONENTIALS | {"tirx.sigmoid"}
_ROWS = 4
# What is moved past an L3 that is far away is fetched ahead. On 2 threads of an Emerald Rapids, arrays of 64
# MiB that others have driven out, time over that without: gelu_tanh, bias_gelu 0.75, silu, exp, swiglu 0.8,
# batch_norm 0.83, scale_shift_clip, hard_swish 0.87, relu, a margin 0.9 to 0.95, concat 0.97, add 1.02; with
# 2048, 8192 and 16384 bytes as long. Of what the caches hold it would be 0.97 to 1.2.
_AHEAD = (0, 4096, 8192)
# What is left over after so many vectors is little.
_LONG = 8
# What is read or written at a time where little is computed.
_MOVED_BITS = 256


def general_space(func: Any, target: Any) -> KnobSpace:
    """Return vector widths and threading to choose from; every PrimFunc has this space."""
    machine, past = facts(target), exceeds_caches(func, target)
    widest = machine.lanes(_output_dtype(func))
    rows = _rows_together(func, machine) if past else 1
    # Lines that are written past the caches in halves, with others in between, would be written twice.
    lanes = _lanes(func, widest) if rows == 1 else line_elements(_output_dtype(func))
    stream, count = past or _streams_past_near_caches(func, target), _count_of_rows(func)
    chunk = default_chunk(count, machine.cores) if stream else 1
    widths = tuple(sorted({1, max(1, widest // 2), widest, 2 * widest, CHAINS * widest}))
    return KnobSpace(
        knobs=(
            Knob("lanes", widths, "elements in a vector; 1 leaves vectors to LLVM"),
            Knob("parallel", (0, 1), "1: loops with enough work run on all threads"),
            Knob("stream", (0, 1), "1: outputs are written past the caches"),
            Knob("rows", (1, 2, 4), "rows whose vectors are computed together, if it divides their number"),
            Knob("chunk", CHUNKS, "rows a thread takes one after the other, if two share a line of memory"),
            Knob("ahead", _AHEAD, "bytes of the output ahead of which inputs are fetched; 0: they are not"),
        ),
        constraints=(
            Constraint(
                "lanes, rows and chunk are at least 1, ahead 0",
                lambda k: min(k["lanes"], k["rows"], k["chunk"], k["ahead"] + 1) >= 1,
            ),
        ),
        default={
            "lanes": lanes,
            "parallel": 1,
            "stream": stream,
            "rows": rows,
            "chunk": chunk,
            "ahead": _AHEAD[1] if machine.has_far_l3 and past else 0,
        },
    )


def _count_of_rows(func: Any) -> int:
    """Return how many rows the output has; 1 where that is not known."""
    shape = getattr(func.params[-1], "shape", ())
    return prod(int(getattr(extent, "value", 1)) for extent in shape[:-1])


def _streams_past_near_caches(func: Any, target: Any) -> int:
    """Tell whether to write past an L3 that is far away what exceeds the caches before it.

    On 2 threads of a Xeon, 2 MiB of L2 and 480 of L3, relu, add and batch_norm of 5 to 10 MB take 0.73 to
    0.97 of the time so, concat of 67 MB 0.56, bias_gelu of 12 MB 0.80; relu of 3.2 MB would take 1.84, and
    what computes exponentials gains nothing before it exceeds more: silu of 26 MB 1.11, swiglu 1.03, sigmoid
    0.99.
    """
    return int(not _EXPONENTIALS & called(func.body) and exceeds_near_caches(func, target))


def _rows_together(func: Any, machine: Facts) -> int:
    """Choose how many rows past the caches to compute together: several, where what all read fills L1.

    On a Zen 4, on 2 threads, x scale + shift of 1024 x 16384 takes 0.75 of the time of row
    after row, of 4096 x 4096 0.78, of 8192 x 2048, a half of L1, 0.96, and of 16384 x 1024 1.05; batch_norm
    of 16 x 56 x 56 x 256 1.3, of 16 x 28 x 28 x 2048 0.95. What computes exponentials gains nothing.
    """
    if POLYNOMIAL_CALLS & called(func.body):
        return 1
    sch = schedule_to_read(func)
    names = block_names(sch)
    if any(is_reduction(sch, name) for name in names):
        return 1
    blocks = [block_of(sch, name) for name in names]
    again = sum(_bytes_of_every_row(block) for block in blocks if len(block.iter_vars) > 1)
    return _ROWS if again > machine.l1_bytes // 2 else 1


def _bytes_of_every_row(block: Any) -> int:
    """Return the size of what a block reads along its rows, and again for each of them."""
    row, column = block.iter_vars[-2:]
    along = {
        load.source: element_bytes(load.source.dtype)
        for load in loads_of(block.body)
        if index_variables(load.indices) & {row.var, column.var} == {column.var}
    }
    return sum(along.values()) * int(getattr(column.dom.extent, "value", 0))


def _lanes(func: Any, widest: int) -> int:
    """Choose how many elements to compute at a time.

    Four vectors where exp and its like are called: their polynomials are chains that overlap (sigmoid,
    silu and the tanh form of gelu of 512 x 768 in 0.78 to 0.83 of the time, on a Zen 3). 256 bits where
    elements are but read and written (relu of 3136 x 256 in 0.88, batch norm of 56 x 56 x 256 in 0.78, on a
    Zen 5), unless it is rows from here and there.
    """
    sch, bits = schedule_to_read(func), element_bits(_output_dtype(func))
    names = block_names(sch)
    if gathered_buffers(func.body) or any(is_reduction(sch, name) for name in names):
        return widest
    if POLYNOMIAL_CALLS & called(func.body):
        # Narrower types are computed in float32: they are several vectors of it already.
        widths = (together * widest for together in (CHAINS, 2) if bits >= 32)
        outputs = output_blocks(sch)
        return next((w for w in widths if all(fills_vectors(sch, name, w) for name in outputs)), widest)
    return max(1, min(widest, _MOVED_BITS // bits))


def fills_vectors(sch: s_tir.Schedule, name: str, lanes: int) -> bool:
    """Tell whether vectors of so many elements fill a block's rows, or what lies in memory like one row.

    Of a long one a part of a vector may be left over.
    """
    extents = static_extents(sch, name)
    if not extents:
        return False
    flat = flat_axes(sch, name)
    together = prod(extents[-flat:])
    return any(n % lanes == 0 for n in (extents[-1], together)) or (flat > 1 and together >= _LONG * lanes)


def _output_dtype(func: Any) -> str:
    return str(func.params[-1].ty.dtype) if hasattr(func.params[-1].ty, "dtype") else "float32"
