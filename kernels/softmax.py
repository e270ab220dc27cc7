r"""Softmax and its logarithm along the rows of a matrix: attention weights, and the odds of the next token.

.. math::
    \mathrm{softmax}(x)_{mn} = \frac{e^{x_{mn} - \max_k x_{mk}}}{\sum_k e^{x_{mk} - \max_k x_{mk}}}
    \qquad
    \mathrm{log\_softmax}(x)_{mn} = x_{mn} - \max_k x_{mk} - \log \sum_k e^{x_{mk} - \max_k x_{mk}}

x and the output are (m, n); a tensor of more dimensions is flattened into these two, the innermost last.
With the row's maximum subtracted no exponential overflows and no sum is 0, whatever finite values there are;
-inf, which masks a position out, gives 0 and -inf. Exponentials are powers of two, which take fewer steps: an
element 20 below the maximum, 2e-9 of it, is right to 2e-6. float16 and bfloat16 are computed in float32 and
rounded once. An exponential an element for one read and one write: memory bandwidth is the limit of a good
kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import te

from .arithmetic import LOG2_E, exact, rounded, rounded_to, sum_dtype
from .libraries import Libraries
from .operator import Dim, Example, Operator


def define_softmax(m: int, n: int, dtype: str) -> list[Any]:
    """Return the TE tensors x and y."""
    x = te.placeholder((m, n), dtype, name="x")
    return [x, rounded_to(softmax(x, 1), dtype)]


def define_log_softmax(m: int, n: int, dtype: str) -> list[Any]:
    """Return the TE tensors x and y."""
    x = te.placeholder((m, n), dtype, name="x")
    return [x, rounded_to(log_softmax(x, 1), dtype)]


def softmax(x: Any, axis: int) -> Any:
    """Return the softmax of a TE tensor along one of its axes, in the type in which it is summed."""
    _, exponential, row_sum = _exponentials(x, axis)
    one = tvm.tirx.const(1, row_sum.dtype)
    # One division a row: a vector's division takes as long as ten multiplications.
    inverse = te.compute(row_sum.shape, lambda *row: one / row_sum[row], name="inverse")
    return te.compute(x.shape, lambda *i: exponential[i] * inverse[_row(i, axis)], name="softmax")


def log_softmax(x: Any, axis: int) -> Any:
    """Return the logarithm of `softmax` of a TE tensor."""
    row_max, _, row_sum = _exponentials(x, axis)
    log_sum = te.compute(row_sum.shape, lambda *row: te.log(row_sum[row]), name="log_sum")

    def logarithm(*i: Any) -> Any:
        row = _row(i, axis)
        return x[i].astype(row_max.dtype) - row_max[row] - log_sum[row]

    return te.compute(x.shape, logarithm, name="log_softmax")


def _exponentials(x: Any, axis: int) -> tuple[Any, Any, Any]:
    """Return the maximum of each row, the exponentials of what is below it, and their sum."""
    wide, rows = sum_dtype(str(x.dtype)), _row(x.shape, axis)
    k, r = (te.reduce_axis((0, x.shape[axis]), name=name) for name in "kr")
    row_max = te.compute(rows, lambda *row: te.max(x[_at(row, axis, k)].astype(wide), axis=k), name="row_max")

    def exponential_of(*i: Any) -> Any:
        below = x[i].astype(wide) - row_max[_row(i, axis)]
        return tvm.tirx.exp2(below * tvm.tirx.const(LOG2_E, wide))

    exponential = te.compute(x.shape, exponential_of, name="exp")
    row_sum = te.compute(rows, lambda *row: te.sum(exponential[_at(row, axis, r)], axis=r), name="row_sum")
    return row_max, exponential, row_sum


def _row(index: Any, axis: int) -> tuple[Any, ...]:
    """Leave an axis out of an index."""
    return (*index[:axis], *index[axis + 1 :])


def _at(row: tuple[Any, ...], axis: int, position: Any) -> tuple[Any, ...]:
    """Put an axis into an index."""
    return (*row[:axis], position, *row[axis:])


def reference_softmax(x: np.ndarray, **_: Any) -> np.ndarray:
    """Return the softmax of each row, in float64 and rounded once."""
    exponential = np.exp(_below_maximum(x))
    return rounded(exponential / exponential.sum(axis=1, keepdims=True), str(x.dtype))


def reference_log_softmax(x: np.ndarray, **_: Any) -> np.ndarray:
    """Return the logarithm of the softmax of each row, in float64 and rounded once."""
    below = _below_maximum(x)
    return rounded(below - np.log(np.exp(below).sum(axis=1, keepdims=True)), str(x.dtype))


def _below_maximum(x: np.ndarray) -> np.ndarray:
    wide = exact(x)
    return wide - wide.max(axis=1, keepdims=True)


def flops(m: int, n: int) -> int:
    """Count five operations an element, and a division or a logarithm a row.

    The five are a maximum, a subtraction, an exponential, an addition and what applies the sum.
    """
    return 5 * m * n + m


def _numpy_softmax(x: np.ndarray, **_: int) -> Any:
    y = np.empty_like(x)

    def call() -> np.ndarray:
        np.subtract(x, x.max(axis=1, keepdims=True), out=y)
        np.exp(y, out=y)
        return np.divide(y, y.sum(axis=1, keepdims=True), out=y)

    return call


def _numpy_log_softmax(x: np.ndarray, **_: int) -> Any:
    y = np.empty_like(x)

    def call() -> np.ndarray:
        np.subtract(x, x.max(axis=1, keepdims=True), out=y)
        return np.subtract(y, np.log(np.exp(y).sum(axis=1, keepdims=True)), out=y)

    return call


def _torch_softmax(torch: Any, x: Any, **_: int) -> Any:
    return lambda: torch.softmax(x, dim=1)


def _torch_log_softmax(torch: Any, x: Any, **_: int) -> Any:
    return lambda: torch.log_softmax(x, dim=1)


def _onnx_softmax(node: Any, x: str, **_: int) -> Any:
    return [node("Softmax", [x], ["y"], axis=1)]


def _onnx_log_softmax(node: Any, x: str, **_: int) -> Any:
    return [node("LogSoftmax", [x], ["y"], axis=1)]


_DTYPES = ("float32", "float64", "float16", "bfloat16")

_NOT_OF_A_MODEL = (
    Example({"m": 16384, "n": 1024}, "64 MiB, larger than the caches"),
    Example({"m": 127, "n": 131}, "odd: primes"),
    Example({"m": 1, "n": 1009}, "odd: one row, a prime"),
    Example({"m": 7, "n": 3}, "odd: rows shorter than a vector"),
    Example({"m": 5, "n": 1}, "odd: rows of one element"),
    Example({"m": 1, "n": 1}, "odd: one element"),
)

SOFTMAX = Operator(
    name="softmax",
    dims=(Dim("m"), Dim("n")),
    define=define_softmax,
    reference=reference_softmax,
    flops=flops,
    dtypes=_DTYPES,
    libraries=Libraries(_numpy_softmax, _torch_softmax, _onnx_softmax),
    examples=(
        Example({"m": 12 * 128, "n": 128}, "BERT-base, 128 tokens: attention weights of 12 heads"),
        Example({"m": 12 * 384, "n": 384}, "BERT-base, 384 tokens: attention weights of 12 heads"),
        Example({"m": 12 * 197, "n": 197}, "ViT-B/16, one image: attention weights of 12 heads"),
        Example({"m": 12 * 1024, "n": 1024}, "GPT-2, 1024 tokens: attention weights of 12 heads"),
        Example({"m": 32, "n": 4096}, "Llama 2 7B, one token after 4095: attention weights of 32 heads"),
        Example({"m": 1, "n": 50257}, "GPT-2, one token: odds of the next over the vocabulary"),
        Example({"m": 1, "n": 1000}, "ResNet-50, one image: odds of the classes"),
        *_NOT_OF_A_MODEL,
    ),
)

LOG_SOFTMAX = Operator(
    name="log_softmax",
    dims=(Dim("m"), Dim("n")),
    define=define_log_softmax,
    reference=reference_log_softmax,
    flops=flops,
    dtypes=_DTYPES,
    libraries=Libraries(_numpy_log_softmax, _torch_log_softmax, _onnx_log_softmax),
    examples=(
        Example({"m": 128, "n": 30522}, "BERT-base, 128 tokens: log-odds over the vocabulary"),
        Example({"m": 1, "n": 50257}, "GPT-2, one token: log-odds of the next over the vocabulary"),
        Example({"m": 4, "n": 32000}, "Llama 2 7B, a beam of 4: log-odds of the next token"),
        Example({"m": 1, "n": 128256}, "Llama 3 8B, one token: log-odds of the next over the vocabulary"),
        Example({"m": 32, "n": 1000}, "ResNet-50, 32 images: log-odds of the classes"),
        *_NOT_OF_A_MODEL,
    ),
)
