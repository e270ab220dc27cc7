"""Which arguments of a function are weights: a schedule may have those packed at compile time."""

from __future__ import annotations

from typing import Any

import tvm

from ...kernels.operator import CONSTANT_ARGUMENTS
from .functions import prim_func_calls, prim_funcs


@tvm.transform.module_pass(opt_level=0, name="MarkWeights")
class MarkWeights:
    """Note on each PrimFunc which arguments are constants at every call.

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


def marked_weights(mod: Any) -> Any:
    """Return a module with the marks of `MarkWeights`."""
    return tvm.transform.Sequential([MarkWeights()])(mod)
