"""The convolution in NumPy, PyTorch and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .libraries import Call, Libraries


def _numpy(data: np.ndarray, weight: np.ndarray, *bias: np.ndarray, **shape: Any) -> Call | None:
    """Sum a matrix product over each tap of the kernel, in NHWC; not with groups."""
    if shape["groups"] != 1:
        return None
    if nchw := shape["layout"] == "NCHW":
        data, weight = _contiguous(data, (0, 2, 3, 1)), _contiguous(weight, (2, 3, 1, 0))
    stride, dilation, pad = shape["stride"], shape["dilation"], shape["padding"]
    rows, columns = (
        (data.shape[1 + axis] + 2 * pad - dilation * (weight.shape[axis] - 1) - 1) // stride + 1
        for axis in (0, 1)
    )

    def call() -> np.ndarray:
        padded = np.pad(data, ((0, 0), (pad, pad), (pad, pad), (0, 0))) if pad else data
        y = np.zeros((data.shape[0], rows, columns, weight.shape[3]), data.dtype)
        for i, j in np.ndindex(*weight.shape[:2]):
            top, left = i * dilation, j * dilation
            window = padded[:, top : top + rows * stride : stride, left : left + columns * stride : stride]
            y += window[:, :rows, :columns] @ weight[i, j]
        if bias:
            y += bias[0]
        if shape["relu"]:
            np.maximum(y, 0, out=y)
        return y.transpose(0, 3, 1, 2) if nchw else y

    return call


def _torch(torch: Any, data: Any, weight: Any, *bias: Any, **shape: Any) -> dict[str, Call]:
    """Both of PyTorch's memory formats."""

    def call(layout: Any) -> Call:
        x, w = data.contiguous(memory_format=layout), weight.contiguous(memory_format=layout)
        b, conv2d = bias[0] if bias else None, torch.nn.functional.conv2d
        options = (shape["stride"], shape["padding"], shape["dilation"], shape["groups"])
        if shape["relu"]:
            return lambda: torch.relu_(conv2d(x, w, b, *options))
        return lambda: conv2d(x, w, b, *options)

    return {"channels_last": call(torch.channels_last), "contiguous": call(torch.contiguous_format)}


def _onnx(node: Any, *names: str, **shape: Any) -> list[Any]:
    attributes = {
        "strides": [shape["stride"]] * 2,
        "dilations": [shape["dilation"]] * 2,
        "pads": [shape["padding"]] * 4,
        "group": shape["groups"],
    }
    if not shape["relu"]:
        return [node("Conv", names, ["y"], **attributes)]
    return [node("Conv", names, ["z"], **attributes), node("Relu", ["z"], ["y"])]


def _adapt(data: np.ndarray, weight: np.ndarray, *bias: np.ndarray, **shape: Any) -> Sequence[np.ndarray]:
    """Return data as (n, ci, h, w) and weight as (co, ci / groups, kh, kw)."""
    if shape["layout"] == "NCHW":
        return [data, weight, *bias]
    return [_contiguous(data, (0, 3, 1, 2)), _contiguous(weight, (3, 2, 0, 1)), *bias]


def _restore(y: np.ndarray, **shape: Any) -> np.ndarray:
    return y if shape["layout"] == "NCHW" else y.transpose(0, 2, 3, 1)


def _contiguous(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(axes))


CONV2D_LIBRARIES = Libraries(_numpy, _torch, _onnx, weights=(1, 2), adapt=_adapt, restore=_restore)
"""ONNX Runtime holds weight and bias as constants, in NCHW."""
