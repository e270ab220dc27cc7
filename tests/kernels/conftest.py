"""What the kernel tests share: inputs for a workload, and a run of its unscheduled function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.tuning.measuring.verdict import compare
from tunesmith.tuning.measuring.verification import inputs_of, workload_tolerance

# What a function computes is looked at here: whether optimization keeps it right, with the schedules.
UNOPTIMIZED = tvm.target.Target({"kind": "llvm", "opt-level": 0})

Draw = Callable[[ts.Workload], list[np.ndarray]]
Run = Callable[[ts.Workload, Sequence[np.ndarray]], np.ndarray]


@pytest.fixture(scope="session")
def draw() -> Draw:
    """Random inputs, as a trial's."""
    return lambda workload: inputs_of(workload, 7)


@pytest.fixture(scope="session")
def run() -> Run:
    """Compile the unscheduled function and run it into an output full of NaN."""

    def ran(workload: ts.Workload, inputs: Sequence[np.ndarray]) -> np.ndarray:
        spec = workload.output
        poison = 77 if spec.dtype.startswith("int") else np.nan
        output = tvm.runtime.tensor(np.full(spec.shape, poison, np.dtype(spec.dtype)))
        tensors = [tvm.runtime.tensor(i) for i in inputs]
        tvm.compile(workload.func, target=UNOPTIMIZED)["main"](*tensors, output)
        for tensor, given in zip(tensors, inputs, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), given, err_msg="an input was changed")
        return output.numpy()

    return ran


@pytest.fixture(scope="session")
def assert_close() -> Callable[[ts.Workload, np.ndarray, np.ndarray], None]:
    """Integers are equal; floats differ by rounding of the sums and once of the output."""

    def close(workload: ts.Workload, got: np.ndarray, want: np.ndarray) -> None:
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        verdict = compare(got, want, workload_tolerance(workload))
        assert verdict.ok, verdict.message

    return close
