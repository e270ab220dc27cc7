r"""Padding of images with a constant, before and after their rows and columns.

.. math:: y_{n,p,q,c} = x_{n,\,p-u,\,q-u,\,c} \;\text{inside the image}, \quad v \;\text{elsewhere}

with u = ``before`` and v = ``value``. x is (n, h, w, c), y is (n, h + before + after, w + before + after, c);
(n, c, h, w) is the same with the extents named so: (n c, h, w, 1). Each element is read or set once: memory
bandwidth is the limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import te, topi

from ..machine.errors import InputError
from .arithmetic import DTYPES
from .libraries import Libraries
from .operator import Dim, Example, Operator

_INT8_MIN, _INT8_MAX = -128, 127


def define(n: int, h: int, w: int, c: int, before: int, after: int, value: int, dtype: str) -> list[Any]:
    """Return the TE tensors x and y.

    Raises
    ------
    InputError
        The value is none that int8 has.
    """
    if dtype == "int8" and value > _INT8_MAX:
        raise InputError(f"value must be at most {_INT8_MAX} in int8: value={value}")
    x = te.placeholder((n, h, w, c), dtype, name="x")
    first, last = (0, before, before, 0), (0, after, after, 0)
    return [x, topi.nn.pad(x, first, last, pad_value=tvm.tirx.const(value, dtype), name="pad")]


def reference(x: np.ndarray, before: int, after: int, value: int, **_: Any) -> np.ndarray:
    """Return y, whose values are x's and the constant."""
    return np.pad(x, _margins(before, after), constant_values=value)


def _margins(before: int, after: int) -> tuple[tuple[int, int], ...]:
    return ((0, 0), (before, after), (before, after), (0, 0))


def flops(n: int, h: int, w: int, c: int, before: int, after: int, value: int) -> int:
    """Count one an element, though none is computed: that throughput is elements moved."""
    return n * (h + before + after) * (w + before + after) * c


def _numpy(x: np.ndarray, before: int, after: int, value: int, **_: Any) -> Any:
    return lambda: np.pad(x, _margins(before, after), constant_values=value)


def _torch(torch: Any, x: Any, before: int, after: int, value: int, **_: Any) -> Any:
    margins = (0, 0, before, after, before, after)
    return lambda: torch.nn.functional.pad(x, margins, value=value)


def _onnx(node: Any, x: str, before: int, after: int, value: int, **_: Any) -> Any:
    pads = np.array([0, before, before, 0, 0, after, after, 0], "int64")
    return [node("Pad", [x, "pads", "value"], ["y"])], {"pads": pads, "value": np.float32(value)}


def _image(size: int, c: int, before: int, after: int, source: str, **more: int) -> Example:
    return Example({"n": 1, "h": size, "w": size, "c": c, "before": before, "after": after, **more}, source)


PAD = Operator(
    name="pad",
    dims=(
        *(Dim(name) for name in ("n", "h", "w", "c")),
        Dim("before", default=0, minimum=0),
        Dim("after", default=0, minimum=0),
        Dim("value", default=0, minimum=_INT8_MIN),
    ),
    define=define,
    reference=reference,
    flops=flops,
    dtypes=DTYPES,
    libraries=Libraries(_numpy, _torch, _onnx),
    examples=(
        _image(224, 3, 3, 3, "ResNet-50, the image, for the first convolution"),
        _image(56, 64, 1, 1, "ResNet-50, stage 1, for a 3x3 convolution"),
        _image(7, 512, 1, 1, "ResNet-50, stage 4, for a 3x3 convolution"),
        _image(112, 96, 0, 1, "MobileNetV2 as TensorFlow pads it, first strided depthwise convolution"),
        _image(224, 64, 1, 1, "VGG-19, stage 1"),
        _image(256, 64, 1, 1, "U-Net, 512x512 pixels, second contraction, padded"),
        _image(56, 256, 1, 1, "ResNet-50 in int8, 56x56 pixels, around the least value", value=-128),
        _image(224, 64, 1, 1, "VGG-19, 8 images, stage 1, larger than the caches", n=8),
        Example({"n": 2, "h": 13, "w": 17, "c": 19, "before": 2, "after": 3}, "odd: primes"),
        Example(
            {"n": 1, "h": 5, "w": 3, "c": 7, "before": 0, "after": 1, "value": -3},
            "odd: one side only, fewer channels than a vector",
        ),
        Example({"n": 3, "h": 2, "w": 5, "c": 11}, "odd: nothing padded"),
        Example({"n": 1, "h": 1, "w": 1, "c": 1, "before": 1, "after": 1, "value": 7}, "odd: one element"),
    ),
)
