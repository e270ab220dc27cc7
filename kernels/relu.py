r"""Rectified linear unit, element by element.

.. math:: y_{mn} = \max(0, x_{mn})

x and y are (m, n); a tensor of more dimensions is flattened into these two, the innermost last. It
reads and writes each element once and computes almost nothing: memory bandwidth is its limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import te

from .arithmetic import DTYPES, exact, rounded
from .libraries import Libraries
from .operator import Dim, Example, Operator


def define(m: int, n: int, dtype: str) -> list[Any]:
    """Return the TE tensors x and y."""
    x = te.placeholder((m, n), dtype, name="x")
    y = te.compute((m, n), lambda i, j: te.max(x[i, j], tvm.tirx.const(0, dtype)), name="relu")
    return [x, y]


def reference(x: np.ndarray, **_: Any) -> np.ndarray:
    """Return y; the maximum of two numbers needs no rounding."""
    return rounded(np.maximum(exact(x), 0), str(x.dtype))


def flops(m: int, n: int) -> int:
    """Count one maximum an element."""
    return m * n


def _numpy(A: np.ndarray, **_: int) -> Any:
    B = np.empty_like(A)
    return lambda: np.maximum(A, 0, out=B)


def _torch(torch: Any, A: Any, **_: int) -> Any:
    return lambda: torch.relu(A)


def _onnx(node: Any, A: str, **_: int) -> Any:
    return [node("Relu", [A], ["y"])]


RELU = Operator(
    name="relu",
    dims=(Dim("m"), Dim("n")),
    define=define,
    reference=reference,
    flops=flops,
    dtypes=DTYPES,
    libraries=Libraries(_numpy, _torch, _onnx),
    examples=(
        Example({"m": 12544, "n": 64}, "ResNet-50, one image: after the first convolution, 112x112 pixels"),
        Example({"m": 3136, "n": 256}, "ResNet-50, one image: end of a block at 56x56 pixels"),
        Example({"m": 784, "n": 512}, "ResNet-50, one image: end of a block at 28x28 pixels"),
        Example({"m": 196, "n": 1024}, "ResNet-50, one image: end of a block at 14x14 pixels"),
        Example({"m": 49, "n": 2048}, "ResNet-50, one image: end of a block at 7x7 pixels"),
        Example({"m": 4096, "n": 4096}, "square, larger than the caches"),
        Example({"m": 1, "n": 1009}, "odd: one row, a prime"),
        Example({"m": 7, "n": 3}, "odd: rows shorter than a vector"),
        Example({"m": 1, "n": 1}, "odd: one element"),
    ),
)
