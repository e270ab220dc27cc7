r"""Layer normalisation of the rows of a matrix, as transformers apply it to each token.

.. math::
    y_{mn} = \frac{x_{mn} - \mu_m}{\sqrt{\sigma^2_m + \epsilon}} \gamma_n + \beta_n,
    \quad \mu_m = \frac{1}{N} \sum_n x_{mn},
    \quad \sigma^2_m = \frac{1}{N} \sum_n (x_{mn} - \mu_m)^2,
    \quad \epsilon = 10^{-5}

x and y are (m, n), gamma and beta are (n); a tensor of more dimensions is flattened into these two, the
innermost last. The variance is that of the centred values: the difference of two large means would lose its
digits. A mean far larger than the deviation still costs some: float32 rounds x - mean to 6e-8 of the mean.
float16 and bfloat16 are computed in float32 and rounded once.

References
----------
Ba et al., "Layer Normalization", 2016.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import te

from .arithmetic import exact, rounded, rounded_to, sum_dtype
from .libraries import Libraries
from .operator import Dim, Example, Operator

EPSILON = 1e-5
"""What keeps a row of equal values from a division by 0."""


def define(m: int, n: int, dtype: str) -> list[Any]:
    """Return the TE tensors x, gamma, beta and y."""
    wide = sum_dtype(dtype)
    count, epsilon, one = (tvm.tirx.const(value, wide) for value in (n, EPSILON, 1))
    x = te.placeholder((m, n), dtype, name="x")
    gamma, beta = (te.placeholder((n,), dtype, name=name) for name in ("gamma", "beta"))
    k, r = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="r")

    def centred(i: Any, j: Any) -> Any:
        return x[i, j].astype(wide) - mean[i]

    row_sum = te.compute((m,), lambda i: te.sum(x[i, k].astype(wide), axis=k), name="row_sum")
    mean = te.compute((m,), lambda i: row_sum[i] / count, name="mean")
    square_sum = te.compute((m,), lambda i: te.sum(centred(i, r) * centred(i, r), axis=r), name="square_sum")
    inverse = te.compute((m,), lambda i: one / te.sqrt(square_sum[i] / count + epsilon), name="inverse")
    y = te.compute(
        (m, n),
        lambda i, j: centred(i, j) * inverse[i] * gamma[j].astype(wide) + beta[j].astype(wide),
        name="layer_norm",
    )
    return [x, gamma, beta, rounded_to(y, dtype)]


def reference(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, **_: Any) -> np.ndarray:
    """Return y, in float64 and rounded once."""
    centred = exact(x) - exact(x).mean(axis=1, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + EPSILON)
    return rounded(centred / deviation * exact(gamma) + exact(beta), str(x.dtype))


def flops(m: int, n: int) -> int:
    """Count eight operations an element: one for the mean, three for the variance, four for the output.

    Five a row: two divisions by n, the addition of epsilon, a root and a division.
    """
    return 8 * m * n + 5 * m


def _numpy(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, **_: int) -> Any:
    y = np.empty_like(x)

    def call() -> np.ndarray:
        np.subtract(x, x.mean(axis=1, keepdims=True), out=y)
        variance = np.einsum("mn,mn->m", y, y) / x.dtype.type(x.shape[1])
        np.multiply(y, (1 / np.sqrt(variance + x.dtype.type(EPSILON)))[:, None], out=y)
        np.multiply(y, gamma, out=y)
        return np.add(y, beta, out=y)

    return call


def _torch(torch: Any, x: Any, gamma: Any, beta: Any, **shape: int) -> Any:
    return lambda: torch.nn.functional.layer_norm(x, (shape["n"],), gamma, beta, EPSILON)


def _onnx(node: Any, x: str, gamma: str, beta: str, **_: int) -> Any:
    return [node("LayerNormalization", [x, gamma, beta], ["y"], axis=1, epsilon=EPSILON)]


LAYER_NORM = Operator(
    name="layer_norm",
    dims=(Dim("m"), Dim("n")),
    define=define,
    reference=reference,
    flops=flops,
    dtypes=("float32", "float64", "float16", "bfloat16"),
    libraries=Libraries(_numpy, _torch, _onnx, weights=(1, 2)),
    examples=(
        Example({"m": 128, "n": 768}, "BERT-base, 128 tokens"),
        Example({"m": 384, "n": 1024}, "BERT-large, 384 tokens"),
        Example({"m": 1024, "n": 768}, "GPT-2, 1024 tokens"),
        Example({"m": 1, "n": 1600}, "GPT-2 XL, one token"),
        Example({"m": 197, "n": 768}, "ViT-B/16, one image"),
        Example({"m": 3136, "n": 96}, "Swin-T, one image: first stage, 56x56 patches"),
        Example({"m": 16384, "n": 1024}, "64 MiB, larger than the caches"),
        Example({"m": 127, "n": 131}, "odd: primes"),
        Example({"m": 1, "n": 1009}, "odd: one row, a prime"),
        Example({"m": 7, "n": 5}, "odd: rows shorter than a vector"),
        Example({"m": 1, "n": 1}, "odd: one element"),
    ),
)
