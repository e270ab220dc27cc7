r"""Two-dimensional convolution as neural networks mean it (a correlation); bias, residual and ReLU on demand.

.. math::
    y_{n,p,q,o} = t_{n,p,q,o} + b_o + \sum_{i,j,c}
        x_{n,\; p s + i d - r,\; q s + j d - r,\; g(o) + c} \; w_{i,j,c,o}

with stride s, padding r (zeros on every side), dilation d, and g(o) the first input channel of o's group.

- NHWC: x is (n, h, w, ci), weight is (kh, kw, ci / groups, co), y is (n, p, q, co).
- NCHW: x is (n, ci, h, w), weight is (co, ci / groups, kh, kw), y is (n, co, p, q).
- NCHW8c and NCHW16c, blocks of so many channels: x is (n, ci / 16, h, w, 16), weight is
  (co / 16, ci / 16, kh, kw, 16, 16), input channels before output channels, y is (n, co / 16, p, q, 16).
- bias b is (co), residual t is like y. Height p is (h + 2 r - d (kh - 1) - 1) // s + 1, width q likewise.

float16 and bfloat16 are summed in float32 and rounded once, at the end; int8 is summed in int32, which
is also the type of bias and output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx, topi

from ..machine.errors import InputError
from .arithmetic import DTYPES, exact, sum_dtype
from .conv2d_layouts import channels_last, from_channels_last
from .conv2d_libraries import CONV2D_LIBRARIES
from .conv2d_shapes import CONV2D_EXAMPLES
from .epilogue import finished, finished_exactly
from .layouts import BLOCKED_LAYOUTS, LAYOUTS
from .operator import Dim, Operator


@dataclass(frozen=True)
class Geometry:
    """The extents of a convolution, whatever its layout."""

    n: int
    h: int
    w: int
    ci: int
    co: int
    kh: int
    kw: int
    stride: int
    padding: int
    dilation: int
    groups: int

    @property
    def p(self) -> int:
        """Output height."""
        return (self.h + 2 * self.padding - self.dilation * (self.kh - 1) - 1) // self.stride + 1

    @property
    def q(self) -> int:
        """Output width."""
        return (self.w + 2 * self.padding - self.dilation * (self.kw - 1) - 1) // self.stride + 1

    @property
    def ci_group(self) -> int:
        """Input channels that one output channel reads."""
        return self.ci // self.groups

    @property
    def co_group(self) -> int:
        """Output channels of one group."""
        return self.co // self.groups


def check(layout: str, bias: int, relu: int, residual: int, **extents: int) -> None:
    """Raise InputError where groups or blocks do not divide the channels, or no output is left."""
    g, block = Geometry(**extents), BLOCKED_LAYOUTS.get(layout, 1)
    if g.ci % block or g.co % block:
        raise InputError(f"ci and co must be whole blocks of {block} in {layout}: ci={g.ci}, co={g.co}")
    if block > 1 and g.groups > 1:
        raise InputError(f"{layout} knows no groups: groups={g.groups}; take NHWC or NCHW")
    if g.ci % g.groups or g.co % g.groups:
        raise InputError(f"groups must divide ci and co: groups={g.groups}, ci={g.ci}, co={g.co}")
    for kernel, size, k, s in (("kh", "h", g.kh, g.h), ("kw", "w", g.kw, g.w)):
        if g.dilation * (k - 1) + 1 > s + 2 * g.padding:
            raise InputError(
                f"dilation * ({kernel} - 1) + 1 must be at most {size} + 2 * padding: "
                f"{kernel}={k}, {size}={s}, dilation={g.dilation}, padding={g.padding}"
            )


def define(dtype: str, layout: str, bias: int, relu: int, residual: int, **extents: int) -> list[Any]:
    """Return the TE tensors data, weight, bias and residual where asked for, and the output."""
    g, wide = Geometry(**extents), sum_dtype(dtype)
    if layout in BLOCKED_LAYOUTS:
        return _in_blocks(g, dtype, wide, BLOCKED_LAYOUTS[layout], (bias, relu, residual))
    inputs, y = (_nhwc if layout == "NHWC" else _nchw)(g, dtype, wide)
    return finished(inputs, y, layout.index("C"), bias, relu, residual)


def _nhwc(g: Geometry, dtype: str, wide: str) -> tuple[list[Any], Any]:
    data = te.placeholder((g.n, g.h, g.w, g.ci), dtype, name="data")
    weight = te.placeholder((g.kh, g.kw, g.ci_group, g.co), dtype, name="weight")
    x = topi.nn.pad(data, (0, g.padding, g.padding, 0), name="pad") if g.padding else data
    return [data, weight], _summed(g, x, weight, wide)


def _summed(g: Geometry, x: Any, weight: Any, wide: str) -> Any:
    """Sum over the windows of an image that is padded, channels last."""
    i, j, c = _window(g)

    def at(n: Any, p: Any, q: Any, o: Any) -> Any:
        pixel = x[n, p * g.stride + i * g.dilation, q * g.stride + j * g.dilation, _first_channel(g, o) + c]
        return te.sum(pixel.astype(wide) * weight[i, j, c, o].astype(wide), axis=[i, j, c])

    return te.compute((g.n, g.p, g.q, g.co), at, name="conv2d")


def _nchw(g: Geometry, dtype: str, wide: str) -> tuple[list[Any], Any]:
    data = te.placeholder((g.n, g.ci, g.h, g.w), dtype, name="data")
    weight = te.placeholder((g.co, g.ci_group, g.kh, g.kw), dtype, name="weight")
    x = topi.nn.pad(data, (0, 0, g.padding, g.padding), name="pad") if g.padding else data
    i, j, c = _window(g)

    def at(n: Any, o: Any, p: Any, q: Any) -> Any:
        pixel = x[n, _first_channel(g, o) + c, p * g.stride + i * g.dilation, q * g.stride + j * g.dilation]
        return te.sum(pixel.astype(wide) * weight[o, c, i, j].astype(wide), axis=[c, i, j])

    return [data, weight], te.compute((g.n, g.co, g.p, g.q), at, name="conv2d")


def _in_blocks(g: Geometry, dtype: str, wide: str, block: int, ends: tuple[int, int, int]) -> list[Any]:
    """Convolve with channels last, between copies: each brings the blocks of a pixel together, or apart."""
    pads, zero = g.padding, tirx.const(0, dtype)
    data = te.placeholder((g.n, g.ci // block, g.h, g.w, block), dtype, name="data")
    taps = te.placeholder((g.co // block, g.ci // block, g.kh, g.kw, block, block), dtype, name="weight")

    def place(n: Any, y: Any, x: Any, c: Any) -> tuple[Any, ...]:
        return n, c // block, y, x, c % block

    def pixel(n: Any, y: Any, x: Any, c: Any) -> Any:
        inside = tirx.all(y >= pads, y < g.h + pads, x >= pads, x < g.w + pads)
        value = data[place(n, y - pads, x - pads, c)]
        return tirx.if_then_else(inside, value, zero) if pads else value

    def tap(i: Any, j: Any, c: Any, o: Any) -> Any:
        return taps[o // block, c // block, i, j, c % block, o % block]

    image = te.compute((g.n, g.h + 2 * pads, g.w + 2 * pads, g.ci), pixel, name="pad" if pads else "image")
    weight = te.compute((g.kh, g.kw, g.ci, g.co), tap, name="taps")
    y, shape = _summed(g, image, weight, wide), (g.n, g.co // block, g.p, g.q, block)
    *inputs, y = finished([data, taps], y, 3, *ends, lies=(shape, place))
    return [*inputs, te.compute(shape, lambda n, b, p, q, o: y[n, p, q, b * block + o], name="blocks")]


def _window(g: Geometry) -> tuple[Any, Any, Any]:
    """Return the reduction axes: a tap's row and column, and the channel in the group."""
    extents = {"i": g.kh, "j": g.kw, "c": g.ci_group}
    i, j, c = (te.reduce_axis((0, extent), name=name) for name, extent in extents.items())
    return i, j, c


def _first_channel(g: Geometry, o: Any) -> Any:
    """Return the first input channel of o's group; plainly 0 where there is one group."""
    return 0 if g.groups == 1 else o // g.co_group * g.ci_group


def reference(
    *inputs: np.ndarray, layout: str, bias: int, relu: int, residual: int, **extents: int
) -> np.ndarray:
    """Return the output: one float64 matrix product a tap and group, summed, rounded once."""
    g, dtype = Geometry(**extents), str(inputs[0].dtype)
    data, weight, *added = channels_last(*map(exact, inputs), layout=layout)
    y = finished_exactly(_convolved(g, data, weight), *added, dtype=dtype, relu=relu)
    return np.ascontiguousarray(from_channels_last(y, layout))


def _convolved(g: Geometry, data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Convolve (n, h, w, ci) with (kh, kw, ci / groups, co) into (n, p, q, co)."""
    margin = (g.padding, g.padding)
    padded = np.pad(data, ((0, 0), margin, margin, (0, 0)))
    sums = np.zeros((g.groups, g.n * g.p * g.q, g.co_group))
    for i, j in np.ndindex(g.kh, g.kw):
        top, left = i * g.dilation, j * g.dilation
        pixels = padded[:, top :: g.stride, left :: g.stride][:, : g.p, : g.q]
        grouped = pixels.reshape(-1, g.groups, g.ci_group).transpose(1, 0, 2)
        sums += grouped @ weight[i, j].reshape(g.ci_group, g.groups, g.co_group).transpose(1, 0, 2)
    return sums.transpose(1, 0, 2).reshape(g.n, g.p, g.q, g.co)


def flops(layout: str, bias: int, relu: int, residual: int, **extents: int) -> int:
    """Count a multiplication and an addition a tap and channel; one more an output for each that ends it."""
    g = Geometry(**extents)
    return g.n * g.p * g.q * g.co * (2 * g.kh * g.kw * g.ci_group + bias + residual + relu)


CONV2D = Operator(
    name="conv2d",
    dims=(
        *(Dim(name) for name in ("n", "h", "w", "ci", "co", "kh", "kw")),
        Dim("stride", default=1),
        Dim("padding", default=0, minimum=0),
        Dim("dilation", default=1),
        Dim("groups", default=1),
        Dim("layout", default="NHWC", choices=(*LAYOUTS, *BLOCKED_LAYOUTS)),
        Dim("bias", default=0, choices=(0, 1)),
        Dim("residual", default=0, choices=(0, 1)),
        Dim("relu", default=0, choices=(0, 1)),
    ),
    define=define,
    reference=reference,
    flops=flops,
    check=check,
    dtypes=DTYPES,
    libraries=CONV2D_LIBRARIES,
    examples=CONV2D_EXAMPLES,
)
