"""An operator of one's own: write it, prove it against NumPy, measure it, call it.

    python examples/01_first_kernel.py
    tunesmith bench examples/01_first_kernel.py:SCALE_SHIFT --shape m=512,n=1024

The operator scales and shifts each column of a matrix and cuts off what is negative, as batch normalization
with ReLU does at inference: ``Y[i, j] = max(0, X[i, j] * scale[j] + shift[j])``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tunesmith as ts
import tvm
from tunesmith.kernels.operator import Dim, Example
from tvm import te


def define(m: int, n: int, dtype: str) -> list[Any]:
    """What is computed: the inputs first, the output last. Not a word about loops, threads or vectors."""
    X = te.placeholder((m, n), dtype, name="X")
    scale = te.placeholder((n,), dtype, name="scale")
    shift = te.placeholder((n,), dtype, name="shift")
    scaled = te.compute((m, n), lambda i, j: X[i, j] * scale[j] + shift[j], name="scale_shift")
    Y = te.compute((m, n), lambda i, j: te.max(scaled[i, j], tvm.tirx.const(0, dtype)), name="relu")
    return [X, scale, shift, Y]


def reference(X: np.ndarray, scale: np.ndarray, shift: np.ndarray, **_: Any) -> np.ndarray:
    """The specification: float64 inside, rounded once."""
    wide = X.astype(np.float64) * scale.astype(np.float64) + shift.astype(np.float64)
    return np.maximum(wide, 0).astype(X.dtype)


def flops(m: int, n: int) -> int:
    """A multiplication, an addition and a maximum for each element."""
    return 3 * m * n


SCALE_SHIFT = ts.Operator(
    name="scale_shift",
    dims=(Dim("m"), Dim("n")),
    define=define,
    reference=reference,
    flops=flops,
    examples=(Example({"m": 3136, "n": 256}, "ResNet-50, one image: 56x56 pixels, 256 channels"),),
)


def main() -> None:
    workload = SCALE_SHIFT.workload({"m": 512, "n": 1024})

    for row in ts.verify(workload):
        print(f"{row['schedule']:<12} {'right' if row['ok'] else row['message']}")
        assert row["ok"]

    # "default" is what ts.compile gives. More than 100 %: the arrays stay in a cache between calls.
    for row in ts.bench(workload, ("default", "unscheduled"), rounds=5):
        print(f"{row['implementation']:<12} {row['gbps']:6.1f} GB/s, roofline {row['roofline_fraction']:.0%}")

    kernel = ts.compile(workload)
    X = np.random.default_rng(0).standard_normal((512, 1024), dtype=np.float32)
    ones = np.ones(1024, np.float32)
    Y = kernel(X, 2 * ones, -ones)
    assert np.array_equal(Y, np.maximum(2 * X - 1, 0))
    print(f"Y[0, :3] = {Y[0, :3]}, by the {kernel.origin}")


if __name__ == "__main__":
    main()
