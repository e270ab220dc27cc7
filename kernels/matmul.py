r"""Matrix multiplication.

.. math:: C_{mn} = \sum_k A_{mk} B_{kn}

A is (m, k), B is (k, n), C is (m, n), all row-major. float16 and bfloat16 are summed in float32 and
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


def define(m: int, n: int, k: int, dtype: str) -> list[Any]:
    """Return the TE tensors A, B and C."""
    wide = sum_dtype(dtype)
    A = te.placeholder((m, k), dtype, name="A")
    B = te.placeholder((k, n), dtype, name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute(
        (m, n), lambda i, j: te.sum(A[i, r].astype(wide) * B[r, j].astype(wide), axis=r), name="matmul"
    )
    return [A, B, rounded_to(C, result_dtype(dtype))]


def script(m: int, n: int, k: int, dtype: str) -> Any:
    """Return the same computation written in TVMScript."""
    rows, cols, inner = (tvm.tirx.IntImm("int64", extent) for extent in (m, n, k))
    wide, result = sum_dtype(dtype), result_dtype(dtype)
    zero, narrows = tvm.tirx.const(0, wide), wide != result

    @T.prim_func(s_tir=True)
    def main(a: T.handle, b: T.handle, c: T.handle):  # type: ignore[no-untyped-def]
        T.func_attr({"tirx.noalias": True})
        A = T.match_buffer(a, (rows, inner), dtype)
        B = T.match_buffer(b, (inner, cols), dtype)
        C = T.match_buffer(c, (rows, cols), result)
        product = T.sblock_alloc_buffer((rows, cols), wide) if narrows else C
        for i, j, r in T.grid(rows, cols, inner):
            with T.sblock("matmul"):
                vi, vj, vr = T.axis.remap("SSR", [i, j, r])
                with T.init():
                    product[vi, vj] = zero
                product[vi, vj] = product[vi, vj] + A[vi, vr].astype(wide) * B[vr, vj].astype(wide)
        if narrows:
            for i, j in T.grid(rows, cols):
                with T.sblock("cast"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = product[vi, vj].astype(result)

    return main


def reference(A: np.ndarray, B: np.ndarray, **_: Any) -> np.ndarray:
    """Return C, summed in float64 and rounded once."""
    return rounded(exact(A) @ exact(B), result_dtype(str(A.dtype)))


def flops(m: int, n: int, k: int) -> int:
    """Count a multiplication and an addition for each term of each sum."""
    return 2 * m * n * k


def _numpy(A: np.ndarray, B: np.ndarray, **_: int) -> Any:
    C = np.empty((A.shape[0], B.shape[1]), A.dtype)
    return lambda: np.matmul(A, B, out=C)


def _torch(torch: Any, A: Any, B: Any, **_: int) -> Any:
    C = torch.empty(A.shape[0], B.shape[1], dtype=A.dtype)
    return lambda: torch.matmul(A, B, out=C)


def _onnx(node: Any, A: str, B: str, **_: int) -> Any:
    return [node("MatMul", [A, B], ["y"])]


MATMUL = Operator(
    name="matmul",
    dims=(Dim("m"), Dim("n"), Dim("k")),
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
        Example({"m": 127, "n": 131, "k": 137}, "odd: primes"),
        Example({"m": 5, "n": 3, "k": 7}, "odd: smaller than a register tile"),
        Example({"m": 1, "n": 1, "k": 1}, "odd: one element"),
    ),
)
