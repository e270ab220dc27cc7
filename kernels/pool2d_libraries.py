"""Pooling in NumPy, PyTorch and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .layouts import channels_first, in_both_formats, in_layout
from .libraries import Call, Libraries


def _channels_last(data: np.ndarray, layout: str) -> np.ndarray:
    return data if layout == "NHWC" else np.ascontiguousarray(data.transpose(0, 2, 3, 1))


def _taps(data: np.ndarray, outside: float, **s: Any) -> list[np.ndarray]:
    """Return what all outputs see at each tap of the window, in NHWC."""
    kernel, stride, margin = s["kernel"], s["stride"], (s["padding"],) * 2
    x = np.pad(data, ((0, 0), margin, margin, (0, 0)), constant_values=outside) if any(margin) else data
    p, q = ((s[size] + 2 * s["padding"] - kernel) // stride + 1 for size in "hw")
    return [x[:, i::stride, j::stride][:, :p, :q] for i, j in np.ndindex(kernel, kernel)]


def _numpy(outside: float, accumulate: Any, average: bool) -> Callable[..., Call]:
    """Accumulate the taps, in NHWC."""

    def made(data: np.ndarray, **s: Any) -> Call:
        x = _channels_last(data, s["layout"])
        counts = sum(_taps(np.ones_like(x[:1, :, :, :1]), 0, **s))

        def call() -> np.ndarray:
            first, *others = _taps(x, outside, **s)
            y = first.copy()
            for tap in others:
                accumulate(y, tap, out=y)
            if average:
                y /= counts
            return y.transpose(0, 3, 1, 2) if s["layout"] == "NCHW" else y

        return call

    return made


def _torch(name: str, **options: Any) -> Callable[..., dict[str, Call] | None]:
    def made(torch: Any, data: Any, **s: Any) -> dict[str, Call] | None:
        """Call the function in both memory formats; it refuses windows that are mostly outside."""
        if 2 * s["padding"] > s["kernel"]:
            return None
        pool, window = getattr(torch.nn.functional, name), (s["kernel"], s["stride"], s["padding"])
        return in_both_formats(torch, data, lambda x: lambda: pool(x, *window, **options))

    return made


def _onnx(name: str) -> Callable[..., list[Any]]:
    def made(node: Any, data: str, **s: Any) -> list[Any]:
        window = {"kernel_shape": [s["kernel"]] * 2, "strides": [s["stride"]] * 2, "pads": [s["padding"]] * 4}
        return [node(name, [data], ["y"], **window)]

    return made


def _numpy_global(data: np.ndarray, layout: str, **_: Any) -> Call:
    axes = (1, 2) if layout == "NHWC" else (2, 3)
    return lambda: data.mean(axes)


def _torch_global(torch: Any, data: Any, **_: Any) -> dict[str, Call]:
    pool = torch.nn.functional.adaptive_avg_pool2d
    return in_both_formats(torch, data, lambda x: lambda: pool(x, 1))


def _onnx_global(node: Any, data: str, **_: Any) -> list[Any]:
    return [node("GlobalAveragePool", [data], ["y"])]


MAXIMUM_LIBRARIES = Libraries(
    _numpy(-np.inf, np.maximum, average=False),
    _torch("max_pool2d"),
    _onnx("MaxPool"),
    adapt=channels_first,
    restore=in_layout,
)
AVERAGE_LIBRARIES = Libraries(
    _numpy(0, np.add, average=True),
    _torch("avg_pool2d", count_include_pad=False),
    _onnx("AveragePool"),
    adapt=channels_first,
    restore=in_layout,
)
GLOBAL_LIBRARIES = Libraries(
    _numpy_global,
    _torch_global,
    _onnx_global,
    adapt=channels_first,
    restore=lambda y, **_: y[:, :, 0, 0],
)
