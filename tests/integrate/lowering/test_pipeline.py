from __future__ import annotations

import sys
from typing import Any

import pytest
import tunesmith as ts
from tunesmith.integrate.lowering.functions import prim_func_calls, prim_funcs
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tvm import relax


@pytest.fixture(scope="module")
def prepared(net: Any) -> Any:
    return net.prepared(ts.host_target())


def test_batch_norms_and_residuals_are_part_of_the_convolutions(prepared: Any) -> None:
    names = [name for name, _ in prim_func_calls(prepared)]
    convolutions = [name for name in names if "conv2d" in name]
    assert len(convolutions) == 3
    # Batch norm leaves a bias, the residual another addition: nothing of them is a call of its own.
    assert sorted(name.count("add") for name in convolutions) == [1, 1, 2]
    assert all("conv2d" in name or "add" not in name for name in names if "matmul" not in name)
    assert not any("batch" in name or "sqrt" in name or "divide" in name for name in names)


def test_only_the_input_changes_its_layout(prepared: Any) -> None:
    copies = [name for name, _ in prim_func_calls(prepared) if name.startswith(("transpose", "layout"))]
    assert copies == ["transpose"]


def test_convolutions_run_with_channels_last(prepared: Any) -> None:
    shapes = [tuple(int(d) for d in f.params[-1].shape) for n, f in prim_funcs(prepared) if "conv2d" in n]
    assert shapes == [(1, 12, 12, 16)] * 3


def test_weights_are_marked_and_residuals_are_not(prepared: Any) -> None:
    marked = {name: list(func.attrs.get(CONSTANT_ARGUMENTS, ())) for name, func in prim_funcs(prepared)}
    calls = dict(prim_func_calls(prepared))
    for name, args in calls.items():
        if "conv2d" in name:
            assert marked[name] == [1, 2]
            assert len(args) == (4 if name.count("add") == 2 else 3)


def test_the_prepared_module_is_made_once(net: Any, prepared: Any) -> None:
    assert net.prepared(ts.host_target()) is prepared


def test_a_model_may_be_deeper_than_the_stack_of_python() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for _ in range(sys.getrecursionlimit() // 2):
                y = builder.emit(relax.op.multiply(builder.emit(relax.op.nn.relu(y)), y))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    ts.load_model(builder.get()).prepared(ts.host_target())
