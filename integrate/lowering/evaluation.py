"""What NumPy can compute of constants: the arithmetic and the moves that lowering makes of weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.negative": np.negative,
    "relax.sqrt": np.sqrt,
    "relax.rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype),
}
_RESHAPES = ("relax.reshape", "relax.expand_dims", "relax.squeeze")
# NumPy rounds these as loop nests do.
_DTYPES = ("float32", "float64")


def evaluated(bindings: list[Any]) -> dict[Any, np.ndarray]:
    """Compute what of the bindings NumPy can, in order.

    Returns
    -------
    dict of Var to numpy.ndarray
        The values of those that could be computed.
    """
    values: dict[Any, np.ndarray] = {}
    for binding in bindings:
        value = _value(binding.value, values)
        if value is not None:
            values[binding.var] = value
    return values


def _value(expr: Any, values: dict[Any, np.ndarray]) -> np.ndarray | None:
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op):
        return None
    name = str(expr.op.name)
    if name == "relax.concat":
        return _concatenated(expr, values)
    arrays = [_array(arg, values) for arg in expr.args]
    if name in _ARITHMETIC:
        return None if any(a is None for a in arrays) else _ARITHMETIC[name](*arrays)
    if not arrays or arrays[0] is None:
        return None
    if name == "relax.permute_dims":
        axes = None if expr.attrs.axes is None else list(expr.attrs.axes)
        return np.ascontiguousarray(arrays[0].transpose(axes))
    return arrays[0].reshape([int(d) for d in expr.ty.shape]) if name in _RESHAPES else None


def _concatenated(call: Any, values: dict[Any, np.ndarray]) -> np.ndarray | None:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
    parts = [p for p in (_array(field, values) for field in fields) if p is not None]
    if not parts or len(parts) != len(fields) or call.attrs.axis is None:
        return None
    return np.concatenate(parts, int(call.attrs.axis))


def _array(expr: Any, values: dict[Any, np.ndarray]) -> np.ndarray | None:
    if isinstance(expr, relax.Var):
        return values.get(expr)
    is_tensor = isinstance(expr, tvm.ir.GenericConst) and isinstance(expr.value, tvm.runtime.Tensor)
    return np.from_dlpack(expr.value) if is_tensor and str(expr.value.dtype) in _DTYPES else None
