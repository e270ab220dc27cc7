"""A convolution's arrays in each of its layouts, as they are with channels last."""

from __future__ import annotations

import numpy as np

from .layouts import BLOCKED_LAYOUTS


def channels_last(data: np.ndarray, weight: np.ndarray, *added: np.ndarray, layout: str) -> list[np.ndarray]:
    """Return data, weight, bias and residual as they are in NHWC."""
    if layout == "NHWC":
        return [data, weight, *added]
    if layout == "NCHW":
        images = [a.transpose(0, 2, 3, 1) if a.ndim > 1 else a for a in (data, *added)]
        return [images[0], weight.transpose(2, 3, 1, 0), *images[1:]]
    images = [_out_of_blocks(a) if a.ndim > 1 else a for a in (data, *added)]
    taps = weight.transpose(2, 3, 1, 4, 0, 5)
    return [images[0], taps.reshape(*taps.shape[:2], images[0].shape[-1], -1), *images[1:]]


def from_channels_last(y: np.ndarray, layout: str) -> np.ndarray:
    """Return an image in NHWC in another layout."""
    if layout in BLOCKED_LAYOUTS:
        return y.reshape(*y.shape[:-1], -1, BLOCKED_LAYOUTS[layout]).transpose(0, 3, 1, 2, 4)
    return y.transpose(0, 3, 1, 2) if layout == "NCHW" else y


def _out_of_blocks(image: np.ndarray) -> np.ndarray:
    last = image.transpose(0, 2, 3, 1, 4)
    return last.reshape(*last.shape[:3], -1)
