"""From an imported model to functions worth scheduling: one pipeline, phase by phase."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.relax import transform

from .constants import FoldConstants
from .dropout import RemoveDropout
from .weight_marks import MarkWeights

# Channels last: the innermost loop of a convolution runs over channels that lie side by side in memory.
LAYOUTS = {"relax.nn.conv2d": ["NHWC", "HWIO"]}


def prepare(mod: Any, target: Any) -> Any:
    """Turn a Relax module into calls of fused, unscheduled PrimFuncs on constant weights.

    Parameters
    ----------
    mod : IRModule
        A module whose ``main`` has static shapes and its weights as constants.
    target : tvm.target.Target
        What it will be compiled for.

    Returns
    -------
    IRModule
        Each PrimFunc is one operator with the element-wise operators around it fused in.
    """
    with target:
        return _PIPELINE(mod)


_PIPELINE = tvm.transform.Sequential(
    [
        RemoveDropout(),
        # Weights: batch normalization disappears into the convolution before it.
        FoldConstants(),
        transform.FoldBatchnormToConv2D(),
        transform.DecomposeOpsForInference(),
        transform.CanonicalizeBindings(),
        FoldConstants(),
        # Layouts: channels last inside, with layout changes at the edges only; those of weights are folded.
        transform.ConvertLayout(LAYOUTS),
        transform.EliminateCommonSubexpr(),
        FoldConstants(),
        # Functions: loop nests, with everything element-wise fused into its producer.
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FuseOps(),
        transform.FuseTIR(),
        # A reshape moves nothing: it becomes a view before anything could schedule it.
        transform.RewriteDataflowReshape(),
        transform.DeadCodeElimination(),
        MarkWeights(),
    ],
    name="prepare",
)
