r"""Normalisation of the rows of a matrix by their root mean square, as Llama applies it to each token.

.. math::
    y_{mn} = \frac{x_{mn}}{\sqrt{\frac{1}{N} \sum_k x_{mk}^2 + \epsilon}} \gamma_n,
    \quad \epsilon = 10^{-6}

x and y are (m, n), gamma is (n); a tensor of more dimensions is flattened into these two, the innermost last.
float16 and bfloat16 are computed in float32 and rounded once. A layer normalisation without the mean: each
row is read twice, and a row fits into the nearest caches, so memory bandwidth is the limit.

References
----------
Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
Touvron et al., "Llama 2: Open Foundation and Fine-Tuned Chat Models", 2023.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import te

from .arithmetic import exact, rounded, rounded_to, sum_dtype
from .libraries import Libraries
from .operator import Dim, Example, Operator

EPSILON = 1e-6
"""What keeps a row of zeros from a division by 0."""


def define(m: int, n: int, dtype: str) -> list[Any]:
    """Return the TE tensors x, gamma and y."""
    wide = sum_dtype(dtype)
    count, epsilon, one = (tvm.tirx.const(value, wide) for value in (n, EPSILON, 1))
    x = te.placeholder((m, n), dtype, name="x")
    gamma = te.placeholder((n,), dtype, name="gamma")
    k = te.reduce_axis((0, n), name="k")
    square_sum = te.compute(
        (m,), lambda i: te.sum(x[i, k].astype(wide) * x[i, k].astype(wide), axis=k), name="square_sum"
    )
    inverse = te.compute((m,), lambda i: one / te.sqrt(square_sum[i] / count + epsilon), name="inverse")
    y = te.compute(
        (m, n), lambda i, j: x[i, j].astype(wide) * inverse[i] * gamma[j].astype(wide), name="rms_norm"
    )
    return [x, gamma, rounded_to(y, dtype)]


def reference(x: np.ndarray, gamma: np.ndarray, **_: Any) -> np.ndarray:
    """Return y, in float64 and rounded once."""
    wide = exact(x)
    root = np.sqrt(np.square(wide).mean(axis=1, keepdims=True) + EPSILON)
    return rounded(wide / root * exact(gamma), str(x.dtype))


def flops(m: int, n: int) -> int:
    """Count two multiplications more than the square and its addition an element; four a row."""
    return 4 * m * n + 4 * m


def _numpy(x: np.ndarray, gamma: np.ndarray, **_: int) -> Any:
    y = np.empty_like(x)

    def call() -> np.ndarray:
        mean = np.einsum("mn,mn->m", x, x) / x.dtype.type(x.shape[1])
        np.multiply(x, (1 / np.sqrt(mean + x.dtype.type(EPSILON)))[:, None], out=y)
        return np.multiply(y, gamma, out=y)

    return call


def _torch(torch: Any, x: Any, gamma: Any, **shape: int) -> Any:
    return lambda: torch.nn.functional.rms_norm(x, (shape["n"],), gamma, EPSILON)


def _onnx(node: Any, x: str, gamma: str, **_: int) -> Any:
    """Spell it out, as Llama is exported: the operator set has none of its own before version 23."""
    nodes = [
        node("Pow", [x, "two"], ["squares"]),
        node("ReduceMean", ["squares", "axes"], ["mean"], keepdims=1),
        node("Add", ["mean", "epsilon"], ["positive"]),
        node("Sqrt", ["positive"], ["root"]),
        node("Div", [x, "root"], ["scaled"]),
        node("Mul", ["scaled", gamma], ["y"]),
    ]
    numbers = {"two": np.float32(2), "epsilon": np.float32(EPSILON)}
    return nodes, {**{name: np.array(number) for name, number in numbers.items()}, "axes": np.array([-1])}


RMS_NORM = Operator(
    name="rms_norm",
    dims=(Dim("m"), Dim("n")),
    define=define,
    reference=reference,
    flops=flops,
    dtypes=("float32", "float64", "float16", "bfloat16"),
    libraries=Libraries(_numpy, _torch, _onnx, weights=(1,)),
    examples=(
        Example({"m": 1, "n": 4096}, "Llama 2 7B, one token"),
        Example({"m": 128, "n": 4096}, "Llama 2 7B, 128 tokens"),
        Example({"m": 1, "n": 8192}, "Llama 2 70B, one token"),
        Example({"m": 512, "n": 2048}, "TinyLlama 1.1B, 512 tokens"),
        Example({"m": 4096, "n": 4096}, "Llama 2 7B, 4096 tokens: 64 MiB, larger than the caches"),
        Example({"m": 127, "n": 131}, "odd: primes"),
        Example({"m": 1, "n": 1009}, "odd: one row, a prime"),
        Example({"m": 7, "n": 3}, "odd: rows shorter than a vector"),
        Example({"m": 1, "n": 1}, "odd: one element"),
    ),
)
