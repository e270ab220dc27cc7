"""Sums that a tile holds in registers over a part of a long sum, and stores in between.

Before::

    for steps:
        for rows, vectors (unrolled), lanes:
            sums[row, vector, lane] += data[row, step] * weight[step, vector, lane]

After, with a vector of its own for each row and vector::

    held_0[lane], held_1[lane], ... = sums[0, 0, lane], sums[0, 1, lane], ...
    for steps:
        held_0[lane] += data[0, step] * weight[step, 0, lane];  held_1[lane] += ...
    sums[0, 0, lane], sums[0, 1, lane], ... = held_0[lane], held_1[lane], ...

LLVM would load and store all sums in each step, as it cannot tell that they are not the data. TVM's
primitives do not copy both ways, so a schedule marks the loop over the steps, and this is done when blocks
have become plain loops (`loop_partition`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm.tirx import ForKind
from tvm_ffi import structural_equal, structural_map

from ..restatement import in_order, replaced, without_mark

HOLD_MARK = "tunesmith.held_sums"
"""Annotation of a loop over steps of a sum: what it adds to is in registers meanwhile."""


def hold_sums(sch: s_tir.Schedule, steps: Any) -> None:
    """Mark a loop over steps of a sum, in which there are unrolled loops, and one over lanes."""
    sch.annotate(steps, HOLD_MARK, 1)


def _held(loop: Any) -> Any:
    """Return a marked loop between the loads and the stores of its sums; another as it is."""
    if HOLD_MARK not in loop.annotations:
        return loop
    sums = _unrolled(loop.body, {})
    if sums is None:
        return without_mark(loop, HOLD_MARK)
    parts: list[list[Any]] = [[], [], []]
    for n, (lane, store) in enumerate(sums):
        held = tirx.decl_buffer((1 if lane is None else lane.extent,), str(store.buffer.dtype), f"held_{n}")
        at = tirx.const(0, "int64") if lane is None else lane.loop_var
        stored = store.buffer[tuple(store.indices)]
        added = _with_load(store.value, stored, held[at])
        before = tirx.BufferStore(held, stored, [at])
        after = tirx.BufferStore(store.buffer, held[at], store.indices)
        parts[0] += [tirx.AllocBuffer(held), _in_lanes(lane, before)]
        parts[1].append(_in_lanes(lane, tirx.BufferStore(held, added, [at])))
        parts[2].append(_in_lanes(lane, after))
    before, steps, after = parts
    body = in_order(steps)
    return tirx.SeqStmt([*before, without_mark(loop, HOLD_MARK, body=body), *after])


def _unrolled(
    statement: Any, values: Mapping[Any, Any], lane: Any | None = None
) -> list[tuple[Any, Any]] | None:
    """List the sums of a step: the loop over lanes, or None, and the statement that adds to it.

    None where a condition decides between them.
    """
    if isinstance(statement, tirx.For) and statement.kind == ForKind.VECTORIZED:
        return _unrolled(statement.body, values, statement)
    if isinstance(statement, tirx.For):
        var = statement.loop_var
        numbers = range(int(statement.min), int(statement.min) + int(statement.extent))
        each = [{**values, var: tirx.const(i, var.ty.dtype)} for i in numbers]
        parts = [_unrolled(statement.body, known, lane) for known in each]
        return None if None in parts else [found for part in parts for found in part or ()]
    if isinstance(statement, tirx.IfThenElse):
        condition = Analyzer().simplify(replaced(statement.condition, values))
        if not isinstance(condition, tirx.IntImm) or statement.else_case is not None:
            return None
        return _unrolled(statement.then_case, values, lane) if condition else []
    return [(lane, replaced(statement, values))]


def _with_load(value: Any, old: Any, new: Any) -> Any:
    """Return a value that loads one element in another's place."""
    return structural_map(value, (TensorLoad, lambda load: new if structural_equal(load, old) else load))


def _in_lanes(lane: Any, statement: Any) -> Any:
    """Return a statement for each lane of a loop, by a variable of its own."""
    if lane is None:
        return statement
    var = tirx.Var(str(lane.loop_var.name), lane.loop_var.ty.dtype)
    return tirx.For(var, lane.min, lane.extent, lane.kind, replaced(statement, {lane.loop_var: var}))


def _hold(func: Any, _mod: Any, _context: Any) -> Any:
    return func.with_body(structural_map(func.body, [(tirx.For, _held)]))


hold_marked_sums = tirx.transform.prim_func_pass(_hold, opt_level=0)
"""The pass that holds the sums of marked loops of functions of plain loops."""
