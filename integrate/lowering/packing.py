"""Packing: the layout changes of weights that schedules ask for are run once, at compile time."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.relax import transform

from .constants import FoldConstants


def pack_weights(mod: Any) -> Any:
    """Run the layout changes of constant weights that schedules ask for once, now.

    A schedule marks the block that packs a weight before its other loops with
    ``meta_schedule.layout_rewrite_preproc``; it becomes a function of its own, is run on the constant, and
    its result takes the constant's place.
    """
    return tvm.transform.Sequential(
        [transform.SplitLayoutRewritePreproc(), transform.DeadCodeElimination(), FoldConstants()]
    )(mod)
