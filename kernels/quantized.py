r"""Quantised matrix multiplication, and the fully connected layer of a quantised network.

.. math:: C_{mn} = \sum_k A_{mk} B_{kn}

quantized_matmul: A is (m, k) in uint8, B is (k, n) in int8, C is (m, n) in int32; ONNX's MatMulInteger.

.. math:: y_{mn} = \operatorname{requantized}\Bigl(b_n + \sum_k x_{mk} w_{nk}\Bigr)

quantized_linear: x is (m, k) in uint8, weight is (n, k) in int8 (one row an output), bias is (n) in int32
with the zero point of x already in it, scale is (n) in float32 (of data times weight over output), y is
(m, n) in uint8 with the zero point ``zero``: see `requantization`.

Sums are in int32: of up to 65 000 products they are exact, longer ones may wrap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te

from .arithmetic import exact, rounded
from .libraries import Libraries
from .operator import Dim, Example, Operator
from .requantization import (
    QUANTIZED_RANGES,
    REQUANTIZING_OPERATIONS,
    check_zero,
    onnx_constants,
    requantized,
    requantized_exactly,
)


def define_matmul(m: int, n: int, k: int, dtype: str) -> list[Any]:
    """Return the TE tensors A, B and C."""
    A = te.placeholder((m, k), dtype, name="A")
    B = te.placeholder((k, n), "int8", name="B")
    r = te.reduce_axis((0, k), name="k")

    def at(i: Any, j: Any) -> Any:
        return te.sum(A[i, r].astype("int32") * B[r, j].astype("int32"), axis=r)

    return [A, B, te.compute((m, n), at, name="matmul")]


def define_linear(m: int, n: int, k: int, zero: int, dtype: str) -> list[Any]:
    """Return the TE tensors x, weight, bias, scale and y."""
    x = te.placeholder((m, k), dtype, name="x")
    weight = te.placeholder((n, k), "int8", name="weight")
    bias = te.placeholder((n,), "int32", name="bias")
    scale = te.placeholder((n,), "float32", name="scale")
    r = te.reduce_axis((0, k), name="k")

    def at(i: Any, j: Any) -> Any:
        return te.sum(x[i, r].astype("int32") * weight[j, r].astype("int32"), axis=r)

    sums = te.compute((m, n), at, name="matmul")
    return [x, weight, bias, scale, requantized(sums, bias, scale, zero)]


def reference_matmul(A: np.ndarray, B: np.ndarray, **_: int) -> np.ndarray:
    """Return C, summed exactly."""
    return rounded(exact(A) @ exact(B), "int32")


def reference_linear(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, scale: np.ndarray, zero: int, **_: int
) -> np.ndarray:
    """Return y, summed exactly and requantised."""
    return requantized_exactly(exact(x) @ exact(weight).T, bias, scale, zero)


def flops_matmul(m: int, n: int, k: int) -> int:
    """Count a multiplication and an addition for each term of each sum."""
    return 2 * m * n * k


def flops_linear(m: int, n: int, k: int, **_: int) -> int:
    """Count the same, and the requantisation of each output."""
    return 2 * m * n * k + REQUANTIZING_OPERATIONS * m * n


def check_linear(zero: int, **_: int) -> None:
    """Raise InputError where the zero point is no uint8."""
    check_zero("zero", zero)


def _torch_matmul(torch: Any, A: Any, B: Any, **_: int) -> Any:
    C = torch.empty(A.shape[0], B.shape[1], dtype=torch.int32)
    return lambda: torch._int_mm(A, B, out=C)


def _onnx_matmul(node: Any, A: str, B: str, **_: int) -> Any:
    return [node("MatMulInteger", [A, B], ["y"])]


def _onnx_linear(node: Any, x: str, weight: str, bias: str, scale: str, n: int, zero: int, **_: int) -> Any:
    """Return the form that ONNX Runtime's quantisation gives a Gemm, which ONNX itself does not have."""
    inputs = [x, "one", "data_zero", weight, scale, "weight_zeros", bias, "one", "zero"]
    return [node("QGemm", inputs, ["y"], domain="com.microsoft", transB=1)], onnx_constants(n, zero)


_BERT = (
    ("128 tokens: query, key, value and output projection", 768, 768),
    ("128 tokens: feed-forward, first matrix", 3072, 768),
    ("128 tokens: feed-forward, second matrix", 768, 3072),
)

QUANTIZED_MATMUL = Operator(
    name="quantized_matmul",
    dims=(Dim("m"), Dim("n"), Dim("k")),
    define=define_matmul,
    reference=reference_matmul,
    flops=flops_matmul,
    dtypes=("uint8",),
    libraries=Libraries(None, _torch_matmul, _onnx_matmul),
    examples=(
        Example({"m": 1024, "n": 1024, "k": 1024}, "square, the usual yardstick"),
        Example({"m": 512, "n": 512, "k": 512}, "square, fits the second-level cache"),
        *(Example({"m": 128, "n": n, "k": k}, f"BERT-base int8, {layer}") for layer, n, k in _BERT),
        Example({"m": 1, "n": 1000, "k": 2048}, "ResNet-50 int8, one image: classifier"),
        Example({"m": 127, "n": 131, "k": 137}, "odd: primes"),
        Example({"m": 9, "n": 35, "k": 66}, "odd: one more than a tile, a sum of no whole dot products"),
        Example({"m": 5, "n": 3, "k": 7}, "odd: smaller than a register tile"),
        Example({"m": 1, "n": 1, "k": 1}, "odd: one element"),
    ),
)

QUANTIZED_LINEAR = Operator(
    name="quantized_linear",
    dims=(Dim("m"), Dim("n"), Dim("k"), Dim("zero", default=0, minimum=0)),
    define=define_linear,
    reference=reference_linear,
    flops=flops_linear,
    check=check_linear,
    dtypes=("uint8",),
    ranges=QUANTIZED_RANGES,
    libraries=Libraries(None, None, _onnx_linear, weights=(1, 2, 3)),
    examples=(
        *(Example({"m": 128, "n": n, "k": k, "zero": 128}, f"BERT-base int8, {at}") for at, n, k in _BERT),
        Example({"m": 512, "n": 512, "k": 512}, "square"),
        Example({"m": 1, "n": 1000, "k": 2048, "zero": 60}, "ResNet-50 int8, one image: classifier"),
        Example({"m": 127, "n": 131, "k": 137, "zero": 3}, "odd: primes"),
        Example({"m": 9, "n": 35, "k": 66, "zero": 255}, "odd: one more than a tile, outputs below zero"),
        Example({"m": 5, "n": 3, "k": 7, "zero": 128}, "odd: smaller than a register tile"),
        Example({"m": 1, "n": 1, "k": 1}, "odd: one element"),
    ),
)
