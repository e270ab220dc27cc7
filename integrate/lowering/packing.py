"""Packing: the layout changes of weights that schedules ask for are run once, at compile time."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm.relax import transform

from .constants import FoldConstants
from .functions import prim_funcs

_PACKS = "meta_schedule.layout_rewrite_preproc"


def pack_weights(mod: Any) -> Any:
    """Run the layout changes of constant weights that schedules ask for once, now.

    A schedule marks the block that packs a weight before its other loops with
    ``meta_schedule.layout_rewrite_preproc``; it becomes a function of its own, is run on the constant, and
    its result takes the constant's place; calls of one function on one constant, such as the steps of a
    recurrent layer, share it.
    """
    others = {name: func for name, func in prim_funcs(mod) if not _packs(func)}
    split = transform.SplitLayoutRewritePreproc()(_with(mod, dict.fromkeys(others, _harmless())))
    shared = [transform.EliminateCommonSubexpr(), transform.DeadCodeElimination()]
    return tvm.transform.Sequential([*shared, FoldConstants()])(_with(split, others))


def _packs(func: Any) -> bool:
    found: list[Any] = []
    tvm_ffi.structural_walk(
        func.body,
        (tvm.s_tir.SBlock, lambda block: found.append(block) if _PACKS in block.annotations else None),
    )
    return bool(found)


def _harmless() -> Any:
    """Return a function to stand in for others: TVM's pass fails on some that have nothing to split off."""
    x = tvm.te.placeholder((1,), name="x")
    return tvm.te.create_prim_func([x, tvm.te.compute((1,), lambda i: x[i], name="y")])


def _with(mod: Any, functions: dict[str, Any]) -> Any:
    result = mod.clone()
    for name, func in functions.items():
        result.update_func(result.get_global_var(name), func)
    return result
