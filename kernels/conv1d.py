r"""One-dimensional convolution as neural networks mean it (a correlation); bias and ReLU on demand.

.. math:: y_{n,p,o} = b_o + \sum_{i,c} x_{n,\; p s + i d - r,\; c} \; w_{i,c,o}

with stride s, padding r (zeros at both ends) and dilation d. x is (n, l, ci), weight is (kernel, ci, co),
bias is (co), y is (n, p, co) with p = (l + 2 r - d (kernel - 1) - 1) // s + 1.

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
from .libraries import Call, Libraries
from .operator import Dim, Example, Operator


def _positions(length: int, **s: int) -> int:
    """Count the outputs along the length."""
    return (length + 2 * s["padding"] - s["dilation"] * (s["kernel"] - 1) - 1) // s["stride"] + 1


def check(**s: int) -> None:
    """Raise InputError where no output is left."""
    if s["dilation"] * (s["kernel"] - 1) + 1 > s["l"] + 2 * s["padding"]:
        raise InputError(
            "dilation * (kernel - 1) + 1 must be at most l + 2 * padding: "
            + ", ".join(f"{name}={s[name]}" for name in ("kernel", "l", "dilation", "padding"))
        )


def define(dtype: str, **s: int) -> list[Any]:
    """Return the TE tensors data, weight, bias where asked for, and the output."""
    wide = sum_dtype(dtype)
    data = te.placeholder((s["n"], s["l"], s["ci"]), dtype, name="data")
    weight = te.placeholder((s["kernel"], s["ci"], s["co"]), dtype, name="weight")
    x = topi.nn.pad(data, (0, s["padding"], 0), name="pad") if s["padding"] else data
    i, c = (te.reduce_axis((0, s[extent]), name=name) for name, extent in (("i", "kernel"), ("c", "ci")))

    def at(n: Any, p: Any, o: Any) -> Any:
        sample = x[n, p * s["stride"] + i * s["dilation"], c]
        return te.sum(sample.astype(wide) * weight[i, c, o].astype(wide), axis=[i, c])

    y = te.compute((s["n"], _positions(s["l"], **s), s["co"]), at, name="conv1d")
    return finished([data, weight], y, 2, s["bias"], s["relu"])


def _sums(data: np.ndarray, weight: np.ndarray, **s: int) -> np.ndarray:
    """Sum one matrix product a tap, in the type of the data."""
    margin = (s["padding"],) * 2
    padded = np.pad(data, ((0, 0), margin, (0, 0))) if s["padding"] else data
    count = _positions(s["l"], **s)
    y = np.zeros((s["n"], count, s["co"]), data.dtype)
    for i in range(s["kernel"]):
        y += padded[:, i * s["dilation"] :: s["stride"]][:, :count] @ weight[i]
    return y


def reference(data: np.ndarray, weight: np.ndarray, *bias: np.ndarray, relu: int, **s: int) -> np.ndarray:
    """Return the output, summed in float64 and rounded once."""
    sums = _sums(exact(data), exact(weight), **s)
    return finished_exactly(sums, *bias, dtype=str(data.dtype), relu=relu)


def flops(**s: int) -> int:
    """Count a multiplication and an addition a tap and channel; one more an output for bias and for ReLU."""
    outputs = s["n"] * _positions(s["l"], **s) * s["co"]
    return outputs * (2 * s["kernel"] * s["ci"] + s["bias"] + s["relu"])


def _numpy(data: np.ndarray, weight: np.ndarray, *bias: np.ndarray, **s: int) -> Call:
    return lambda: finished_in_place(_sums(data, weight, **s), *bias, relu=s["relu"])


def _torch(torch: Any, data: Any, weight: Any, *bias: Any, **s: int) -> Call:
    b, conv1d = bias[0] if bias else None, torch.nn.functional.conv1d
    options = (s["stride"], s["padding"], s["dilation"])
    if s["relu"]:
        return lambda: torch.relu_(conv1d(data, weight, b, *options))
    return lambda: conv1d(data, weight, b, *options)


def _onnx(node: Any, *names: str, **s: int) -> list[Any]:
    options = {"strides": [s["stride"]], "dilations": [s["dilation"]], "pads": [s["padding"]] * 2}
    if not s["relu"]:
        return [node("Conv", names, ["y"], **options)]
    return [node("Conv", names, ["z"], **options), node("Relu", ["z"], ["y"])]


def _adapt(data: np.ndarray, weight: np.ndarray, *bias: np.ndarray, **_: int) -> Sequence[np.ndarray]:
    """Return data as (n, ci, l) and weight as (co, ci, kernel)."""
    first, last = data.transpose(0, 2, 1), weight.transpose(2, 1, 0)
    return [np.ascontiguousarray(first), np.ascontiguousarray(last), *bias]


def _layer(source: str, length: int, ci: int, co: int, kernel: int, **more: int) -> Example:
    return Example({"n": 1, "l": length, "ci": ci, "co": co, "kernel": kernel, **more}, source)


CONV1D = Operator(
    name="conv1d",
    dims=(
        *(Dim(name) for name in ("n", "l", "ci", "co", "kernel")),
        Dim("stride", default=1),
        Dim("padding", default=0, minimum=0),
        Dim("dilation", default=1),
        Dim("bias", default=0, choices=(0, 1)),
        Dim("relu", default=0, choices=(0, 1)),
    ),
    define=define,
    reference=reference,
    flops=flops,
    check=check,
    dtypes=DTYPES,
    libraries=Libraries(
        _numpy, _torch, _onnx, weights=(1, 2), adapt=_adapt, restore=lambda y, **_: y.transpose(0, 2, 1)
    ),
    examples=(
        _layer("Whisper base, first convolution, 30 s", 3000, 80, 512, 3, padding=1, bias=1),
        _layer("Whisper base, second convolution, 30 s", 3000, 512, 512, 3, stride=2, padding=1, bias=1),
        _layer("wav2vec 2.0, first convolution, 1 s", 16000, 1, 512, 10, stride=5),
        _layer("wav2vec 2.0, second convolution, 1 s", 3199, 512, 512, 3, stride=2),
        _layer("wav2vec 2.0, last convolution, 1 s", 99, 512, 512, 2, stride=2),
        _layer("WaveNet, a layer dilated by 512, 1 s at 16 kHz", 16512, 64, 128, 2, dilation=512),
        _layer("HiFi-GAN, first convolution, 100 frames", 100, 80, 512, 7, padding=3, bias=1),
        _layer("HiFi-GAN, residual block dilated by 5", 800, 256, 256, 11, padding=25, dilation=5, bias=1),
        _layer("Conformer, expansion of the convolution module, 10 s", 250, 256, 512, 1, bias=1),
        _layer("wav2vec 2.0, second convolution, 30 s, larger than the caches", 95999, 512, 512, 3, stride=2),
        _layer("odd: primes", 37, 13, 23, 5),
        _layer("odd: strided, padded, dilated", 41, 7, 19, 3, stride=2, padding=3, dilation=2, bias=1),
        _layer("odd: smaller than a vector", 3, 2, 3, 3, padding=1, bias=1, relu=1),
        _layer("odd: one element", 1, 1, 1, 1),
    ),
)
