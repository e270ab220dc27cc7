r"""Two-dimensional transposed convolution: the gradient of a convolution, used to enlarge images.

.. math:: y_{n,p,q,o} = b_o + \sum_{i,j,c} x_{n,u,v,c} \; w_{i,j,c,o}
    \quad\text{over}\quad u s + i = p + r,\; v s + j = q + r

with stride s and padding r, which crops the output. x is (n, h, w, ci), weight is (kh, kw, ci, co), bias is
(co), y is (n, p, q, co) with height p = (h - 1) s - 2 r + kh, width likewise.

Of a row p + r = s a + b with b < s only the taps i = b + s t exist, and they meet the row a - t: the sum
runs over t alone, ceil(kh / s) taps, and no inserted zero is multiplied. Where s does not divide the kernel
it is filled up with zeros.

float16 and bfloat16 are summed in float32 and rounded once, at the end; int8 is summed in int32, which is
also the type of bias and output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, topi

from ..machine.errors import InputError
from .arithmetic import DTYPES, exact, sum_dtype
from .epilogue import finished, finished_exactly, finished_in_place
from .layouts import in_both_formats
from .libraries import Call, Libraries
from .operator import Dim, Example, Operator

_AXES = (("h", "kh"), ("w", "kw"))


def _outputs(s: dict[str, int]) -> tuple[int, int]:
    """Return the output's height and width."""
    p, q = ((s[size] - 1) * s["stride"] - 2 * s["padding"] + s[kernel] for size, kernel in _AXES)
    return p, q


def check(**s: int) -> None:
    """Raise InputError where no output is left."""
    for (size, kernel), output in zip(_AXES, _outputs(s), strict=True):
        if output < 1:
            raise InputError(
                f"2 * padding must be less than ({size} - 1) * stride + {kernel}: padding={s['padding']}, "
                f"{size}={s[size]}, stride={s['stride']}, {kernel}={s[kernel]}"
            )


def define(dtype: str, **s: int) -> list[Any]:
    """Return the TE tensors data, weight, bias where asked for, and the output."""
    wide, stride, padding = sum_dtype(dtype), s["stride"], s["padding"]
    data = te.placeholder((s["n"], s["h"], s["w"], s["ci"]), dtype, name="data")
    weight = te.placeholder((s["kh"], s["kw"], s["ci"], s["co"]), dtype, name="weight")
    taps = [-(-s[kernel] // stride) for _, kernel in _AXES]
    # Rows that are cropped whole are none of z's.
    first = padding // stride
    before = [max(0, t - 1 - first) for t in taps]
    after = [max(0, (s[kernel] - 1 - padding) // stride) for _, kernel in _AXES]
    missing = [t * stride - s[kernel] for t, (_, kernel) in zip(taps, _AXES, strict=True)]
    x = _filled(data, (0, *before, 0), (0, *after, 0), "pad")
    w = _filled(weight, (0, 0, 0, 0), (*missing, 0, 0), "weight_pad")
    i, j = (te.reduce_axis((0, t), name=name) for name, t in zip("ij", taps, strict=True))
    c, co = te.reduce_axis((0, s["ci"]), name="c"), s["co"]

    def tap(i: Any, j: Any, c: Any, m: Any) -> Any:
        phase = m // co
        return w[phase // stride + stride * i, phase % stride + stride * j, c, m % co]

    # Outputs that lie stride apart meet the same taps: one convolution computes all phases, as its channels.
    phases = stride * stride * co
    by_phase = te.compute((*taps, s["ci"], phases), tap, name="weight_by_phase")
    places = [(p - 1 + padding) // stride + 1 - first for p in _outputs(s)]

    def at(n: Any, row: Any, column: Any, m: Any) -> Any:
        pixel = x[n, row + first + before[0] - i, column + first + before[1] - j, c]
        return te.sum(pixel.astype(wide) * by_phase[i, j, c, m].astype(wide), axis=[i, j, c])

    z = te.compute((s["n"], *places, phases), at, name="phases")

    def placed(n: Any, p: Any, q: Any, o: Any) -> Any:
        (row, top), (column, left) = (_met(place + padding, stride) for place in (p, q))
        return z[n, row - first, column - first, (top * stride + left) * co + o]

    y = te.compute((s["n"], *_outputs(s), co), placed, name="conv2d_transpose")
    return finished([data, weight], y, 3, s["bias"], s["relu"])


def _met(place: Any, stride: int) -> tuple[Any, Any]:
    """Return the last row that reaches a place of the uncropped output, and the tap by which it does.

    The tap is a difference: of two remainders of sums in one index TVM 0.27 makes wrong ones once the loops
    over both places are fused, (f mod 6 + 1) mod 2 becomes (f + 6) mod 2.
    """
    row = place // stride
    return row, place - row * stride


def _filled(tensor: Any, before: Sequence[int], after: Sequence[int], name: str) -> Any:
    """Pad with zeros where there are any to add."""
    return topi.nn.pad(tensor, before, after, name=name) if any((*before, *after)) else tensor


def _sums(data: np.ndarray, weight: np.ndarray, **s: int) -> np.ndarray:
    """Add each tap's matrix product where it belongs, in the type of the data, and crop."""
    stride, padding, (p, q) = s["stride"], s["padding"], _outputs(s)
    whole = np.zeros((s["n"], p + 2 * padding, q + 2 * padding, s["co"]), data.dtype)
    for i, j in np.ndindex(s["kh"], s["kw"]):
        whole[:, i::stride, j::stride][:, : s["h"], : s["w"]] += data @ weight[i, j]
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
    products = s["n"] * s["h"] * s["w"] * s["ci"] * s["kh"] * s["kw"] * s["co"]
    return 2 * products + s["n"] * p * q * s["co"] * (s["bias"] + s["relu"])


def _numpy(data: np.ndarray, weight: np.ndarray, *bias: np.ndarray, **s: int) -> Call:
    return lambda: finished_in_place(_sums(data, weight, **s), *bias, relu=s["relu"])


def _torch(torch: Any, data: Any, weight: Any, *bias: Any, **s: int) -> dict[str, Call]:
    b, transposed = bias[0] if bias else None, torch.nn.functional.conv_transpose2d
    last = torch.relu_ if s["relu"] else lambda y: y
    return in_both_formats(
        torch, data, lambda x: lambda: last(transposed(x, weight, b, s["stride"], s["padding"]))
    )


def _onnx(node: Any, *names: str, **s: int) -> list[Any]:
    options = {"strides": [s["stride"]] * 2, "pads": [s["padding"]] * 4}
    if not s["relu"]:
        return [node("ConvTranspose", names, ["y"], **options)]
    return [node("ConvTranspose", names, ["z"], **options), node("Relu", ["z"], ["y"])]


def _adapt(data: np.ndarray, weight: np.ndarray, *bias: np.ndarray, **_: int) -> Sequence[np.ndarray]:
    """Return data as (n, ci, h, w) and weight as (ci, co, kh, kw)."""
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
        _odd("primes", 7, 11, 5, 13, 3, 5, stride=2, padding=1),
        _odd("primes, not divided by the stride", 5, 3, 7, 17, 5, 4, stride=3, padding=2, bias=1),
        _odd("whole phases that fill no vector", 5, 3, 7, 3, 4, 4, stride=2, padding=1),
        _odd("a kernel smaller than the stride", 3, 4, 2, 3, 1, 2, stride=3, bias=1, relu=1),
        _odd("one element", 1, 1, 1, 1, 1, 1),
    ),
)
