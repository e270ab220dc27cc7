from __future__ import annotations

from typing import Any

import numpy as np
import tunesmith as ts
import tvm
from tunesmith.integrate.lowering.code import compile_code
from tvm import relax


def _chain(length: int) -> Any:
    """Elementwise functions in a row on 1024 float32, each its own."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1024,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y: Any = x
            for _ in range(length):
                y = builder.emit(relax.op.exp(y))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return relax.transform.LegalizeOps()(builder.get())


def test_memory_of_one_result_serves_another() -> None:
    # Each result lives until the next is computed; the last is the output and has memory of its own.
    assert compile_code(_chain(6), ts.host_target()).planned_bytes == 3 * 4096
    assert compile_code(_chain(2), ts.host_target()).planned_bytes == 2 * 4096


def test_the_code_runs() -> None:
    code = compile_code(_chain(1), ts.host_target())
    x = tvm.runtime.tensor(np.zeros(1024, np.float32))
    assert float(relax.VirtualMachine(code.executable, tvm.cpu())["main"](x).numpy()[0]) == 1.0
