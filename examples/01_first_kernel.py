"""Step 1 of 3: write an operator. Say what is computed, prove it against NumPy, measure it, call it.

    python examples/01_first_kernel.py
    tunesmith bench examples/01_first_kernel.py:SWISH_MATMUL --shape m=256,n=256,k=256

The operator is a layer with an activation: C = swish(A B), where swish(x) = x sigmoid(x) = x / (1 + exp(-x)).
No word here says how the loops run: a schedule of tunesmith finds the product in it, and step 2 writes one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tunesmith as ts
from tvm import te


def define(m: int, n: int, k: int, dtype: str) -> list[Any]:
    """What is computed, in TVM's tensor expressions: the inputs first, the output last."""
    A = te.placeholder((m, k), dtype, name="A")
    B = te.placeholder((k, n), dtype, name="B")
    r = te.reduce_axis((0, k), name="r")
    P = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="product")
    C = te.compute((m, n), lambda i, j: P[i, j] * te.sigmoid(P[i, j]), name="swish")
    return [A, B, C]


def reference(A: np.ndarray, B: np.ndarray, **_: Any) -> np.ndarray:
    """The specification: float64 inside, rounded once."""
    P = A.astype(np.float64) @ B.astype(np.float64)
    return (P / (1 + np.exp(-P))).astype(A.dtype)


def flops(m: int, n: int, k: int) -> int:
    """A multiplication and an addition for each term; about five operations for each swish."""
    return 2 * m * n * k + 5 * m * n


SWISH_MATMUL = ts.Operator(
    name="swish_matmul",
    dims=(ts.Dim("m"), ts.Dim("n"), ts.Dim("k")),
    define=define,
    reference=reference,
    flops=flops,
    examples=(ts.Example({"m": 128, "n": 3072, "k": 768}, "a feed-forward layer of BERT-base"),),
)


def main(extent: int = 256) -> None:
    # A workload is an operator with its shape and dtype fixed.
    workload = SWISH_MATMUL.workload({"m": extent, "n": extent, "k": extent})

    # Every schedule that applies is run in a process of its own and compared with the reference.
    for row in ts.verify(workload):
        print(f"{row['schedule']:<12} {'right' if row['ok'] else row['message']}")
        assert row["ok"]

    # "default" is what ts.compile gives; the roofline is this machine's own, measured limit.
    for row in ts.bench(workload, ("default", "unscheduled"), rounds=5):
        speed = f"{row['gflops']:6.1f} GFLOP/s, roofline {row['roofline_fraction']:.0%}"
        print(f"{row['implementation']:<12} {speed}")

    kernel = ts.compile(workload)
    ones = np.ones((extent, extent), np.float32)
    C = kernel(ones, ones / extent)
    np.testing.assert_allclose(C, 1 / (1 + np.exp(-1)), rtol=1e-5)
    print(f"C[0, 0] = {C[0, 0]:.4f}, by the {kernel.origin}")


if __name__ == "__main__":
    main()
