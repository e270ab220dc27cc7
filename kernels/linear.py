r"""A fully connected layer with what follows it in a network, fused: bias, activation, residual.

.. math:: y_{mn} = f\Bigl(b_n + \sum_k x_{mk} w_{nk}\Bigr) + r_{mn}

x is (m, k), weight is (n, k) as PyTorch and ONNX store it (one row an output), bias is (n), residual and y
are (m, n). f is one of

- ``none``, ``relu``: v, and max(0, v);
- ``gelu``: v (1 + erf(v / sqrt 2)) / 2; ``gelu_tanh``, its approximation by tanh (GPT-2);
- ``silu``: v / (1 + e^-v).

float16 and bfloat16 are computed in float32 and rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te

from .activations import gelu, gelu_exactly, gelu_tanh, gelu_tanh_exactly, silu, silu_exactly
from .arithmetic import exact, rounded, rounded_to, sum_dtype
from .libraries import Libraries
from .operator import Dim, Example, Operator

_ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], Any], int]] = {
    "none": (lambda v: v, lambda v: v, 0),
    "relu": (lambda v: te.max(v, 0), lambda v: np.maximum(v, 0), 1),
    "gelu": (gelu, gelu_exactly, 5),
    "gelu_tanh": (gelu_tanh, gelu_tanh_exactly, 10),
    "silu": (silu, silu_exactly, 4),
}
"""Each activation in TE, in NumPy, and how many operations it counts."""


def define(m: int, n: int, k: int, activation: str, bias: int, residual: int, dtype: str) -> list[Any]:
    """Return the TE tensors x, weight, bias and residual where there are such, and y."""
    wide = sum_dtype(dtype)
    x = te.placeholder((m, k), dtype, name="x")
    weight = te.placeholder((n, k), dtype, name="weight")
    inputs, r = [x, weight], te.reduce_axis((0, k), name="k")
    y = te.compute(
        (m, n), lambda i, j: te.sum(x[i, r].astype(wide) * weight[j, r].astype(wide), axis=r), name="matmul"
    )
    if bias:
        product, b = y, te.placeholder((n,), dtype, name="bias")
        inputs.append(b)
        y = te.compute((m, n), lambda i, j: product[i, j] + b[j].astype(wide), name="bias_add")
    if activation != "none":
        value, function = y, _ACTIVATIONS[activation][0]
        y = te.compute((m, n), lambda i, j: function(value[i, j]), name=activation)
    if residual:
        active, beside = y, te.placeholder((m, n), dtype, name="residual")
        inputs.append(beside)
        y = te.compute((m, n), lambda i, j: active[i, j] + beside[i, j].astype(wide), name="residual_add")
    return [*inputs, rounded_to(y, dtype)]


def reference(
    x: np.ndarray, weight: np.ndarray, *more: np.ndarray, activation: str, bias: int, residual: int, **_: int
) -> np.ndarray:
    """Return y, in float64 and rounded once."""
    y = exact(x) @ exact(weight).T
    if bias:
        y = y + exact(more[0])
    y = _ACTIVATIONS[activation][1](y)
    return rounded(y + exact(more[-1]) if residual else y, str(x.dtype))


def flops(m: int, n: int, k: int, activation: str, bias: int, residual: int) -> int:
    """Count a multiplication and an addition a term; what an output's bias, activation and residual take."""
    return 2 * m * n * k + m * n * (bias + residual + _ACTIVATIONS[activation][2])


def _numpy(
    x: np.ndarray, weight: np.ndarray, *more: np.ndarray, activation: str, bias: int, residual: int, **_: int
) -> Any:
    """Not with an activation of which NumPy lacks the function."""
    if activation not in ("none", "relu"):
        return None
    y = np.empty((x.shape[0], weight.shape[0]), x.dtype)

    def call() -> np.ndarray:
        np.matmul(x, weight.T, out=y)
        if bias:
            np.add(y, more[0], out=y)
        if activation == "relu":
            np.maximum(y, 0, out=y)
        return np.add(y, more[-1], out=y) if residual else y

    return call


def _torch(
    torch: Any, x: Any, weight: Any, *more: Any, activation: str, bias: int, residual: int, **_: int
) -> Any:
    f = torch.nn.functional
    functions = {
        "none": lambda v: v,
        "relu": torch.relu_,
        "gelu": f.gelu,
        "gelu_tanh": lambda v: f.gelu(v, approximate="tanh"),
        "silu": lambda v: f.silu(v, inplace=True),
    }
    function = functions[activation]

    def call() -> Any:
        y = function(f.linear(x, weight, more[0] if bias else None))
        return y.add_(more[-1]) if residual else y

    return call


def _onnx(
    node: Any, x: str, weight: str, *more: str, activation: str, bias: int, residual: int, **_: int
) -> Any:
    nodes = [node("Gemm", [x, weight, *more[:bias]], ["v"], transB=1)]
    act = {
        "none": [node("Identity", ["v"], ["a"])],
        "relu": [node("Relu", ["v"], ["a"])],
        "gelu": [node("Gelu", ["v"], ["a"])],
        "gelu_tanh": [node("Gelu", ["v"], ["a"], approximate="tanh")],
        "silu": [node("Sigmoid", ["v"], ["s"]), node("Mul", ["v", "s"], ["a"])],
    }
    end = node("Add", ["a", more[-1]], ["y"]) if residual else node("Identity", ["a"], ["y"])
    return [*nodes, *act[activation], end]


LINEAR = Operator(
    name="linear",
    dims=(
        Dim("m"),
        Dim("n"),
        Dim("k"),
        Dim("activation", default="none", choices=tuple(_ACTIVATIONS)),
        Dim("bias", default=1, choices=(0, 1)),
        Dim("residual", default=0, choices=(0, 1)),
    ),
    define=define,
    reference=reference,
    flops=flops,
    dtypes=("float32", "float64", "float16", "bfloat16"),
    libraries=Libraries(_numpy, _torch, _onnx, weights=(1,)),
    examples=(
        Example({"m": 128, "n": 3072, "k": 768, "activation": "gelu"}, "BERT-base, 128 tokens: feed-forward"),
        Example(
            {"m": 128, "n": 768, "k": 3072, "residual": 1}, "BERT-base, 128 tokens: feed-forward, second"
        ),
        Example(
            {"m": 256, "n": 3072, "k": 768, "activation": "gelu_tanh"}, "GPT-2, 256 tokens: feed-forward"
        ),
        Example(
            {"m": 16, "n": 11008, "k": 4096, "activation": "silu", "bias": 0}, "Llama 7B, 16 tokens: gate"
        ),
        Example({"m": 1, "n": 4096, "k": 4096, "bias": 0, "residual": 1}, "Llama 7B, one token: output"),
        Example({"m": 31, "n": 37, "k": 41, "activation": "gelu", "residual": 1}, "odd: primes"),
        Example({"m": 9, "n": 33, "k": 16, "activation": "silu", "bias": 0}, "odd: more than one vector"),
        Example({"m": 4, "n": 20, "k": 12, "activation": "gelu_tanh"}, "odd: less than two vectors"),
        Example({"m": 1, "n": 1, "k": 1, "residual": 1}, "odd: one element"),
    ),
)
