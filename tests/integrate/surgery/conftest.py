from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tvm import relax, te

M, K, N = 6, 8, 16
FUNCTION = "fused_matmul_relu"


def product(m: int, n: int, k: int, factor: float = 1.0) -> list[Any]:
    """Define relu(factor A B) in three steps: right with a factor of 1."""
    A, B = te.placeholder((m, k), "float32", name="A"), te.placeholder((k, n), "float32", name="B")
    r = te.reduce_axis((0, k), name="r")
    P = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="product")
    zero = tvm.tirx.const(0, "float32")
    scaled = te.compute((m, n), lambda i, j: P[i, j] * tvm.tirx.const(factor, "float32"), name="scaled")
    return [A, B, te.compute((m, n), lambda i, j: te.max(scaled[i, j], zero), name="positive")]


def two_layers() -> Any:
    """x -> relu(x W1) -> relu(. W2) -> softmax: the same function twice, with other weights."""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((M, K), "float32"))
    w1, w2 = (relax.const(rng.standard_normal((K, K), np.float32) / 3) for _ in range(2))
    w3 = relax.const(rng.standard_normal((K, N), np.float32) / 3)
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, w1))))
            b = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(a, w2))))
            c = builder.emit(relax.op.matmul(b, w3))
            y = builder.emit_output(builder.emit(relax.op.nn.softmax(c)))
        builder.emit_func_output(y)
    return builder.get()


@pytest.fixture(scope="session")
def model() -> Any:
    return ts.load_model(two_layers())


@pytest.fixture(scope="session")
def x() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((M, K), np.float32)


@pytest.fixture(scope="session")
def y(model: Any, x: np.ndarray) -> np.ndarray:
    """Return what the untouched model computes."""
    return ts.compile_model(model).run({"x": x})["output_0"]
