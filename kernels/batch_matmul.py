r"""Matrix multiplication of a batch of matrices, as attention needs it; one side may be the same for all.

.. math:: C_{bmn} = \sum_k A_{bmk} B_{bkn}

A is (b, m, k), B is (b, k, n), C is (b, m, n); where ``shared`` is B, B is (k, n) and every product of the
batch uses it, and where it is A, A is (m, k). ``transpose`` as for `matmul`: the last two extents are stored
in the other order where its letter is T. float16 and bfloat16 are summed in float32 and rounded once; int8 is
summed in int32, which is also the output's type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te

from .arithmetic import DTYPES, exact, result_dtype, rounded, rounded_to, sum_dtype
from .libraries import Libraries
from .matmul import stored
from .operator import Dim, Example, Operator


def define(b: int, m: int, n: int, k: int, transpose: str, shared: str, dtype: str) -> list[Any]:
    """Return the TE tensors A, B and C."""
    wide = sum_dtype(dtype)
    extents = {"A": stored(m, k, transpose[0]), "B": stored(k, n, transpose[1])}
    A, B = (te.placeholder(e if shared == name else (b, *e), dtype, name) for name, e in extents.items())
    r = te.reduce_axis((0, k), name="k")

    def at(batch: Any, i: Any, j: Any) -> Any:
        here, there = stored(i, r, transpose[0]), stored(r, j, transpose[1])
        a = A[here if shared == "A" else (batch, *here)]
        return te.sum(a.astype(wide) * B[there if shared == "B" else (batch, *there)].astype(wide), axis=r)

    C = te.compute((b, m, n), at, name="batch_matmul")
    return [A, B, rounded_to(C, result_dtype(dtype))]


def reference(A: np.ndarray, B: np.ndarray, transpose: str, **_: Any) -> np.ndarray:
    """Return C, summed in float64 and rounded once."""
    a, b = (_matrices(exact(x), form) for x, form in zip((A, B), transpose, strict=True))
    return rounded(a @ b, result_dtype(str(A.dtype)))


def _matrices(x: Any, form: str) -> Any:
    return x if form == "N" else x.swapaxes(-1, -2)


def flops(b: int, m: int, n: int, k: int, **_: str) -> int:
    """Count a multiplication and an addition for each term of each sum."""
    return 2 * b * m * n * k


def _numpy(A: np.ndarray, B: np.ndarray, b: int, m: int, n: int, transpose: str, **_: Any) -> Any:
    left, right = (_matrices(x, form) for x, form in zip((A, B), transpose, strict=True))
    C = np.empty((b, m, n), A.dtype)
    return lambda: np.matmul(left, right, out=C)


def _torch(torch: Any, A: Any, B: Any, b: int, m: int, n: int, transpose: str, **_: Any) -> Any:
    left, right = (_matrices(x, form) for x, form in zip((A, B), transpose, strict=True))
    C = torch.empty(b, m, n, dtype=A.dtype)
    return lambda: torch.matmul(left, right, out=C)


def _onnx(node: Any, A: str, B: str, transpose: str, **_: Any) -> Any:
    """With transposed operands there is no one node; a Transpose before it would be another operator."""
    return [node("MatMul", [A, B], ["y"])] if transpose == "NN" else None


BATCH_MATMUL = Operator(
    name="batch_matmul",
    dims=(
        Dim("b"),
        Dim("m"),
        Dim("n"),
        Dim("k"),
        Dim("transpose", default="NN", choices=("NN", "NT", "TN", "TT")),
        Dim("shared", default="none", choices=("none", "A", "B")),
    ),
    define=define,
    reference=reference,
    flops=flops,
    dtypes=DTYPES,
    libraries=Libraries(_numpy, _torch, _onnx),
    examples=(
        Example({"b": 12, "m": 128, "n": 128, "k": 64, "transpose": "NT"}, "BERT-base, 128 tokens: scores"),
        Example({"b": 12, "m": 128, "n": 64, "k": 128}, "BERT-base, 128 tokens: weighted values"),
        Example(
            {"b": 16, "m": 512, "n": 512, "k": 64, "transpose": "NT"}, "GPT-2 medium, 512 tokens: scores"
        ),
        Example({"b": 8, "m": 512, "n": 512, "k": 512}, "square matrices"),
        Example({"b": 8, "m": 197, "n": 768, "k": 768, "shared": "B"}, "ViT-B/16, 8 images: a projection"),
        Example({"b": 3, "m": 31, "n": 37, "k": 41}, "odd: primes"),
        Example(
            {"b": 2, "m": 17, "n": 33, "k": 9, "transpose": "TN", "shared": "B"}, "odd: one weight for all"
        ),
        Example(
            {"b": 5, "m": 7, "n": 18, "k": 35, "transpose": "NT", "shared": "A"}, "odd: one matrix for all"
        ),
        Example({"b": 1, "m": 1, "n": 1, "k": 1}, "odd: one element"),
    ),
)
