r"""Two-dimensional convolution of a quantised network, channels last.

.. math::
    y_{n,p,q,o} = \operatorname{requantized}\Bigl(b_o +
        \sum_{i,j,c} x_{n,\; p s + i - r,\; q s + j - r,\; c} \; w_{i,j,c,o}\Bigr)

with stride s and padding r. x is (n, h, w, ci) in uint8, weight is (kh, kw, ci, co) in int8, bias is (co) in
int32, scale is (co) in float32, y is (n, p, q, co) in uint8: see `requantization`. The margin holds
``data_zero``, the zero point of the data, which stands for 0; bias has its part of the sums,
``-data_zero * sum(weight)``, already in it, for inner and outer pixels alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from tvm import te, topi

from ..machine.errors import InputError
from .arithmetic import exact
from .conv2d import Geometry
from .libraries import Libraries
from .operator import Dim, Example, Operator
from .requantization import (
    QUANTIZED_RANGES,
    REQUANTIZING_OPERATIONS,
    check_zero,
    onnx_constants,
    requantized,
    requantized_exactly,
)

_ALL_CHANNELS = {"dilation": 1, "groups": 1}


def check(zero: int, data_zero: int, **extents: int) -> None:
    """Raise InputError where a zero point is no uint8 or no output is left."""
    check_zero("zero", zero)
    check_zero("data_zero", data_zero)
    for kernel, size in (("kh", "h"), ("kw", "w")):
        padded = extents[size] + 2 * extents["padding"]
        if extents[kernel] > padded:
            raise InputError(
                f"{kernel} must be at most {size} + 2 * padding: {kernel}={extents[kernel]}, "
                f"{size}={extents[size]}, padding={extents['padding']}"
            )


def define(dtype: str, zero: int, data_zero: int, **extents: int) -> list[Any]:
    """Return the TE tensors data, weight, bias, scale and y."""
    g = Geometry(**_ALL_CHANNELS, **extents)
    data = te.placeholder((g.n, g.h, g.w, g.ci), dtype, name="data")
    weight = te.placeholder((g.kh, g.kw, g.ci, g.co), "int8", name="weight")
    bias = te.placeholder((g.co,), "int32", name="bias")
    scale = te.placeholder((g.co,), "float32", name="scale")
    margin = (0, g.padding, g.padding, 0)
    x = topi.nn.pad(data, margin, pad_value=data_zero, name="pad") if g.padding else data
    window = {"i": g.kh, "j": g.kw, "c": g.ci}
    i, j, c = (te.reduce_axis((0, extent), name=name) for name, extent in window.items())

    def at(n: Any, p: Any, q: Any, o: Any) -> Any:
        pixel = x[n, p * g.stride + i, q * g.stride + j, c].astype("int32")
        return te.sum(pixel * weight[i, j, c, o].astype("int32"), axis=[i, j, c])

    sums = te.compute((g.n, g.p, g.q, g.co), at, name="conv2d")
    return [data, weight, bias, scale, requantized(sums, bias, scale, zero)]


def reference(
    data: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    scale: np.ndarray,
    zero: int,
    data_zero: int,
    **extents: int,
) -> np.ndarray:
    """Return y: the windows of the padded data, summed exactly and requantised."""
    pad, stride = extents["padding"], extents["stride"]
    padded = np.pad(data, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=data_zero)
    windows = sliding_window_view(padded, weight.shape[:2], axis=(1, 2))[:, ::stride, ::stride]
    sums = np.tensordot(exact(windows), exact(weight), axes=((4, 5, 3), (0, 1, 2)))
    return requantized_exactly(sums, bias, scale, zero)


def flops(zero: int, data_zero: int, **extents: int) -> int:
    """Count a multiplication and an addition a tap and channel, and the requantisation of each output."""
    g = Geometry(**_ALL_CHANNELS, **extents)
    return g.n * g.p * g.q * g.co * (2 * g.kh * g.kw * g.ci + REQUANTIZING_OPERATIONS)


def _onnx(node: Any, *names: str, co: int, stride: int, padding: int, **shape: int) -> Any:
    """Return ONNX Runtime's own form of QLinearConv, which takes and gives channels last."""
    data, weight, bias, scale = names
    inputs = [data, "one", "data_zero", weight, scale, "weight_zeros", "one", "zero", bias]
    convolution = node(
        "QLinearConv",
        inputs,
        ["y"],
        domain="com.microsoft",
        channels_last=1,
        strides=[stride] * 2,
        pads=[padding] * 4,
    )
    return [convolution], onnx_constants(co, shape["zero"], shape["data_zero"])


def _adapt(*inputs: np.ndarray, data_zero: int, **_: int) -> Sequence[np.ndarray]:
    """Return weight as (co, ci, kh, kw), and bias without the part of the data's zero point."""
    data, weight, bias, scale = inputs
    correction = data_zero * weight.sum(axis=(0, 1, 2), dtype=np.int32)
    return [data, np.ascontiguousarray(weight.transpose(3, 2, 0, 1)), bias + correction, scale]


# layer, height and width, input channels, output channels, kernel, stride
_LAYERS = (
    ("ResNet-50 int8, stage 1, 3x3", 56, 64, 64, 3, 1),
    ("ResNet-50 int8, stage 2, 3x3", 28, 128, 128, 3, 1),
    ("ResNet-50 int8, stage 3, 3x3", 14, 256, 256, 3, 1),
    ("ResNet-50 int8, stage 4, 3x3", 7, 512, 512, 3, 1),
    ("ResNet-50 int8, stage 2, first 3x3", 56, 128, 128, 3, 2),
    ("ResNet-50 int8, stage 1, expansion and shortcut", 56, 64, 256, 1, 1),
    ("ResNet-50 int8, stage 3, reduction", 14, 1024, 256, 1, 1),
    ("ResNet-50 int8, stage 3, shortcut", 28, 512, 1024, 1, 2),
    ("MobileNetV2 int8, bottleneck 3 and 4, expansion", 28, 32, 192, 1, 1),
    ("MobileNetV2 int8, bottleneck 4, projection", 14, 384, 64, 1, 1),
    ("MobileNetV2 int8, last convolution", 7, 320, 1280, 1, 1),
)


def _square(source: str, size: int, ci: int, co: int, kernel: int, stride: int, **more: int) -> Example:
    """Build one layer's shape: one square image, padded so that only the stride shrinks it."""
    shape = {"n": 1, "h": size, "w": size, "ci": ci, "co": co, "kh": kernel, "kw": kernel}
    return Example({**shape, "stride": stride, "padding": kernel // 2, **more}, source)


QUANTIZED_CONV2D = Operator(
    name="quantized_conv2d",
    dims=(
        *(Dim(name) for name in ("n", "h", "w", "ci", "co", "kh", "kw")),
        Dim("stride", default=1),
        Dim("padding", default=0, minimum=0),
        Dim("zero", default=0, minimum=0),
        Dim("data_zero", default=0, minimum=0),
    ),
    define=define,
    reference=reference,
    flops=flops,
    check=check,
    dtypes=("uint8",),
    ranges=QUANTIZED_RANGES,
    libraries=Libraries(None, None, _onnx, weights=(1, 2, 3), adapt=_adapt),
    examples=(
        *(_square(*layer) for layer in _LAYERS),
        _square("ResNet-50 int8, first convolution", 224, 3, 64, 7, 2, data_zero=114),
        _square("odd: channels of no whole dot product, a margin", 5, 3, 19, 3, 2, zero=7, data_zero=114),
        _square("odd: one more channel than a tile", 9, 8, 33, 3, 1, zero=128, data_zero=3),
        _square("odd: pixels one by one", 11, 20, 40, 1, 1),
        _square("odd: fewer channels than a vector", 4, 4, 5, 2, 1, zero=255),
        _square("odd: one element", 1, 1, 1, 1, 1),
    ),
)
