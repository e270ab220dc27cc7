"""Rows that begin anywhere are written past the caches from their first whole line of memory on.

Non-temporal stores want a vector at a multiple of its size, and a line that is written by them alone. Rows of
50257 elements begin at no such place::

    for v: for lane: out[row, v * 16 + lane] = f(v * 16 + lane)

Each becomes what lies before that place, whole vectors from there, and what is left::

    shift = -start_of_row % 16
    for j < shift: out[row, j] = f(j)
    for v, one less: for lane: out[row, shift + v * 16 + lane] = f(shift + v * 16 + lane)   # past the caches
    for j < 16 - shift: ... the end likewise ...

The two ends are masked vectors where the CPU has masks (`masked_vectors`).
"""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx
from tvm_ffi import structural_equal, structural_map

from ...machine.facts import line_elements
from ..restatement import in_order, replaced, statements
from .streaming import STREAM_MARK, first_of_consecutive

LEAST_VECTORS = 16
"""Rows of fewer vectors would be ends for the most part."""


def _aligned(steps: Any) -> Any:
    """Return a loop over the vectors of a row that begins anywhere as three parts; others as they are."""
    *others, vector = statements(steps.body)
    known = steps.kind == tirx.ForKind.SERIAL and isinstance(steps.extent, tirx.IntImm)
    if not known or not isinstance(vector, tirx.For) or STREAM_MARK not in vector.annotations:
        return steps
    store, step, lane, lanes = vector.body, steps.loop_var, vector.loop_var, int(vector.extent)
    if not isinstance(store, tirx.BufferStore) or int(steps.extent) < LEAST_VECTORS:
        return steps
    whole_lines = lanes % line_elements(str(store.buffer.dtype)) == 0
    start = _start_of_row(store, step, lane, lanes) if whole_lines else None
    if start is None:
        return steps
    # As a rounded number, which the analyzer sees to be a multiple.
    shift = tirx.floordiv(start + (lanes - 1), lanes) * lanes - start
    whole = int(steps.extent) - 1

    def end(first: Any, count: Any) -> Any:
        """Return the loop over so many elements from one on, a part of a vector."""
        j = tirx.Var("j", lane.ty.dtype)
        written = replaced(store, {step: tirx.IntImm(str(step.ty.dtype), 0), lane: first + j})
        return tirx.For(j, vector.min, vector.extent, vector.kind, tirx.IfThenElse(j < count, written, None))

    moved = replaced(store, {lane: lane + shift})
    inner = tirx.For(lane, vector.min, vector.extent, vector.kind, moved, annotations=vector.annotations)
    main = tirx.For(
        step,
        steps.min,
        tirx.IntImm(str(step.ty.dtype), whole),
        steps.kind,
        in_order([*others, inner]),
        annotations=steps.annotations,
    )
    return tirx.SeqStmt([end(0, shift), main, end(whole * lanes + shift, lanes - shift)])


def _start_of_row(store: Any, step: Any, lane: Any, lanes: int) -> Any | None:
    """Return how many elements lie before those that a loop over vectors stores one after the other.

    None where they do not follow each other, or begin at a multiple of the lanes, or what is stored does not
    depend on their number alone.
    """
    analyzer = sym.Analyzer()
    start = first_of_consecutive(store, step * lanes + lane, [step, lane], analyzer)
    if start is None or analyzer.can_prove(start % lanes == 0):
        return None
    # TVM may have simplified: (step * 16 + lane) // 16 is step as long as there are 16 lanes.
    same = analyzer.simplify(replaced(store.value, {step: step + 1, lane: lane - lanes}))
    return start if structural_equal(same, analyzer.simplify(store.value)) else None


def _align(func: Any, _mod: Any, _context: Any) -> Any:
    return func.with_body(structural_map(func.body, [(tirx.For, _aligned)]))


align_rows = tirx.transform.prim_func_pass(_align, opt_level=0)
"""The pass that has rows of functions of plain loops begin with a whole line of memory, where marked."""
