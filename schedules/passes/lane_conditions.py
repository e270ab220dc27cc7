"""Conditions of lanes: which vectorized loops choose for each of their iterations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm_ffi import structural_walk

from ..expressions import is_choice


def may_need_masks(func: Any) -> bool:
    """Tell whether a function has vectorized loops with a condition or choice in them, to be masks."""
    found: list[Any] = []

    def look_into(loop: Any) -> None:
        vectorized = loop.kind == tirx.ForKind.VECTORIZED
        if vectorized and not found and (_chooses(loop) or adds_chosen(loop)):
            found.append(loop)

    if isinstance(func, tirx.PrimFunc):
        structural_walk(func.body, (tirx.For, look_into))
    return bool(found)


def _chooses(loop: Any) -> bool:
    """Tell whether a condition in a loop depends on its variable, or on what blocks in it bind to that."""
    lanes, conditions = [loop.loop_var], []

    def look_into(realize: Any) -> None:
        conditions.append(realize.predicate)
        bound = zip(realize.block.iter_vars, realize.iter_values, strict=True)
        lanes.extend([axis.var for axis, value in bound if depends(value, lanes)])

    structural_walk(
        loop.body,
        [
            (s_tir.SBlockRealize, look_into),
            (tirx.IfThenElse, lambda choice: conditions.append(choice.condition)),
            (tvm.ir.Call, lambda call: conditions.append(call.args[0]) if is_choice(call) else None),
        ],
        order="pre",
    )
    return any(depends(condition, lanes) for condition in conditions)


def _is_vector(loop: Any) -> bool:
    """Tell whether a loop is vectorized, of a number of lanes that is known."""
    vectorized = loop.kind == tirx.ForKind.VECTORIZED and isinstance(loop.extent, tirx.IntImm)
    return vectorized and int(loop.extent) > 1


def chooses_by_lane(loop: Any) -> bool:
    """Tell whether a loop is vectorized and has conditions of its lanes."""
    return _is_vector(loop) and _chooses(loop)


def adds_chosen(loop: Any) -> bool:
    """Tell whether a vectorized loop adds up elements that all its lanes read, or none, by a condition."""
    body = loop.body.then_case if isinstance(loop.body, tirx.IfThenElse) else loop.body
    if not _is_vector(loop) or not isinstance(body, tirx.BufferStore) or not adds_up(body):
        return False
    calls: list[Any] = []
    structural_walk(body.value, (tvm.ir.Call, calls.append))
    return any(is_choice(call) and depends(call.args[1], [loop.loop_var]) for call in calls)


def adds_up(store: Any) -> bool:
    """Tell whether a statement adds to what it stores."""
    total = store.value.a if isinstance(store.value, tirx.Add) else None
    return isinstance(total, TensorLoad) and total.source.same_as(store.buffer)


def depends(expression: Any, variables: Iterable[Any]) -> bool:
    """Tell whether an expression uses one of some variables."""
    used = tirx.analysis.undefined_vars(expression, [])
    return any(v.same_as(other) for v in used for other in variables)
