r"""What a quantised layer ends with: int32 sums, scaled by channel, rounded and clipped to uint8.

.. math:: y = \operatorname{clip}(\operatorname{round}(s_n (b_n + a)), -z, 255 - z) + z

with a the sum of products, b the bias, s the scale of the output channel and z the zero point of the output.
A sum becomes float32 and is scaled in float32, each rounded once; ties are rounded to even. So do ONNX
Runtime's QLinear operators, and clipping before rounding is the same, since the bounds are whole numbers.

A zero point of the data is part of the bias: ``sum((x - d) * w) = sum(x * w) - d * sum(w)``.

References
----------
Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
2018, section 2.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from ..machine.errors import InputError

LARGEST = 255
"""The largest uint8."""

QUANTIZED_RANGES = {
    "x": (0, LARGEST + 1),
    "data": (0, LARGEST + 1),
    "weight": (-128, 128),
    "bias": (-(1 << 16), 1 << 16),
    "scale": (1e-4, 1e-3),
}
"""All of uint8 and int8, and scales that take sums of hundreds of products to both sides of 255."""

REQUANTIZING_OPERATIONS = 6
"""Bias, scale, two bounds, rounding and zero point, for each output."""


def requantized(sums: Any, bias: Any, scale: Any, zero: int) -> Any:
    """Append bias and requantisation to int32 sums whose last axis is the channel."""
    biased = te.compute(sums.shape, lambda *i: sums[i] + bias[i[-1]], name="bias_add")
    least, most = tirx.const(-zero, "float32"), tirx.const(LARGEST - zero, "float32")

    def at(*i: Any) -> Any:
        scaled = biased[i].astype("float32") * scale[i[-1]]
        rounded = tirx.nearbyint(te.min(te.max(scaled, least), most))
        return (rounded + tirx.const(zero, "float32")).astype("uint8")

    return te.compute(sums.shape, at, name="requantize")


def requantized_exactly(sums: np.ndarray, bias: np.ndarray, scale: np.ndarray, zero: int) -> np.ndarray:
    """Do the same to a reference's float64 sums, which are whole numbers."""
    biased = (sums.astype(np.int64) + bias).astype(np.int32)
    scaled = biased.astype(np.float32) * scale
    return (np.clip(np.rint(scaled), -zero, LARGEST - zero) + zero).astype(np.uint8)


def check_zero(name: str, zero: int) -> None:
    """Raise InputError where a zero point is no uint8."""
    if zero > LARGEST:
        raise InputError(f"{name} must be at most {LARGEST}: {name}={zero}")


def onnx_constants(n: int, zero: int, data_zero: int = 0) -> dict[str, np.ndarray]:
    """Return the scales and zero points that ONNX's quantised operators want beside the channels' scales."""
    one = np.float32(1).reshape(())
    return {
        "one": one,
        "data_zero": np.uint8(data_zero).reshape(()),
        "weight_zeros": np.zeros(n, np.int8),
        "zero": np.uint8(zero).reshape(()),
    }
