"""Addition of two tensors of one shape, element by element: a residual connection.

.. math:: C_{mn} = A_{mn} + B_{mn}

A, B and C are (m, n); a tensor of more dimensions is flattened into these two, the innermost last.
Two reads and one write for one addition: memory bandwidth is its limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.script import tirx as T

from .arithmetic import DTYPES, exact, rounded
from .libraries import Libraries
from .operator import Dim, Example, Operator


def define(m: int, n: int, dtype: str) -> list[Any]:
    """Return the TE tensors A, B and C."""
    A = te.placeholder((m, n), dtype, name="A")
    B = te.placeholder((m, n), dtype, name="B")
    C = te.compute((m, n), lambda i, j: A[i, j] + B[i, j], name="add")
    return [A, B, C]


def script(m: int, n: int, dtype: str) -> Any:
    """Return the same computation written in TVMScript."""
    rows, cols = tvm.tirx.IntImm("int64", m), tvm.tirx.IntImm("int64", n)

    @T.prim_func(s_tir=True)
    def main(a: T.handle, b: T.handle, c: T.handle):  # type: ignore[no-untyped-def]
        T.func_attr({"tirx.noalias": True})
        A = T.match_buffer(a, (rows, cols), dtype)
        B = T.match_buffer(b, (rows, cols), dtype)
        C = T.match_buffer(c, (rows, cols), dtype)
        for i, j in T.grid(rows, cols):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] + B[vi, vj]

    return main


def reference(A: np.ndarray, B: np.ndarray, **_: Any) -> np.ndarray:
    """Return C, added in float64 and rounded once."""
    return rounded(exact(A) + exact(B), str(A.dtype))


def flops(m: int, n: int) -> int:
    """Count one addition an element."""
    return m * n


def _numpy(A: np.ndarray, B: np.ndarray, **_: int) -> Any:
    C = np.empty_like(A)
    return lambda: np.add(A, B, out=C)


def _torch(torch: Any, A: Any, B: Any, **_: int) -> Any:
    C = torch.empty_like(A)
    return lambda: torch.add(A, B, out=C)


def _onnx(node: Any, A: str, B: str, **_: int) -> Any:
    return [node("Add", [A, B], ["y"])]


ADD = Operator(
    name="add",
    dims=(Dim("m"), Dim("n")),
    define=define,
    script=script,
    reference=reference,
    flops=flops,
    dtypes=DTYPES,
    libraries=Libraries(_numpy, _torch, _onnx),
    examples=(
        Example({"m": 3136, "n": 256}, "ResNet-50, one image: residual at 56x56 pixels"),
        Example({"m": 784, "n": 512}, "ResNet-50, one image: residual at 28x28 pixels"),
        Example({"m": 196, "n": 1024}, "ResNet-50, one image: residual at 14x14 pixels"),
        Example({"m": 49, "n": 2048}, "ResNet-50, one image: residual at 7x7 pixels"),
        Example({"m": 128, "n": 768}, "BERT-base, 128 tokens: residual"),
        Example({"m": 4096, "n": 4096}, "square, larger than the caches"),
        Example({"m": 1, "n": 1009}, "odd: one row, a prime"),
        Example({"m": 7, "n": 3}, "odd: rows shorter than a vector"),
        Example({"m": 1, "n": 1}, "odd: one element"),
    ),
)
