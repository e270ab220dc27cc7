"""What the kernel tests share: inputs for a workload, and a run of its unscheduled function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import pytest
import tunesmith as ts
import tvm

Draw = Callable[[ts.Workload], list[np.ndarray]]
Run = Callable[[ts.Workload, Sequence[np.ndarray]], np.ndarray]


@pytest.fixture(scope="session")
def draw() -> Draw:
    """Random inputs: every int8, and floats around zero."""

    def drawn(workload: ts.Workload) -> list[np.ndarray]:
        rng = np.random.default_rng(7)
        return [
            rng.integers(-128, 128, a.shape).astype(a.dtype)
            if a.dtype.startswith("int")
            else rng.standard_normal(a.shape).astype(np.dtype(a.dtype))
            for a in workload.inputs
        ]

    return drawn


@pytest.fixture(scope="session")
def run() -> Run:
    """Compile the unscheduled function and run it into an output full of NaN."""

    def ran(workload: ts.Workload, inputs: Sequence[np.ndarray]) -> np.ndarray:
        spec = workload.output
        poison = 77 if spec.dtype.startswith("int") else np.nan
        output = tvm.runtime.tensor(np.full(spec.shape, poison, np.dtype(spec.dtype)))
        tensors = [tvm.runtime.tensor(i) for i in inputs]
        tvm.compile(workload.func, target="llvm")["main"](*tensors, output)
        for tensor, given in zip(tensors, inputs, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), given, err_msg="an input was changed")
        return output.numpy()

    return ran


@pytest.fixture(scope="session")
def assert_close() -> Callable[[np.ndarray, np.ndarray], None]:
    """Integers are equal; floats differ by rounding of the sums and once of the output."""

    def close(got: np.ndarray, want: np.ndarray) -> None:
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        if got.dtype.kind == "i":
            np.testing.assert_array_equal(got, want)
            return
        eps = float(ml_dtypes.finfo(got.dtype).eps)
        wide = float(np.finfo(np.float64 if got.dtype == np.float64 else np.float32).eps)
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=eps, atol=300 * wide)

    return close
