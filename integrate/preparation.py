"""From an imported model to functions worth scheduling: one pipeline, phase by phase."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax import dpl, transform

from ..kernels.operator import CONSTANT_ARGUMENTS
from .constants import FoldConstants
from .functions import prim_func_calls, prim_funcs

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


@relax.transform.function_pass(opt_level=0, name="RemoveDropout")
class RemoveDropout:
    """Replace dropout by its input: what it is at inference; ConvertLayout fails on its second output."""

    def transform_function(self, func: Any, _mod: Any, _context: Any) -> Any:
        """Rewrite one Relax function."""
        data = dpl.wildcard()
        pattern = dpl.TupleGetItemPattern(dpl.is_op("relax.nn.dropout")(data), 0)
        return dpl.rewrite_call(pattern, lambda _call, matches: matches[data], func)


@tvm.transform.module_pass(opt_level=0, name="MarkWeights")
class MarkWeights:
    """Note on each PrimFunc which arguments are constants at every call: a schedule may pack those.

    Attributes that only fusion needed are dropped, so that equal computations are equal functions.
    """

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """Mark the functions that ``main`` calls."""
        positions: dict[str, set[int]] = {}
        for name, args in prim_func_calls(mod):
            constants = {i for i, arg in enumerate(args) if isinstance(arg, tvm.ir.GenericConst)}
            positions[name] = positions.get(name, constants) & constants
        result = mod.clone()
        for name, func in prim_funcs(mod):
            marked = func.without_attr("op_pattern")
            if positions.get(name):
                marked = marked.with_attr(CONSTANT_ARGUMENTS, sorted(positions[name]))
            result.update_func(mod.get_global_var(name), marked)
        return result


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
