"""What does not compute the same is refused, and the message shows the difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from tvm import te

from ..conftest import record_of
from .conftest import FUNCTION, K, M, N, product


def refusal(model: Any, replacement: Any, function: str = FUNCTION, **options: Any) -> str:
    with pytest.raises(ts.InputError) as caught:
        ts.replace(model, function, replacement, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_another_computation(model: Any) -> None:
    message = refusal(model, product(M, K, K, factor=1.01))
    assert message.startswith(f"nothing is replaced: the PrimFunc does not compute what {FUNCTION} does: ")
    for part in (
        " of 48 elements are wrong, first at (",
        ", expected ",
        "relative error up to ",
        "allowed 1.3e-06",
    ):
        assert part in message


def test_a_given_tolerance_lets_it_pass(model: Any) -> None:
    ts.replace(model, FUNCTION, product(M, K, K, factor=1.01), tolerance=0.02)
    assert "allowed 0.005" in refusal(model, product(M, K, K, factor=1.01), tolerance=0.005)


def test_another_number_of_arguments(model: Any) -> None:
    A = te.placeholder((M, K), "float32", name="A")
    tensors = [A, te.compute((M, K), lambda i, j: A[i, j], name="copy")]
    assert refusal(model, tensors) == (
        f"the PrimFunc has 2 arguments; {FUNCTION} has 3: x: float32[6, 8], param_0: float32[8, 8], "
        "compute_intermediate: float32[6, 8]"
    )


def test_another_shape(model: Any) -> None:
    assert refusal(model, product(M, N, K)) == (
        f"argument 1 of the PrimFunc is B: float32[8, 16]; {FUNCTION} has param_0: float32[8, 8] there"
    )


def test_another_dtype(model: Any) -> None:
    A, B = (te.placeholder(shape, "float64", name="A") for shape in ((M, K), (K, K)))
    tensors = [A, B, te.compute((M, K), lambda i, j: A[i, j] + B[0, j], name="sum")]
    assert refusal(model, tensors).startswith("argument 0 of the PrimFunc is A: float64[6, 8]; ")


def test_symbolic_shapes(model: Any) -> None:
    n = te.var("n", "int64")
    A, B = te.placeholder((n, K), "float32", name="A"), te.placeholder((K, K), "float32", name="B")
    tensors = [A, B, te.compute((n, K), lambda i, j: A[i, j] + B[0, j], name="sum")]
    assert "arguments must be tensors of fixed shape" in refusal(model, tensors)


def test_elements_that_are_never_written(model: Any) -> None:
    def half(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        np.maximum(a[:3] @ b, 0, out=out[:3])

    message = refusal(model, half)
    assert "24 of 48 elements are wrong, first at (3, 0): nan" in message
    assert "24 are NaN (perhaps never written)" in message


def test_a_function_that_returns_its_result(model: Any) -> None:
    assert refusal(model, lambda a, b: np.maximum(a @ b, 0)).endswith(
        f"takes (a, b); it is called with 3 arrays, the output of {FUNCTION} last, and writes that"
    )


def test_inputs_that_are_written(model: Any) -> None:
    def careless(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        a *= 2

    message = refusal(model, careless)
    assert "failed in test_refusals.py, line " in message and "read-only" in message

    def by_force(a: Any, b: Any, out: Any) -> None:
        np.maximum(np.from_dlpack(a) @ np.from_dlpack(b), 0, out=np.from_dlpack(out))
        np.from_dlpack(a)[0, 0] += 1

    assert "the kernel changed its input x" in refusal(model, ts.External(by_force, "tvm"))


def test_a_result_that_differs_from_run_to_run(model: Any) -> None:
    noise = np.random.default_rng(0)

    def noisy(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        np.maximum(a @ b * (1 + 1e-7 * noise.standard_normal(),), 0, out=out)

    assert "two runs on the same input differ" in refusal(model, noisy, tolerance=1e-3)


def test_a_function_that_raises(model: Any) -> None:
    def broken(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        raise RuntimeError("no such instruction")

    message = refusal(model, broken)
    assert f"in the place of {FUNCTION} failed in test_refusals.py, line " in message
    assert message.endswith("RuntimeError: no such instruction")


def test_an_unknown_function_gets_a_suggestion(model: Any) -> None:
    message = refusal(model, product(M, K, K), function="fused_matmul_rel")
    assert message.startswith(f"unknown function of module 'fused_matmul_rel'; did you mean {FUNCTION} or ")


def test_a_record_of_another_function(model: Any) -> None:
    record = record_of(ts.workload("relu", m=8, n=16), trace=None, knobs={"lanes": 1}, space="softmaxx")
    assert "record" in refusal(model, record)


def test_a_rule_that_does_not_apply(model: Any) -> None:
    rule = ts.schedule_rules()["conv2d"]
    assert refusal(model, rule) == f"the schedule 'conv2d' does not apply to {FUNCTION}"


@pytest.mark.parametrize("given", [3, None, [], "no.such.function"])
def test_what_is_no_replacement(model: Any, given: Any) -> None:
    message = refusal(model, given)
    assert "can be replaced by a PrimFunc, TE tensors" in message or "no global function" in message


def test_another_kind_of_arrays() -> None:
    with pytest.raises(ts.InputError, match="unknown kind of arrays 'jax'; there are: numpy, torch, tvm"):
        ts.External(print, "jax")
