"""Rows of a few elements: as many at a time as a vector has lanes, each vector a column of these rows.

Before::

    for i:  row_max[i] = max of x[i, 0..2];  ...;  y[i, 0..2] = e[i, 0..2] / row_sum[i]

After, in the form of ``forms.short_rows``::

    for blocks of 16 rows (parallel):
        3 vectors of x become 3 columns; maximum, exponentials, sum, quotients are whole vectors
        3 columns become 3 vectors of y

A row by itself, as `rows` takes it, leaves most of a vector empty and sums over its lanes.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import s_tir

from ...machine.facts import facts
from ...machine.streaming_store import streams
from ...machine.vector_math import EXPONENTIALS
from ..expressions import called
from ..forms.short_rows import BLOCK, find_short_rows
from ..passes.streaming import exceeds_caches
from ..rule import ScheduleRule
from ..space import Constraint, Knob, KnobSpace
from ..transforms import spread
from .even_parts import LEAST_LANES

# From so many vectors on, rows are vectors themselves, of which exponentials want whole ones. Time over that
# of `rows`, on 2 threads of a Xeon with AVX-512: softmax of 2 to 5 elements 0.11 to 0.14, 10 0.38, 19
# 0.58, 21 0.72, 24 0.85 to 0.95, 32 1.8; layer_norm of 5 0.04, 8 to 15 0.07 to 0.56, 20 1.4; rms_norm of 5 to
# 15 0.45 to 0.9, 8 and 10 1.03 to 1.08, 17 1.7; sums of 2 and 3 1.0, of 7 0.6, 15 0.75. Bytes have
# more lanes than there are registers for columns: maxima of 24 of them take 0.43, of 40 1.23.
_LENGTH, _LENGTH_OF_EXPONENTIALS = 1, 1.5


def schedule_short_rows(sch: s_tir.Schedule, *, lanes: int, parallel: int, stream: int) -> None:
    """Rewrite a function that works row by row, in the form of columns, in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in that form.
    lanes : int
        Rows at a time: names the form.
    parallel : int
        1 spreads the rows over the threads; 0 stays on one.
    stream : int
        1 writes the output past the caches: names the form.
    """
    del lanes, stream
    func = sch.mod["main"]
    work = max(prod(int(extent) for extent in parameter.shape) for parameter in func.params)
    spread(sch, sch.get_loops(sch.get_sblock(BLOCK)), work, parallel)


def short_rows_space(func: Any, target: Any) -> KnobSpace | None:
    """Return how many rows to choose from; None where rows are longer, too few, or not each by itself."""
    found = find_short_rows(func)
    if found is None:
        return None
    machine = facts(target)
    widest = machine.lanes(found.dtype)
    few = _LENGTH_OF_EXPONENTIALS if EXPONENTIALS & called(func.body) else _LENGTH
    if found.rows < widest or widest < LEAST_LANES or found.length == widest:
        return None
    if not 1 < found.length < min(few * widest, machine.vector_registers + 1):
        return None
    widths = (widest // 2, widest)
    output = found.rows * found.columns(found.output)
    streamed = output % widest == 0 and streams(str(found.output.dtype))
    return KnobSpace(
        knobs=(
            Knob("lanes", widths, "rows at a time, one in each lane"),
            Knob("parallel", (0, 1), "1: rows are spread over the threads"),
            Knob("stream", (0, 1) if streamed else (0,), "1: the output is written past the caches"),
        ),
        constraints=(
            Constraint(f"lanes is one of {widths}", lambda k: k["lanes"] in widths),
            Constraint(
                f"stream is 0 unless {widest} divides the output's elements ({output})",
                lambda k: k["stream"] == 0 or (streamed and k["stream"] == 1),
            ),
        ),
        default={
            "lanes": widest,
            "parallel": 1,
            "stream": int(streamed and exceeds_caches(func, target)),
        },
    )


SHORT_ROWS = ScheduleRule(
    name="short_rows",
    summary="rows of a few elements, as many at a time as a vector has lanes, in columns",
    rewrite=schedule_short_rows,
    open_space=short_rows_space,
    algorithm=lambda knobs: f"short_rows_{knobs['lanes']}_{knobs['stream']}",
)
"""The schedule rule of short rows."""
