"""Chains of operations element by element in NumPy, PyTorch and ONNX Runtime.

NumPy has no error function; its other twins compute in place, one pass an operation.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np

from .libraries import Call, Libraries


def _into(write: Callable[..., None]) -> Callable[..., Call]:
    """Make NumPy's twin of a function that writes its result into its last argument."""

    def made(*arrays: np.ndarray, **_: int) -> Call:
        y = np.empty_like(arrays[0])

        def call() -> np.ndarray:
            write(*arrays, y)
            return y

        return call

    return made


def _torch(made: Callable[..., Any]) -> Callable[..., Call]:
    """Make PyTorch's twin of a function that takes the module and the tensors."""
    return lambda torch, *tensors, **_: lambda: made(torch, *tensors)


def _onnx(made: Callable[..., list[Any]], **constants: float) -> Callable[..., Any]:
    """Make ONNX's twin of a function that takes ``node`` and the inputs' names."""
    held = {name: np.float32(value) for name, value in constants.items()}
    return lambda node, *names, **_: (made(node, *names), held)


def _sigmoid(x: np.ndarray, y: np.ndarray) -> None:
    np.negative(x, out=y)
    np.exp(y, out=y)
    y += 1
    np.reciprocal(y, out=y)


def _silu(x: np.ndarray, y: np.ndarray) -> None:
    _sigmoid(x, y)
    y *= x


def _swiglu(a: np.ndarray, b: np.ndarray, y: np.ndarray) -> None:
    _silu(a, y)
    y *= b


def _gelu_tanh(x: np.ndarray, y: np.ndarray) -> None:
    np.multiply(x, x, out=y)
    y *= 0.044715 * sqrt(2 / pi)
    y += sqrt(2 / pi)
    y *= x
    np.tanh(y, out=y)
    y += 1
    y *= x
    y *= 0.5


def _hard_swish(x: np.ndarray, y: np.ndarray) -> None:
    np.add(x, 3, out=y)
    np.clip(y, 0, 6, out=y)
    y *= x
    y /= 6


def _scale_shift_clip(x: np.ndarray, scale: np.ndarray, shift: np.ndarray, y: np.ndarray) -> None:
    np.multiply(x, scale, out=y)
    y += shift
    np.clip(y, 0, 6, out=y)


EXP = Libraries(
    _into(lambda x, y: np.exp(x, out=y)),
    _torch(lambda torch, x: torch.exp(x)),
    _onnx(lambda node, x: [node("Exp", [x], ["y"])]),
)
TANH = Libraries(
    _into(lambda x, y: np.tanh(x, out=y)),
    _torch(lambda torch, x: torch.tanh(x)),
    _onnx(lambda node, x: [node("Tanh", [x], ["y"])]),
)
SIGMOID = Libraries(
    _into(_sigmoid),
    _torch(lambda torch, x: torch.sigmoid(x)),
    _onnx(lambda node, x: [node("Sigmoid", [x], ["y"])]),
)
SILU = Libraries(
    _into(_silu),
    _torch(lambda torch, x: torch.nn.functional.silu(x)),
    _onnx(lambda node, x: [node("Sigmoid", [x], ["s"]), node("Mul", [x, "s"], ["y"])]),
)
GELU_TANH = Libraries(
    _into(_gelu_tanh),
    _torch(lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh")),
    _onnx(lambda node, x: [node("Gelu", [x], ["y"], approximate="tanh")]),
)
BIAS_GELU = Libraries(
    None,
    _torch(lambda torch, x, bias: torch.nn.functional.gelu(x + bias)),
    _onnx(lambda node, x, bias: [node("Add", [x, bias], ["v"]), node("Gelu", ["v"], ["y"])]),
    weights=(1,),
)
SWIGLU = Libraries(
    _into(_swiglu),
    _torch(lambda torch, a, b: torch.nn.functional.silu(a).mul_(b)),
    _onnx(
        lambda node, a, b: [
            node("Sigmoid", [a], ["s"]),
            node("Mul", [a, "s"], ["t"]),
            node("Mul", ["t", b], ["y"]),
        ]
    ),
)
HARD_SWISH = Libraries(
    _into(_hard_swish),
    _torch(lambda torch, x: torch.nn.functional.hardswish(x)),
    _onnx(lambda node, x: [node("HardSwish", [x], ["y"])]),
)
SCALE_SHIFT_CLIP = Libraries(
    _into(_scale_shift_clip),
    _torch(lambda torch, x, scale, shift: torch.addcmul(shift, x, scale).clamp_(0, 6)),
    _onnx(
        lambda node, x, scale, shift: [
            node("Mul", [x, scale], ["s"]),
            node("Add", ["s", shift], ["t"]),
            node("Clip", ["t", "low", "high"], ["y"]),
        ],
        low=0,
        high=6,
    ),
    weights=(1, 2),
)
