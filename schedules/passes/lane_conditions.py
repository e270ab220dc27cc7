"""Conditions of lanes: which vectorized loops choose for each of their iterations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm_ffi import structural_walk

from ..expressions import is_choice


def may_need_masks(func: Any) -> bool:
    """Tell whether a function has vectorized loops with a condition or choice of their lanes in them."""
    found: list[Any] = []

    def look_into(loop: Any) -> None:
        if loop.kind == tirx.ForKind.VECTORIZED and not found and _chooses(loop):
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


def chooses_by_lane(loop: Any) -> bool:
    """Tell whether a loop is vectorized and has conditions of its lanes."""
    vectorized = loop.kind == tirx.ForKind.VECTORIZED and isinstance(loop.extent, tirx.IntImm)
    return vectorized and int(loop.extent) > 1 and _chooses(loop)


def depends(expression: Any, variables: Iterable[Any]) -> bool:
    """Tell whether an expression uses one of some variables."""
    used = tirx.analysis.undefined_vars(expression, [])
    return any(v.same_as(other) for v in used for other in variables)
