"""From an imported model to functions worth scheduling: one pipeline, phase by phase."""

from __future__ import annotations

from typing import Any

from tvm.ir.transform import Sequential
from tvm.relax import transform

from . import convolutions, resizing, softmax
from .attention import FuseAttention
from .clips import RaiseClips
from .constants import FoldConstants
from .dropout import RemoveDropout
from .dump import NO_DUMP, Dump
from .layouts import ChannelsLast, SettleLayouts
from .norms import RaiseNorms
from .scales import FoldScales
from .siblings import CombineSiblings
from .sums import SumInFloat32
from .weight_marks import MarkWeights

_LEGALIZATIONS = convolutions.LEGALIZATIONS | resizing.LEGALIZATIONS | softmax.LEGALIZATIONS


def prepare(mod: Any, target: Any, dump: Dump = NO_DUMP) -> Any:
    """Turn a Relax module into calls of fused, unscheduled PrimFuncs on constant weights.

    Parameters
    ----------
    mod : IRModule
        A module whose ``main`` has static shapes and its weights as constants.
    target : tvm.target.Target
        What it will be compiled for.
    dump : Dump
        Takes the module after each phase.

    Returns
    -------
    IRModule
        Each PrimFunc is one operator with the element-wise operators around it fused in.
    """
    dump("imported", mod)
    with target:
        for phase in PHASES:
            mod = phase(mod)
            dump(str(phase.info.name), mod)
    return mod


PHASES = (
    # What multiplies or shifts a layer's output, batch normalization too, goes into its weight and bias.
    Sequential(
        [
            RemoveDropout(),
            FoldConstants(),
            RaiseClips(),
            # Some exporters subtract a row's mean twice.
            transform.EliminateCommonSubexpr(),
            RaiseNorms(),
            FoldScales(),
            transform.CanonicalizeBindings(),
            FoldConstants(),
        ],
        name="weights",
    ),
    # Channels last inside, with layout changes at the edges only; those of weights are folded.
    Sequential(
        [
            ChannelsLast(),
            SettleLayouts(),
            transform.EliminateCommonSubexpr(),
            FoldConstants(),
        ],
        name="layouts",
    ),
    # Products of one input become one product, and attention one function.
    Sequential(
        [
            CombineSiblings(),
            FuseAttention(),
            SettleLayouts(),
            # Fusion stops at a variable that is another name of one.
            transform.CanonicalizeBindings(),
        ],
        name="combine",
    ),
    # Everything element-wise goes into its producer.
    Sequential(
        [
            SumInFloat32(),
            transform.LegalizeOps(_LEGALIZATIONS),
            transform.AnnotateTIROpPattern(),
            transform.FuseOps(),
            transform.FuseTIR(),
        ],
        name="fuse",
    ),
    # What is left of calls; a reshape moves nothing: it becomes a view before anything could schedule it.
    Sequential(
        [
            transform.RewriteDataflowReshape(),
            transform.DeadCodeElimination(),
            MarkWeights(),
        ],
        name="functions",
    ),
)
"""What happens to a model before its functions get their schedules, in order; each has a name for `Dump`."""
