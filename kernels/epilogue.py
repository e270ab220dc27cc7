"""What a convolution may end with: bias, residual and ReLU, in the type of its sums, and one rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import te

from .arithmetic import result_dtype, rounded, rounded_to, sum_dtype


def _as_it_is(*index: Any) -> tuple[Any, ...]:
    return index


def finished(
    inputs: list[Any],
    y: Any,
    channel: int,
    bias: int,
    relu: int,
    residual: int = 0,
    lies: tuple[Sequence[int], Callable[..., tuple[Any, ...]]] | None = None,
) -> list[Any]:
    """Append bias over the axis ``channel``, residual and ReLU where asked for, and round: all tensors.

    ``lies``: the residual's shape, and the index in it of what is added at an index of y; y's own by default.
    """
    dtype = str(inputs[0].dtype)
    wide, result = sum_dtype(dtype), result_dtype(dtype)
    if bias:
        b, summed = te.placeholder((y.shape[channel],), result, name="bias"), y
        inputs = [*inputs, b]
        y = te.compute(y.shape, lambda *i: summed[i] + b[i[channel]].astype(wide), name="bias_add")
    if residual:
        shape, at = lies or (y.shape, _as_it_is)
        alone, beside = y, te.placeholder(shape, result, name="residual")
        inputs = [*inputs, beside]
        y = te.compute(y.shape, lambda *i: alone[i] + beside[at(*i)].astype(wide), name="residual_add")
    if relu:
        biased = y
        y = te.compute(y.shape, lambda *i: te.max(biased[i], tvm.tirx.const(0, wide)), name="relu")
    return [*inputs, rounded_to(y, result)]


def finished_exactly(y: np.ndarray, *added: np.ndarray, dtype: str, relu: int) -> np.ndarray:
    """Do the same to a reference's float64 sums, channels last; a bias and a residual are both added."""
    for term in added:
        y = y + term.astype(np.float64)
    return rounded(np.maximum(y, 0) if relu else y, result_dtype(dtype))


def finished_in_place(y: np.ndarray, *added: np.ndarray, relu: int) -> np.ndarray:
    """Do the same in NumPy's twin, channels last."""
    for term in added:
        y += term
    return np.maximum(y, 0, out=y) if relu else y
