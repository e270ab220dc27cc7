r"""Enlarge images by a whole factor: the nearest pixel, or between the four nearest.

.. math::
    \mathrm{nearest}:\; y_{n,p,q,c} = x_{n,\, \lfloor p / s \rfloor,\, \lfloor q / s \rfloor,\, c}
    \qquad
    \mathrm{bilinear}:\; y_{n,p,q,c} = \sum_{i,j \in \{0, 1\}} f_i(p)\, f_j(q)\;
        x_{n,\, u(p) + i,\, u(q) + j,\, c}

with s the ``scale``. A bilinear row p lies at max((p + 1/2) / s - 1/2, 0): u is its whole part, f_1 its
fraction and f_0 = 1 - f_1; beyond the last row there is the last row. Nearest is ONNX's ``asymmetric`` with
``floor``, bilinear its ``half_pixel``, and both are what PyTorch's ``interpolate`` does.

x is (n, h, w, c), y is (n, h s, w s, c); in NCHW (n, c, h, w) and (n, c, h s, w s). float16 and bfloat16 are
computed in float32 and rounded once. An element is read more often than from memory: writes are the limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te

from .arithmetic import DTYPES, exact, rounded, sum_dtype
from .layouts import LAYOUTS, channels_first, image_shape, in_both_formats, in_layout
from .libraries import Call, Libraries
from .operator import Dim, Example, Operator
from .resampling import Places, Resampling

# What a value between int8 ones is rounded to is a model's business.
_DTYPES = tuple(dtype for dtype in DTYPES if dtype != "int8")


def define(n: int, h: int, w: int, c: int, scale: int, mode: str, layout: str, dtype: str) -> list[Any]:
    """Return the TE tensors x and y."""
    x = te.placeholder(image_shape(layout, n, h, w, c), dtype, name="x")
    form = "asymmetric" if mode == "nearest" else "half_pixel"
    rows, columns = (Places.of(form, size, size * scale) for size in (h, w))
    resized = Resampling(rows, columns, layout, sum_dtype(dtype))
    return [x, resized.nearest(x, "floor") if mode == "nearest" else resized.bilinear(x)]


def _weights(size: int, scale: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the same of all places at once."""
    first, part = np.divmod(np.maximum(2 * np.arange(size * scale) + 1 - scale, 0), 2 * scale)
    return first, np.minimum(first + 1, size - 1), part / (2 * scale)


def _enlarged(x: np.ndarray, axis: int, scale: int) -> np.ndarray:
    """Go between neighbours along one axis."""
    first, last, part = _weights(x.shape[axis], scale)
    part = part.astype(x.dtype).reshape(-1, *[1] * (x.ndim - axis - 1))
    return np.asarray(x.take(first, axis) * (1 - part) + x.take(last, axis) * part)


def reference(x: np.ndarray, scale: int, mode: str, layout: str, **_: Any) -> np.ndarray:
    """Return y, computed in float64 and rounded once."""
    rows = layout.index("H")
    if mode == "nearest":
        return x.repeat(scale, rows).repeat(scale, rows + 1)
    return rounded(_enlarged(_enlarged(exact(x), rows, scale), rows + 1, scale), str(x.dtype))


def flops(n: int, h: int, w: int, c: int, scale: int, mode: str, layout: str) -> int:
    """Count one an element of y for the nearest, though none is computed, and six between four."""
    return n * h * w * c * scale**2 * (1 if mode == "nearest" else 6)


def _numpy(x: np.ndarray, scale: int, mode: str, layout: str, **_: Any) -> Call:
    rows = layout.index("H")
    if mode == "bilinear":
        return lambda: _enlarged(_enlarged(x, rows, scale), rows + 1, scale)
    shape = list(x.shape)
    shape[rows : rows + 2] = x.shape[rows], scale, x.shape[rows + 1], scale
    y = np.empty(shape, x.dtype)
    final = [extent * (scale if axis in (rows, rows + 1) else 1) for axis, extent in enumerate(x.shape)]

    def call() -> np.ndarray:
        np.copyto(y, np.expand_dims(x, (rows + 1, rows + 3)))
        return y.reshape(final)

    return call


def _torch(torch: Any, x: Any, scale: int, mode: str, **_: Any) -> dict[str, Call]:
    interpolate = torch.nn.functional.interpolate
    return in_both_formats(torch, x, lambda data: lambda: interpolate(data, scale_factor=scale, mode=mode))


def _onnx(node: Any, x: str, scale: int, mode: str, **_: Any) -> Any:
    nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    linear = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    options = nearest if mode == "nearest" else linear
    return [node("Resize", [x, "", "scales"], ["y"], **options)], {
        "scales": np.array([1, 1, scale, scale], "float32")
    }


def _image(size: int, c: int, scale: int, mode: str, source: str, n: int = 1, **more: str) -> Example:
    return Example({"n": n, "h": size, "w": size, "c": c, "scale": scale, "mode": mode, **more}, source)


RESIZE2D = Operator(
    name="resize2d",
    dims=(
        *(Dim(name) for name in ("n", "h", "w", "c", "scale")),
        Dim("mode", default="nearest", choices=("nearest", "bilinear")),
        Dim("layout", default="NHWC", choices=LAYOUTS),
    ),
    define=define,
    reference=reference,
    flops=flops,
    dtypes=_DTYPES,
    libraries=Libraries(_numpy, _torch, _onnx, adapt=channels_first, restore=in_layout),
    examples=(
        _image(20, 256, 2, "nearest", "YOLOv5s, 640x640 pixels, neck, 20x20"),
        _image(40, 128, 2, "nearest", "YOLOv5s, 640x640 pixels, neck, 40x40"),
        _image(40, 128, 2, "nearest", "YOLOv5s, 640x640 pixels, neck, 40x40, channels first", layout="NCHW"),
        _image(25, 256, 2, "nearest", "Mask R-CNN, feature pyramid, 800x800 pixels, coarsest"),
        _image(32, 640, 2, "nearest", "Stable Diffusion, decoder of the U-Net at 32x32"),
        _image(64, 512, 2, "bilinear", "U-Net, 512x512 pixels, bilinear expansion at 64x64"),
        _image(28, 21, 8, "bilinear", "DeepLabv3 on 224x224 pixels, 21 classes to the image's size"),
        _image(256, 64, 2, "nearest", "U-Net, 512x512 pixels, last expansion, larger than the caches"),
        _image(256, 64, 2, "bilinear", "U-Net, last bilinear expansion, larger than the caches"),
        Example({"n": 2, "h": 7, "w": 5, "c": 19, "scale": 3, "mode": "bilinear"}, "odd: primes, by three"),
        Example(
            {"n": 1, "h": 5, "w": 11, "c": 3, "scale": 2, "mode": "bilinear", "layout": "NCHW"},
            "odd: channels first, lines shorter than a vector",
        ),
        Example({"n": 2, "h": 13, "w": 3, "c": 7, "scale": 5}, "odd: nearest, by five"),
        Example({"n": 1, "h": 1, "w": 1, "c": 1, "scale": 1, "mode": "bilinear"}, "odd: one element"),
    ),
)
