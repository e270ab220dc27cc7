r"""Two-dimensional pooling: the maximum or the average of a window, or of a whole image.

.. math::
    \mathrm{max}:\; y_{n,p,q,c} = \max_{i,j} x_{n,\; p s + i - r,\; q s + j - r,\; c}
    \qquad
    \mathrm{average}:\; y_{n,p,q,c} = \frac{1}{|W_{p,q}|} \sum_{(i,j) \in W_{p,q}}
        x_{n,\; p s + i - r,\; q s + j - r,\; c}

with stride s, padding r on every side, and W the taps of the window that lie inside the image: those
outside are neither compared nor counted (ONNX's default, ``count_include_pad=0``).

x is (n, h, w, c) or, in NCHW, (n, c, h, w); y is alike with height (h + 2 r - kernel) // s + 1, width
likewise. `GLOBAL_AVG_POOL2D` averages each image: y is (n, c).

The maximum of numbers that are all minus infinity is the lowest finite one. float16 and bfloat16 are summed
in float32 and rounded once. A few operations an element: memory bandwidth is the limit, where windows do
not overlap much.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import te, topi

from ..machine.errors import InputError
from .arithmetic import DTYPES, exact, rounded, rounded_to, sum_dtype
from .layouts import LAYOUTS, image_shape
from .operator import Dim, Operator
from .pool2d_libraries import AVERAGE_LIBRARIES, GLOBAL_LIBRARIES, MAXIMUM_LIBRARIES
from .pool2d_shapes import AVERAGE_EXAMPLES, GLOBAL_EXAMPLES, MAXIMUM_EXAMPLES

# What an average of int8 is rounded to is a model's business: its scale.
_AVERAGED = tuple(dtype for dtype in DTYPES if dtype != "int8")


def check(h: int, w: int, kernel: int, padding: int, **_: Any) -> None:
    """Raise InputError where a window lies outside the image, or no output is left."""
    if padding >= kernel:
        raise InputError(f"padding must be less than kernel: padding={padding}, kernel={kernel}")
    for name, size in (("h", h), ("w", w)):
        if kernel > size + 2 * padding:
            raise InputError(
                f"kernel must be at most {name} + 2 * padding: "
                f"kernel={kernel}, {name}={size}, padding={padding}"
            )


def _outputs(size: int, kernel: int, stride: int, padding: int) -> int:
    return (size + 2 * padding - kernel) // stride + 1


def _windows(data: Any, reduce: Any, name: str, outside: Any, **s: Any) -> Any:
    """Reduce each window of the data, which continues with ``outside``."""
    kernel, stride, padding, rows = s["kernel"], s["stride"], s["padding"], s["layout"].index("H")
    margins = [padding if axis in (rows, rows + 1) else 0 for axis in range(4)]
    x = topi.nn.pad(data, margins, pad_value=outside, name="pad") if padding else data
    i, j = (te.reduce_axis((0, kernel), name=axis) for axis in "ij")

    def at(*position: Any) -> Any:
        pixel = list(position)
        pixel[rows : rows + 2] = position[rows] * stride + i, position[rows + 1] * stride + j
        return reduce(x[tuple(pixel)], axis=[i, j])

    p, q = (_outputs(s[size], kernel, stride, padding) for size in "hw")
    return te.compute(image_shape(s["layout"], s["n"], p, q, s["c"]), at, name=name)


def _define_maximum(dtype: str, **s: Any) -> list[Any]:
    data = te.placeholder(image_shape(s["layout"], s["n"], s["h"], s["w"], s["c"]), dtype, name="data")
    return [data, _windows(data, te.max, "max_pool2d", te.min_value(dtype), **s)]


def _define_average(dtype: str, **s: Any) -> list[Any]:
    wide, rows = sum_dtype(dtype), s["layout"].index("H")
    data = te.placeholder(image_shape(s["layout"], s["n"], s["h"], s["w"], s["c"]), dtype, name="data")
    zero = tvm.tirx.const(0, dtype)
    sums = _windows(data, lambda x, axis: te.sum(x.astype(wide), axis=axis), "sum", zero, **s)

    def inside(position: Any, size: int) -> Any:
        """Count the window's rows, or columns, in the image."""
        first = position * s["stride"] - s["padding"]
        if not s["padding"]:
            return tvm.tirx.const(s["kernel"], "int32")
        return te.min(first + s["kernel"], size) - te.max(first, 0)

    def at(*position: Any) -> Any:
        taps = inside(position[rows], s["h"]) * inside(position[rows + 1], s["w"])
        return sums[position] / taps.astype(wide)

    return [data, rounded_to(te.compute(sums.shape, at, name="average"), dtype)]


def _define_global(dtype: str, layout: str, n: int, h: int, w: int, c: int) -> list[Any]:
    wide = sum_dtype(dtype)
    data = te.placeholder(image_shape(layout, n, h, w, c), dtype, name="data")
    i, j = te.reduce_axis((0, h), name="i"), te.reduce_axis((0, w), name="j")

    def total(image: Any, channel: Any) -> Any:
        pixel = data[(image, i, j, channel) if layout == "NHWC" else (image, channel, i, j)]
        return te.sum(pixel.astype(wide), axis=[i, j])

    sums = te.compute((n, c), total, name="sum")
    pixels = tvm.tirx.const(h * w, wide)
    y = te.compute((n, c), lambda image, channel: sums[image, channel] / pixels, name="average")
    return [data, rounded_to(y, dtype)]


def _taps(data: np.ndarray, outside: float, **s: Any) -> list[np.ndarray]:
    """Return, for each tap of the window, what all outputs see there."""
    kernel, stride, rows = s["kernel"], s["stride"], s["layout"].index("H")
    margins = [(0, 0)] * 4
    margins[rows : rows + 2] = [(s["padding"],) * 2] * 2
    padded = np.moveaxis(np.pad(exact(data), margins, constant_values=outside), (rows, rows + 1), (0, 1))
    p, q = (_outputs(s[size], kernel, stride, s["padding"]) for size in "hw")
    seen = [padded[i::stride, j::stride][:p, :q] for i, j in np.ndindex(kernel, kernel)]
    return [np.moveaxis(each, (0, 1), (rows, rows + 1)) for each in seen]


def _maximum(data: np.ndarray, **shape: Any) -> np.ndarray:
    """Return y; the maximum of numbers needs no rounding."""
    return rounded(np.maximum.reduce(_taps(data, -np.inf, **shape)), str(data.dtype))


def _average(data: np.ndarray, **shape: Any) -> np.ndarray:
    """Return y, summed and divided in float64, rounded once."""
    sums, counts = (np.add.reduce(_taps(x, 0, **shape)) for x in (data, np.ones_like(data)))
    return rounded(sums / counts, str(data.dtype))


def _global_average(data: np.ndarray, layout: str, **_: Any) -> np.ndarray:
    """Return y, summed and divided in float64, rounded once."""
    return rounded(exact(data).mean((1, 2) if layout == "NHWC" else (2, 3)), str(data.dtype))


def _window_flops(n: int, h: int, w: int, c: int, kernel: int, stride: int, padding: int, layout: str) -> int:
    """Count one maximum, or one addition, a tap."""
    p, q = (_outputs(size, kernel, stride, padding) for size in (h, w))
    return n * p * q * c * kernel**2


def _global_flops(layout: str, n: int, h: int, w: int, c: int) -> int:
    """Count one addition a pixel and channel."""
    return n * h * w * c


_IMAGE = (Dim("n"), Dim("h"), Dim("w"), Dim("c"))
_LAYOUT = Dim("layout", default="NHWC", choices=LAYOUTS)
_WINDOW = (Dim("kernel"), Dim("stride", default=1), Dim("padding", default=0, minimum=0))

MAX_POOL2D = Operator(
    name="max_pool2d",
    dims=(*_IMAGE, *_WINDOW, _LAYOUT),
    define=_define_maximum,
    reference=_maximum,
    flops=_window_flops,
    check=check,
    dtypes=DTYPES,
    libraries=MAXIMUM_LIBRARIES,
    examples=MAXIMUM_EXAMPLES,
)
AVG_POOL2D = Operator(
    name="avg_pool2d",
    dims=(*_IMAGE, *_WINDOW, _LAYOUT),
    define=_define_average,
    reference=_average,
    flops=_window_flops,
    check=check,
    dtypes=_AVERAGED,
    libraries=AVERAGE_LIBRARIES,
    examples=AVERAGE_EXAMPLES,
)
GLOBAL_AVG_POOL2D = Operator(
    name="global_avg_pool2d",
    dims=(*_IMAGE, _LAYOUT),
    define=_define_global,
    reference=_global_average,
    flops=_global_flops,
    dtypes=_AVERAGED,
    libraries=GLOBAL_LIBRARIES,
    examples=GLOBAL_EXAMPLES,
)
