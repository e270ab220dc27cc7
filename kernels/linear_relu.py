r"""A fully connected layer with its activation, as a feed-forward network computes it.

.. math:: y_{mn} = \max\Bigl(0, \; b_n + \sum_k x_{mk} w_{nk}\Bigr)

x is (m, k), weight is (n, k) as PyTorch and ONNX store it (one row an output), bias is (n), y is (m, n).
float16 and bfloat16 are summed in float32 and rounded once, after the activation; int8 is summed in
int32, which is also the type of bias and output.
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
    """Return the TE tensors x, weight, bias and y."""
    wide, result = sum_dtype(dtype), result_dtype(dtype)
    x = te.placeholder((m, k), dtype, name="x")
    weight = te.placeholder((n, k), dtype, name="weight")
    bias = te.placeholder((n,), result, name="bias")
    r = te.reduce_axis((0, k), name="k")
    product = te.compute(
        (m, n), lambda i, j: te.sum(x[i, r].astype(wide) * weight[j, r].astype(wide), axis=r), name="matmul"
    )
    biased = te.compute((m, n), lambda i, j: product[i, j] + bias[j].astype(wide), name="bias_add")
    y = te.compute((m, n), lambda i, j: te.max(biased[i, j], tvm.tirx.const(0, wide)), name="relu")
    return [x, weight, bias, rounded_to(y, result)]


def script(m: int, n: int, k: int, dtype: str) -> Any:
    """Return the same computation written in TVMScript."""
    rows, cols, inner = (tvm.tirx.IntImm("int64", extent) for extent in (m, n, k))
    wide, result = sum_dtype(dtype), result_dtype(dtype)
    zero, narrows = tvm.tirx.const(0, wide), wide != result

    @T.prim_func(s_tir=True)
    def main(a: T.handle, b: T.handle, c: T.handle, d: T.handle):  # type: ignore[no-untyped-def]
        T.func_attr({"tirx.noalias": True})
        x = T.match_buffer(a, (rows, inner), dtype)
        weight = T.match_buffer(b, (cols, inner), dtype)
        bias = T.match_buffer(c, (cols,), result)
        y = T.match_buffer(d, (rows, cols), result)
        product = T.sblock_alloc_buffer((rows, cols), wide)
        biased = T.sblock_alloc_buffer((rows, cols), wide)
        positive = T.sblock_alloc_buffer((rows, cols), wide) if narrows else y
        for i, j, r in T.grid(rows, cols, inner):
            with T.sblock("matmul"):
                vi, vj, vr = T.axis.remap("SSR", [i, j, r])
                with T.init():
                    product[vi, vj] = zero
                product[vi, vj] = product[vi, vj] + x[vi, vr].astype(wide) * weight[vj, vr].astype(wide)
        for i, j in T.grid(rows, cols):
            with T.sblock("bias_add"):
                vi, vj = T.axis.remap("SS", [i, j])
                biased[vi, vj] = product[vi, vj] + bias[vj].astype(wide)
        for i, j in T.grid(rows, cols):
            with T.sblock("relu"):
                vi, vj = T.axis.remap("SS", [i, j])
                positive[vi, vj] = T.max(biased[vi, vj], zero)
        if narrows:
            for i, j in T.grid(rows, cols):
                with T.sblock("cast"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = positive[vi, vj].astype(result)

    return main


def reference(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, **_: Any) -> np.ndarray:
    """Return y, summed in float64 and rounded once."""
    return rounded(np.maximum(exact(x) @ exact(weight).T + exact(bias), 0), str(bias.dtype))


def flops(m: int, n: int, k: int) -> int:
    """Count a multiplication and an addition a term; an addition and a maximum an output."""
    return 2 * m * n * k + 2 * m * n


def _numpy(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, **_: int) -> Any:
    y = np.empty((x.shape[0], weight.shape[0]), x.dtype)

    def call() -> np.ndarray:
        np.matmul(x, weight.T, out=y)
        np.add(y, bias, out=y)
        return np.maximum(y, 0, out=y)

    return call


def _torch(torch: Any, x: Any, weight: Any, bias: Any, **_: int) -> Any:
    return lambda: torch.relu_(torch.nn.functional.linear(x, weight, bias))


def _onnx(node: Any, x: str, weight: str, bias: str, **_: int) -> Any:
    return [node("Gemm", [x, weight, bias], ["z"], transB=1), node("Relu", ["z"], ["y"])]


LINEAR_RELU = Operator(
    name="linear_relu",
    dims=(Dim("m"), Dim("n"), Dim("k")),
    define=define,
    script=script,
    reference=reference,
    flops=flops,
    dtypes=DTYPES,
    libraries=Libraries(_numpy, _torch, _onnx, weights=(1, 2)),
    examples=(
        Example({"m": 128, "n": 3072, "k": 768}, "BERT-base's feed-forward extents, 128 tokens, with ReLU"),
        Example(
            {"m": 128, "n": 2048, "k": 512},
            "Transformer base (Vaswani et al. 2017), 128 tokens: feed-forward",
        ),
        Example({"m": 1, "n": 4096, "k": 4096}, "VGG-19, one image: second fully connected layer"),
        Example({"m": 1, "n": 4096, "k": 25088}, "VGG-19, one image: first fully connected layer"),
        Example({"m": 512, "n": 512, "k": 512}, "square"),
        Example({"m": 127, "n": 131, "k": 137}, "odd: primes"),
        Example({"m": 5, "n": 3, "k": 7}, "odd: smaller than a register tile"),
        Example({"m": 1, "n": 1, "k": 1}, "odd: one element"),
    ),
)
