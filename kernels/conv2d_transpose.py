r"""Two-dimensional transposed convolution: the gradient of a convolution, used to enlarge images.

.. math:: y_{n,p,q,o} = b_o + \sum_{i,j,c} x_{n,\; u,\; v,\; g(o) + c} \; w_{i,j,\; g(o) + c,\; o'}
    \quad\text{over}\quad u s + i = p + r,\; v s + j = q + r

with stride s, padding r, which crops the output, g(o) the first input channel of o's group and o' the place
of o in its group. x is (n, h, w, ci), weight is (kh, kw, ci, co / groups), bias is (co), y is (n, p, q, co)
with height p = (h - 1) s - 2 r + kh + output_padding, width likewise: output_padding tells apart the images
that a convolution of this stride would make (h, w) of, and is less than the stride.

float16 and bfloat16 are summed in float32 and rounded once, at the end; int8 is summed in int32, which is
also the type of bias and output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te

from ..machine.errors import InputError
from .arithmetic import DTYPES, exact, sum_dtype
from .epilogue import finished, finished_exactly, finished_in_place
from .layouts import in_both_formats
from .libraries import Call, Libraries
from .operator import Dim, Example, Operator
from .transposed_convolution import TransposedConvolution

_AXES = (("h", "kh"), ("w", "kw"))


def _outputs(s: dict[str, int]) -> tuple[int, int]:
    """Return the output's height and width."""
    more = s["output_padding"] - 2 * s["padding"]
    p, q = ((s[size] - 1) * s["stride"] + s[kernel] + more for size, kernel in _AXES)
    return p, q


def check(**s: int) -> None:
    """Raise InputError where groups do not divide the channels, or no output is left."""
    groups, ci, co, more, stride = (s[name] for name in ("groups", "ci", "co", "output_padding", "stride"))
    if ci % groups or co % groups:
        raise InputError(f"groups must divide ci and co: groups={groups}, ci={ci}, co={co}")
    if more >= stride:
        raise InputError(f"output_padding must be less than stride: output_padding={more}, stride={stride}")
    for (size, kernel), output in zip(_AXES, _outputs(s), strict=True):
        if output < 1:
            raise InputError(
                f"2 * padding must be less than ({size} - 1) * stride + {kernel} + output_padding: "
                f"padding={s['padding']}, {size}={s[size]}, stride={stride}, {kernel}={s[kernel]}, "
                f"output_padding={more}"
            )


def define(dtype: str, **s: int) -> list[Any]:
    """Return the TE tensors data, weight, bias where asked for, and the output."""
    data = te.placeholder((s["n"], s["h"], s["w"], s["ci"]), dtype, name="data")
    weight = te.placeholder((s["kh"], s["kw"], s["ci"], s["co"] // s["groups"]), dtype, name="weight")
    stride, cropped = (s["stride"], s["stride"]), (s["padding"], s["padding"])
    transposed = TransposedConvolution(stride, cropped, _outputs(s), s["groups"], sum_dtype(dtype))
    return finished([data, weight], transposed.of(data, weight), 3, s["bias"], s["relu"])


def _sums(data: np.ndarray, weight: np.ndarray, **s: int) -> np.ndarray:
    """Add each tap's matrix product where it belongs, in the type of the data, and crop."""
    stride, padding, groups, (p, q) = s["stride"], s["padding"], s["groups"], _outputs(s)
    whole = np.zeros((s["n"], p + 2 * padding, q + 2 * padding, s["co"]), data.dtype)
    pixels = data.reshape(-1, groups, s["ci"] // groups).swapaxes(0, 1)
    for i, j in np.ndindex(s["kh"], s["kw"]):
        product = pixels @ weight[i, j].reshape(groups, -1, s["co"] // groups)
        reached = whole[:, i::stride, j::stride][:, : s["h"], : s["w"]]
        reached += product.swapaxes(0, 1).reshape(reached.shape)
    return np.ascontiguousarray(whole[:, padding : padding + p, padding : padding + q])


def reference(data: np.ndarray, weight: np.ndarray, *bias: np.ndarray, relu: int, **s: int) -> np.ndarray:
    """Return the output, summed in float64 and rounded once."""
    sums = _sums(exact(data), exact(weight), **s)
    return finished_exactly(sums, *bias, dtype=str(data.dtype), relu=relu)


def flops(**s: int) -> int:
    """Count a multiplication and an addition an element of x, tap and output channel, cropped ones too.

    One more an output for bias and for ReLU.
    """
    p, q = _outputs(s)
    products = s["n"] * s["h"] * s["w"] * s["ci"] * s["kh"] * s["kw"] * s["co"] // s["groups"]
    return 2 * products + s["n"] * p * q * s["co"] * (s["bias"] + s["relu"])


def _numpy(data: np.ndarray, weight: np.ndarray, *bias: np.ndarray, **s: int) -> Call:
    return lambda: finished_in_place(_sums(data, weight, **s), *bias, relu=s["relu"])


def _torch(torch: Any, data: Any, weight: Any, *bias: Any, **s: int) -> dict[str, Call]:
    b, transposed = bias[0] if bias else None, torch.nn.functional.conv_transpose2d
    last = torch.relu_ if s["relu"] else lambda y: y
    options = s["stride"], s["padding"], s["output_padding"], s["groups"]
    return in_both_formats(torch, data, lambda x: lambda: last(transposed(x, weight, b, *options)))


def _onnx(node: Any, *names: str, **s: int) -> list[Any]:
    options = {"strides": [s["stride"]] * 2, "pads": [s["padding"]] * 4, "group": s["groups"]}
    options["output_padding"] = [s["output_padding"]] * 2
    if not s["relu"]:
        return [node("ConvTranspose", names, ["y"], **options)]
    return [node("ConvTranspose", names, ["z"], **options), node("Relu", ["z"], ["y"])]


def _adapt(data: np.ndarray, weight: np.ndarray, *bias: np.ndarray, **_: int) -> Sequence[np.ndarray]:
    """Return data as (n, ci, h, w) and weight as (ci, co / groups, kh, kw)."""
    first, last = data.transpose(0, 3, 1, 2), weight.transpose(2, 3, 0, 1)
    return [np.ascontiguousarray(first), np.ascontiguousarray(last), *bias]


def _layer(source: str, size: int, ci: int, co: int, kernel: int, **more: int) -> Example:
    """Build one layer's shape: a square image, a square kernel."""
    square = {"n": 1, "h": size, "w": size, "ci": ci, "co": co, "kh": kernel, "kw": kernel}
    return Example({**square, **more}, source)


def _odd(why: str, h: int, w: int, ci: int, co: int, kh: int, kw: int, **more: int) -> Example:
    return Example({"n": 1, "h": h, "w": w, "ci": ci, "co": co, "kh": kh, "kw": kw, **more}, f"odd: {why}")


CONV2D_TRANSPOSE = Operator(
    name="conv2d_transpose",
    dims=(
        *(Dim(name) for name in ("n", "h", "w", "ci", "co", "kh", "kw")),
        Dim("stride", default=1),
        Dim("padding", default=0, minimum=0),
        Dim("output_padding", default=0, minimum=0),
        Dim("groups", default=1),
        Dim("bias", default=0, choices=(0, 1)),
        Dim("relu", default=0, choices=(0, 1)),
    ),
    define=define,
    reference=reference,
    flops=flops,
    check=check,
    dtypes=DTYPES,
    libraries=Libraries(
        _numpy, _torch, _onnx, weights=(1, 2), adapt=_adapt, restore=lambda y, **_: y.transpose(0, 2, 3, 1)
    ),
    examples=(
        _layer("U-Net, 512x512 pixels, first expansion", 32, 1024, 512, 2, stride=2, bias=1),
        _layer("U-Net, 512x512 pixels, second expansion", 64, 512, 256, 2, stride=2, bias=1),
        _layer("U-Net, 512x512 pixels, last expansion", 256, 128, 64, 2, stride=2, bias=1),
        _layer("DCGAN, 4x4 to 8x8 pixels", 4, 512, 256, 4, stride=2, padding=1),
        _layer("DCGAN, 16x16 to 32x32 pixels", 16, 128, 64, 4, stride=2, padding=1),
        _layer("DCGAN, 32x32 to 64x64 pixels", 32, 64, 3, 4, stride=2, padding=1),
        _layer("Mask R-CNN, mask head, 16 regions", 14, 256, 256, 2, n=16, stride=2, bias=1, relu=1),
        _layer("FCN-8s, 21 classes to the image's size", 28, 21, 21, 16, stride=8, padding=4),
        _layer("FSRCNN, enlarged by three", 64, 56, 1, 9, stride=3, padding=3, bias=1),
        _layer("U-Net, 2 images, larger than the caches", 256, 128, 64, 2, n=2, stride=2, bias=1),
        _layer("ERFNet, second expansion", 128, 64, 16, 3, stride=2, padding=1, output_padding=1, bias=1),
        _layer("CenterNet, one of its bilinear expansions", 32, 128, 128, 4, stride=2, padding=1, groups=128),
        _odd("primes", 7, 11, 5, 13, 3, 5, stride=2, padding=1),
        _odd("primes, not divided by the stride", 5, 3, 7, 17, 5, 4, stride=3, padding=2, bias=1),
        _odd("whole phases that fill no vector", 5, 3, 7, 3, 4, 4, stride=2, padding=1),
        _odd("primes, five groups", 7, 3, 15, 35, 4, 3, stride=3, padding=1, output_padding=2, groups=5),
        _odd("a kernel smaller than the stride", 3, 4, 2, 3, 1, 2, stride=3, bias=1, relu=1),
        _odd("one element", 1, 1, 1, 1, 1, 1),
    ),
)
