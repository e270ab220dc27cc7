"""Modules to lower, what they compute without any of it, and what is in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tunesmith as ts
import tvm
from tunesmith.integrate.lowering.convolutions import LEGALIZATIONS
from tunesmith.integrate.lowering.functions import dataflow_bindings
from tvm import relax

_RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    """Return a constant of normally distributed numbers, scaled by the square root of a row's length."""
    values = _RNG.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))
    return relax.const(values.astype(np.float32))


def positive(*shape: int) -> Any:
    """Return a constant of numbers around 1."""
    return relax.const(_RNG.uniform(0.5, 1.5, shape).astype(np.float32))


def module(compute: Callable[..., Any], *shapes: tuple[int, ...]) -> Any:
    """Make a module whose ``main`` computes an expression of its inputs."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(compute(*inputs)))
        builder.emit_func_output(result)
    return builder.get()


def ops(mod: Any) -> list[str]:
    """Name the operators of ``main`` in order, without shapes and tuples."""
    values = [binding.value for binding in dataflow_bindings(mod["main"])]
    return [v.op.name.removeprefix("relax.") for v in values if isinstance(v, relax.Call)]


def outputs(mod: Any, seed: int = 1) -> list[np.ndarray]:
    """Run a module with plain loop nests on random inputs."""
    rng, main = np.random.default_rng(seed), mod["main"]
    shapes = [tuple(int(d) for d in p.ty.shape) for p in main.params]
    code = tvm.compile(relax.transform.LegalizeOps(LEGALIZATIONS)(mod), target=ts.host_target())
    arguments = [tvm.runtime.tensor(rng.standard_normal(s).astype(np.float32)) for s in shapes]
    result = relax.VirtualMachine(code, tvm.cpu())["main"](*arguments)
    return [t.numpy() for t in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]


def check_equal(before: Any, after: Any) -> None:
    """Compare the outputs of two modules on the same inputs."""
    for got, want in zip(outputs(after), outputs(before), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
