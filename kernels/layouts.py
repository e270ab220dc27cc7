"""Images in the layouts that libraries want: PyTorch and ONNX know (n, c, h, w) only.

``NCHW8c`` and ``NCHW16c`` are channels first in blocks of so many, which are last: (n, c / 16, h, w, 16).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .libraries import Call

LAYOUTS = ("NHWC", "NCHW")
"""Channels last, as tunesmith's default, and channels first."""


BLOCKED_LAYOUTS = {"NCHW8c": 8, "NCHW16c": 16}
"""Layouts with the channels in blocks, and how many there are in one."""


def image_shape(layout: str, n: int, h: int, w: int, c: int) -> tuple[int, ...]:
    """Order the extents of an image as its layout does."""
    return (n, h, w, c) if layout == "NHWC" else (n, c, h, w)


def channels_first(data: np.ndarray, *others: np.ndarray, layout: str, **_: Any) -> Sequence[np.ndarray]:
    """Return the data as (n, c, h, w), and what else there is as it is: `Libraries.adapt`."""
    return [np.ascontiguousarray(data.transpose(0, 3, 1, 2)) if layout == "NHWC" else data, *others]


def in_layout(y: np.ndarray, *, layout: str, **_: Any) -> np.ndarray:
    """Return (n, c, h, w) in the operator's layout: `Libraries.restore`."""
    return y.transpose(0, 2, 3, 1) if layout == "NHWC" else y


def in_both_formats(torch: Any, data: Any, call: Callable[[Any], Call]) -> dict[str, Call]:
    """Return the calls on (n, c, h, w) data in both of PyTorch's memory formats."""
    formats = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}
    return {name: call(data.contiguous(memory_format=layout)) for name, layout in formats.items()}
