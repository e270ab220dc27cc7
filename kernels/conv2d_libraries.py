"""The convolution in NumPy, PyTorch and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .conv2d_layouts import channels_last, from_channels_last
from .epilogue import finished_in_place
from .libraries import Call, Libraries


def _numpy(*inputs: np.ndarray, **shape: Any) -> Call | None:
    """Sum a matrix product over each tap of the kernel, in NHWC; not with groups."""
    if shape["groups"] != 1:
        return None
    data, weight, *added = map(np.ascontiguousarray, channels_last(*inputs, layout=shape["layout"]))
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
        finished_in_place(y, *added, relu=shape["relu"])
        return from_channels_last(y, shape["layout"])

    return call


def _torch(torch: Any, data: Any, weight: Any, *added: Any, **shape: Any) -> dict[str, Call]:
    """Both of PyTorch's memory formats."""

    def call(layout: Any) -> Call:
        x, w = data.contiguous(memory_format=layout), weight.contiguous(memory_format=layout)
        b, conv2d = added[0] if shape["bias"] else None, torch.nn.functional.conv2d
        beside = added[-1].contiguous(memory_format=layout) if shape["residual"] else None
        options = (shape["stride"], shape["padding"], shape["dilation"], shape["groups"])

        def convolved() -> Any:
            y = conv2d(x, w, b, *options)
            y = y if beside is None else y.add_(beside)
            return torch.relu_(y) if shape["relu"] else y

        return convolved

    return {"channels_last": call(torch.channels_last), "contiguous": call(torch.contiguous_format)}


def _onnx(node: Any, *names: str, **shape: Any) -> list[Any]:
    attributes = {
        "strides": [shape["stride"]] * 2,
        "dilations": [shape["dilation"]] * 2,
        "pads": [shape["padding"]] * 4,
        "group": shape["groups"],
    }
    read, nodes = names[: 2 + shape["bias"]], []
    nodes.append(node("Conv", read, ["convolved"], **attributes))
    if shape["residual"]:
        nodes.append(node("Add", [nodes[-1].output[0], names[-1]], ["added"]))
    if shape["relu"]:
        nodes.append(node("Relu", [nodes[-1].output[0]], ["positive"]))
    nodes[-1].output[0] = "y"
    return nodes


def _adapt(*inputs: np.ndarray, **shape: Any) -> Sequence[np.ndarray]:
    """Return data as (n, ci, h, w) and weight as (co, ci / groups, kh, kw)."""
    if shape["layout"] == "NCHW":
        return inputs
    data, weight, *added = channels_last(*inputs, layout=shape["layout"])
    images = [_contiguous(a, (0, 3, 1, 2)) if a.ndim == 4 else a for a in added]
    return [_contiguous(data, (0, 3, 1, 2)), _contiguous(weight, (3, 2, 0, 1)), *images]


def _restore(y: np.ndarray, **shape: Any) -> np.ndarray:
    return from_channels_last(y.transpose(0, 2, 3, 1), shape["layout"])


def _contiguous(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(axes))


CONV2D_LIBRARIES = Libraries(_numpy, _torch, _onnx, weights=(1,), adapt=_adapt, restore=_restore)
"""ONNX Runtime holds the weight as a constant, in NCHW."""
