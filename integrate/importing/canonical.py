"""What importers make of an operator, in the form that compiles and cannot read outside its input."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

# TVM's default: no index is checked, and a negative one reads before the array.
_UNCHECKED = "fast"


def canonicalized(mod: Any) -> Any:
    """Rewrite what TVM's importers emit.

    - ``take`` with its unchecked default mode: negative indices count from the end, as in ONNX and PyTorch,
      and those beyond the last start again at the first, instead of reading whatever lies behind the array.
    - ``stack``: a concatenation. TVM's ConvertLayout fails on stacks.
    """
    result = mod.clone()
    result.update_func(mod.get_global_var("main"), _Rewriter(mod).visit_expr(mod["main"]))
    return result


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):
    """Replaces calls of operators."""

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "") if isinstance(call, relax.Call) else ""
        if name == "relax.take" and call.attrs["mode"] == _UNCHECKED and call.attrs["axis"] is not None:
            return self._take(call)
        if name == "relax.stack":
            return self._stack(call)
        return call

    def _take(self, call: Any) -> Any:
        data, indices = call.args
        axis = int(call.attrs["axis"])
        extent = int(data.ty.shape[axis])
        if isinstance(indices, tvm.ir.GenericConst):
            values = indices.value.numpy()
            within = np.where(values < 0, values + extent, values).astype(values.dtype)
            if within.size and (within.min() < 0 or within.max() >= extent):
                raise ValueError(f"take has the index {values} in an axis of {extent}")
            return relax.op.take(data, relax.const(within), axis)
        return relax.op.take(data, indices, axis, mode="wrap")

    def _stack(self, call: Any) -> Any:
        axis = int(call.attrs["axis"] or 0)
        parts = call.args[0]
        fields = (
            parts.fields
            if isinstance(parts, relax.Tuple)
            else [self._emit(relax.TupleGetItem(parts, i)) for i in range(len(parts.ty.fields))]
        )
        axis += (len(fields[0].ty.shape) + 1) * (axis < 0)
        return relax.op.concat([self._emit(relax.op.expand_dims(field, axis)) for field in fields], axis)

    def _emit(self, expr: Any) -> Any:
        return self.builder_.emit(expr)
