r"""Batch normalisation of images with known means and variances: what is left of it after training.

.. math::
    y_{n,h,w,c} = (x_{n,h,w,c} - \mu_c) \frac{\gamma_c}{\sqrt{\sigma^2_c + \epsilon}} + \beta_c,
    \quad \epsilon = 10^{-5}

- NHWC: data and the output are (n, h, w, c).
- NCHW: data and the output are (n, c, h, w).
- gamma, beta, mean and variance are (c).

float16 and bfloat16 are computed in float32 and rounded once. The scale is computed once a channel; an
element is read and written once for three operations: memory bandwidth is the limit. Behind a convolution it
is usually folded into the weights; before one, as in DenseNet, it cannot be.

References
----------
Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate
Shift", 2015.
Huang et al., "Densely Connected Convolutional Networks", 2016 (normalisation before the convolution).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import te

from .arithmetic import exact, rounded, rounded_to, sum_dtype
from .libraries import Libraries
from .operator import Dim, Example, Operator

EPSILON = 1e-5
"""What keeps a channel of equal values from a division by 0."""


def define(n: int, h: int, w: int, c: int, layout: str, dtype: str) -> list[Any]:
    """Return the TE tensors data, gamma, beta, mean, variance and y."""
    wide, channel = sum_dtype(dtype), layout.index("C")
    epsilon = tvm.tirx.const(EPSILON, wide)
    data = te.placeholder((n, h, w, c) if layout == "NHWC" else (n, c, h, w), dtype, name="data")
    names = ("gamma", "beta", "mean", "variance")
    gamma, beta, mean, variance = (te.placeholder((c,), dtype, name=name) for name in names)
    scale = te.compute(
        (c,), lambda k: gamma[k].astype(wide) / te.sqrt(variance[k].astype(wide) + epsilon), name="scale"
    )

    def normalised(*at: Any) -> Any:
        k = at[channel]
        return (data[at].astype(wide) - mean[k].astype(wide)) * scale[k] + beta[k].astype(wide)

    y = te.compute(data.shape, normalised, name="batch_norm")
    return [data, gamma, beta, mean, variance, rounded_to(y, dtype)]


def reference(data: np.ndarray, *parameters: np.ndarray, layout: str, **_: Any) -> np.ndarray:
    """Return y, in float64 and rounded once."""
    gamma, beta, mean, variance = (_along_channels(exact(p), layout) for p in parameters)
    y = (exact(data) - mean) * (gamma / np.sqrt(variance + EPSILON)) + beta
    return rounded(y, str(data.dtype))


def _along_channels(parameter: np.ndarray, layout: str) -> np.ndarray:
    """Return a parameter of each channel in a shape that broadcasts over the data."""
    return parameter if layout == "NHWC" else parameter[:, None, None]


def flops(n: int, h: int, w: int, c: int, layout: str) -> int:
    """Count a subtraction, a multiplication and an addition an element; three a channel for the scale."""
    return 3 * n * h * w * c + 3 * c


def _numpy(data: np.ndarray, *parameters: np.ndarray, layout: str, **_: int) -> Any:
    y = np.empty_like(data)
    gamma, beta, mean, variance = (_along_channels(p, layout) for p in parameters)

    def call() -> np.ndarray:
        scale = gamma / np.sqrt(variance + data.dtype.type(EPSILON))
        np.multiply(data, scale, out=y)
        return np.add(y, beta - mean * scale, out=y)

    return call


def _torch(torch: Any, data: Any, *parameters: Any, layout: str, **_: int) -> Any:
    gamma, beta, mean, variance = parameters
    x = data.contiguous(memory_format=torch.channels_last) if layout == "NHWC" else data
    return lambda: torch.nn.functional.batch_norm(x, mean, variance, gamma, beta, False, 0.0, EPSILON)


def _onnx(node: Any, *names: str, **_: Any) -> Any:
    return [node("BatchNormalization", names, ["y"], epsilon=EPSILON)]


def _adapt(data: np.ndarray, *parameters: np.ndarray, layout: str, **_: int) -> Sequence[np.ndarray]:
    """Return data as (n, c, h, w)."""
    return [data if layout == "NCHW" else np.ascontiguousarray(data.transpose(0, 3, 1, 2)), *parameters]


def _restore(y: np.ndarray, layout: str, **_: int) -> np.ndarray:
    return y if layout == "NCHW" else y.transpose(0, 2, 3, 1)


def _shape(n: int, size: int, c: int, layout: str = "NHWC") -> dict[str, Any]:
    return {"n": n, "h": size, "w": size, "c": c, "layout": layout}


BATCH_NORM = Operator(
    name="batch_norm",
    dims=(*(Dim(name) for name in "nhwc"), Dim("layout", default="NHWC", choices=("NHWC", "NCHW"))),
    define=define,
    reference=reference,
    flops=flops,
    dtypes=("float32", "float64", "float16", "bfloat16"),
    ranges={"variance": (0.5, 2.0)},
    libraries=Libraries(_numpy, _torch, _onnx, weights=(1, 2, 3, 4), adapt=_adapt, restore=_restore),
    examples=(
        Example(_shape(1, 112, 64), "ResNet-50, one image: after the first convolution"),
        Example(_shape(1, 56, 256), "ResNet-50, one image: end of a block at 56x56 pixels"),
        Example(_shape(1, 28, 512), "ResNet-50, one image: end of a block at 28x28 pixels"),
        Example(_shape(1, 14, 1024), "ResNet-50, one image: end of a block at 14x14 pixels"),
        Example(_shape(1, 7, 2048), "ResNet-50, one image: end of a block at 7x7 pixels"),
        Example(_shape(1, 56, 64, "NCHW"), "DenseNet-121, one image: before the first dense layer"),
        Example(_shape(1, 14, 512, "NCHW"), "DenseNet-121, one image: third block, after eight dense layers"),
        Example(_shape(32, 112, 64), "ResNet-50, 32 images: 98 MiB, larger than the caches"),
        Example(_shape(32, 112, 64, "NCHW"), "ResNet-50, 32 images in NCHW: 98 MiB, larger than the caches"),
        Example({"n": 2, "h": 5, "w": 7, "c": 37}, "odd: primes"),
        Example({"n": 2, "h": 5, "w": 7, "c": 37, "layout": "NCHW"}, "odd: primes in NCHW"),
        Example({"n": 1, "h": 3, "w": 2, "c": 3}, "odd: fewer channels than a vector"),
        Example({"n": 1, "h": 1, "w": 1, "c": 1}, "odd: one element"),
    ),
)
