r"""Matrix multiplication.

.. math:: C_{mn} = \sum_k A_{mk} B_{kn}

A is (m, k), B is (k, n), C is (m, n), all row-major; A is stored as (k, m) where the first letter of
``transpose`` is T, and B as (n, k) where the second is. float16 and bfloat16 are summed in float32 and
rounded once; int8 is summed in int32, which is also the output's type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.script import tirx as T

from .arithmetic import DTYPES, exact, result_dtype, rounded, rounded_to, sum_dtype
from .libraries import Libraries
from .operator import Dim, Example, Operator


def define(m: int, n: int, k: int, transpose: str, dtype: str) -> list[Any]:
    """Return the TE tensors A, B and C."""
    wide = sum_dtype(dtype)
    A = te.placeholder(stored(m, k, transpose[0]), dtype, name="A")
    B = te.placeholder(stored(k, n, transpose[1]), dtype, name="B")
    r = te.reduce_axis((0, k), name="k")

    def at(i: Any, j: Any) -> Any:
        a, b = A[stored(i, r, transpose[0])], B[stored(r, j, transpose[1])]
        return te.sum(a.astype(wide) * b.astype(wide), axis=r)

    C = te.compute((m, n), at, name="matmul")
    return [A, B, rounded_to(C, result_dtype(dtype))]


def stored(row: Any, column: Any, form: str) -> tuple[Any, Any]:
    """Return the order in which a matrix's extents or indices are stored: N as they are, T transposed."""
    return (row, column) if form == "N" else (column, row)


def script(m: int, n: int, k: int, transpose: str, dtype: str) -> Any:
    """Return the same computation written in TVMScript."""
    left, right = transpose[0], transpose[1]
    rows, cols, inner = (tvm.tirx.IntImm("int64", extent) for extent in (m, n, k))
    wide, result = sum_dtype(dtype), result_dtype(dtype)
    zero, narrows = tvm.tirx.const(0, wide), wide != result

    @T.prim_func(s_tir=True)
    def main(a: T.handle, b: T.handle, c: T.handle):  # type: ignore[no-untyped-def]
        T.func_attr({"tirx.noalias": True})
        A = T.match_buffer(a, stored(rows, inner, left), dtype)
        B = T.match_buffer(b, stored(inner, cols, right), dtype)
        C = T.match_buffer(c, (rows, cols), result)
        product = T.sblock_alloc_buffer((rows, cols), wide) if narrows else C
        for i, j, r in T.grid(rows, cols, inner):
            with T.sblock("matmul"):
                vi, vj, vr = T.axis.remap("SSR", [i, j, r])
                with T.init():
                    product[vi, vj] = zero
                product[vi, vj] = product[vi, vj] + A[stored(vi, vr, left)].astype(wide) * B[
                    stored(vr, vj, right)
                ].astype(wide)
        if narrows:
            for i, j in T.grid(rows, cols):
                with T.sblock("cast"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = product[vi, vj].astype(result)

    return main


def reference(A: np.ndarray, B: np.ndarray, transpose: str, **_: Any) -> np.ndarray:
    """Return C, summed in float64 and rounded once."""
    a, b = (exact(x) if form == "N" else exact(x).T for x, form in zip((A, B), transpose, strict=True))
    return rounded(a @ b, result_dtype(str(A.dtype)))


def flops(m: int, n: int, k: int, **_: str) -> int:
    """Count a multiplication and an addition for each term of each sum."""
    return 2 * m * n * k


def _numpy(A: np.ndarray, B: np.ndarray, transpose: str, **_: int) -> Any:
    a, b = (x if form == "N" else x.T for x, form in zip((A, B), transpose, strict=True))
    C = np.empty((a.shape[0], b.shape[1]), A.dtype)
    return lambda: np.matmul(a, b, out=C)


def _torch(torch: Any, A: Any, B: Any, transpose: str, **_: int) -> Any:
    a, b = (x if form == "N" else x.T for x, form in zip((A, B), transpose, strict=True))
    C = torch.empty(a.shape[0], b.shape[1], dtype=A.dtype)
    return lambda: torch.matmul(a, b, out=C)


def _onnx(node: Any, A: str, B: str, transpose: str, **_: int) -> Any:
    if transpose == "NN":
        return [node("MatMul", [A, B], ["y"])]
    return [node("Gemm", [A, B], ["y"], transA=int(transpose[0] == "T"), transB=int(transpose[1] == "T"))]


MATMUL = Operator(
    name="matmul",
    dims=(Dim("m"), Dim("n"), Dim("k"), Dim("transpose", default="NN", choices=("NN", "NT", "TN", "TT"))),
    define=define,
    script=script,
    reference=reference,
    flops=flops,
    dtypes=DTYPES,
    libraries=Libraries(_numpy, _torch, _onnx),
    examples=(
        Example({"m": 1024, "n": 1024, "k": 1024}, "square, the usual yardstick"),
        Example({"m": 512, "n": 512, "k": 512}, "square, fits the second-level cache"),
        Example({"m": 2048, "n": 2048, "k": 2048}, "square, larger than the caches"),
        Example(
            {"m": 1000, "n": 1001, "k": 999}, "odd: no extent is a multiple of a vector in every direction"
        ),
        Example(
            {"m": 128, "n": 768, "k": 768}, "BERT-base, 128 tokens: query, key, value and output projection"
        ),
        Example({"m": 128, "n": 3072, "k": 768}, "BERT-base, 128 tokens: feed-forward, first matrix"),
        Example({"m": 128, "n": 768, "k": 3072}, "BERT-base, 128 tokens: feed-forward, second matrix"),
        Example({"m": 1, "n": 1000, "k": 2048}, "ResNet-50, one image: classifier"),
        Example({"m": 1, "n": 1000, "k": 1280}, "MobileNetV2, one image: classifier"),
        Example({"m": 8, "n": 4096, "k": 4096}, "Llama 7B, 8 tokens at once: output projection"),
        Example({"m": 1, "n": 32000, "k": 4096}, "Llama 7B, one token: vocabulary, larger than the caches"),
        Example(
            {"m": 1024, "n": 1024, "k": 1024, "transpose": "NT"},
            "square, the gradient of a linear layer's input",
        ),
        Example(
            {"m": 1024, "n": 1024, "k": 1024, "transpose": "TN"},
            "square, the gradient of a linear layer's weight",
        ),
        Example({"m": 768, "n": 512, "k": 384, "transpose": "TT"}, "both transposed"),
        Example({"m": 127, "n": 131, "k": 137}, "odd: primes"),
        Example({"m": 37, "n": 67, "k": 41, "transpose": "NT"}, "odd: primes, transposed weight"),
        Example({"m": 41, "n": 67, "k": 37, "transpose": "TN"}, "odd: primes, transposed data"),
        Example({"m": 9, "n": 17, "k": 33, "transpose": "TT"}, "odd: both transposed"),
        Example({"m": 5, "n": 3, "k": 7}, "odd: smaller than a register tile"),
        Example({"m": 1, "n": 1, "k": 1}, "odd: one element"),
    ),
)
