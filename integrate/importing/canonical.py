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
      Known indices with equal steps between them, or one alone, are a slice.
    - ``astype`` to the type that it has: nothing.
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
        if name == "relax.astype" and call.attrs["dtype"] == call.args[0].ty.dtype:
            return call.args[0]
        if name == "relax.stack":
            return self._stack(call)
        return call

    def _take(self, call: Any) -> Any:
        data, indices = call.args
        axis = int(call.attrs["axis"])
        if not isinstance(indices, tvm.ir.GenericConst):
            return relax.op.take(data, indices, axis, mode="wrap")
        within = _within(indices.value.numpy(), int(data.ty.shape[axis]))
        step = _step(within)
        if step is None:
            # They are within the axis; TVM warns of its unchecked mode all the same.
            return relax.op.take(data, relax.const(within), axis, mode="clip")
        begin, end = int(within.flat[0]), int(within.flat[-1]) + 1
        part = self._emit(relax.op.strided_slice(data, [axis], [begin], [end], [step]))
        return part if within.ndim == 1 else relax.op.reshape(part, call.ty.shape)

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


def _within(indices: np.ndarray, extent: int) -> np.ndarray:
    """Count negative indices from the end, and check that all are in the axis."""
    within = np.where(indices < 0, indices + extent, indices).astype(indices.dtype)
    if within.size and (within.min() < 0 or within.max() >= extent):
        raise ValueError(f"take has the index {indices} in an axis of {extent}")
    return within


def _step(indices: np.ndarray) -> int | None:
    """Return the step between indices, 1 of one alone, or None if no slice has just these."""
    steps = set(np.diff(indices.astype(np.int64).ravel()).tolist()) if indices.size else {0}
    step = steps.pop() if steps else 1
    return int(step) if step > 0 and not steps else None
