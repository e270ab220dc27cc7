"""What a convolution may end with: bias and ReLU, in the type of its sums, and one rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import te

from .arithmetic import result_dtype, rounded, rounded_to, sum_dtype


def finished(inputs: list[Any], y: Any, channel: int, bias: int, relu: int) -> list[Any]:
    """Append bias over the axis ``channel`` and ReLU where asked for, and round: all tensors, y last."""
    dtype = str(inputs[0].dtype)
    wide, result = sum_dtype(dtype), result_dtype(dtype)
    if bias:
        b, summed = te.placeholder((y.shape[channel],), result, name="bias"), y
        inputs = [*inputs, b]
        y = te.compute(y.shape, lambda *i: summed[i] + b[i[channel]].astype(wide), name="bias_add")
    if relu:
        biased = y
        y = te.compute(y.shape, lambda *i: te.max(biased[i], tvm.tirx.const(0, wide)), name="relu")
    return [*inputs, rounded_to(y, result)]


def finished_exactly(y: np.ndarray, *bias: np.ndarray, dtype: str, relu: int) -> np.ndarray:
    """Do the same to a reference's float64 sums, channels last."""
    y = y + bias[0].astype(np.float64) if bias else y
    return rounded(np.maximum(y, 0) if relu else y, result_dtype(dtype))


def finished_in_place(y: np.ndarray, *bias: np.ndarray, relu: int) -> np.ndarray:
    """Do the same in NumPy's twin, channels last."""
    if bias:
        y += bias[0]
    return np.maximum(y, 0, out=y) if relu else y
