from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tunesmith.integrate.lowering.constants import FoldConstants
from tunesmith.integrate.lowering.functions import dataflow_bindings
from tvm import relax

from .plain import module, ops, outputs

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def _module(compute: Callable[[Any, Any, Any], Any]) -> Any:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType([3, 2], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(compute(builder, x, relax.const(W)))
        builder.emit_func_output(result)
    return builder.get()


def _ops(mod: Any) -> list[str]:
    values = [binding.value for binding in dataflow_bindings(mod["main"])]
    return [value.op.name for value in values if isinstance(value, relax.Call)]


def _constants(mod: Any) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    keep = lambda e: found.append(e.value.numpy()) if isinstance(e, tvm.ir.GenericConst) else None  # noqa: E731
    relax.analysis.post_order_visit(mod["main"], keep)
    return found


def test_what_depends_on_weights_alone_becomes_a_constant() -> None:
    def compute(builder: Any, x: Any, w: Any) -> Any:
        doubled = builder.emit(relax.op.add(w, w))
        return relax.op.add(x, builder.emit(relax.op.permute_dims(doubled, [1, 0])))

    folded = FoldConstants()(_module(compute))
    assert _ops(folded) == ["relax.add"]
    (constant,) = _constants(folded)
    np.testing.assert_array_equal(constant, 2 * W.T)


def test_what_depends_on_an_input_stays() -> None:
    mod = _module(lambda builder, x, w: relax.op.matmul(builder.emit(relax.op.exp(x)), w))
    assert _ops(FoldConstants()(mod)) == ["relax.exp", "relax.matmul"]


def test_foreign_functions_are_not_run() -> None:
    ty = relax.TensorType([2, 3], "float32")

    def compute(builder: Any, x: Any, w: Any) -> Any:
        foreign = builder.emit(relax.op.call_dps_packed("test.no_such_function", [w], out_ty=ty))
        return relax.op.matmul(x, foreign)

    assert _ops(FoldConstants()(_module(compute))) == ["relax.call_dps_packed", "relax.matmul"]


def test_operators_without_a_loop_nest_stay() -> None:
    def compute(builder: Any, x: Any, w: Any) -> Any:
        return relax.op.matmul(x, builder.emit(relax.op.hint_on_device(w, tvm.cpu())))

    assert _ops(FoldConstants()(_module(compute))) == ["relax.hint_on_device", "relax.matmul"]


def test_tuples_of_constants_are_folded_through() -> None:
    def compute(builder: Any, x: Any, w: Any) -> Any:
        parts = builder.emit(relax.op.split(w, 3, axis=1))
        first = builder.emit(relax.TupleGetItem(parts, 1))
        return relax.op.matmul(x, first)

    folded = FoldConstants()(_module(compute))
    assert _ops(folded) == ["relax.matmul"]
    np.testing.assert_array_equal(_constants(folded)[0], W[:, 1:2])


@pytest.mark.parametrize(
    "compute",
    [
        lambda w: relax.op.divide(relax.op.rsqrt(w), relax.op.negative(relax.op.sqrt(w))),
        lambda w: relax.op.permute_dims(relax.op.expand_dims(w, 1)),
        lambda w: relax.op.concat([w, relax.op.multiply(w, w)], axis=-1),
        # These are compiled, on what NumPy computed.
        lambda w: relax.op.exp(relax.op.add(w, w)),
        lambda w: relax.op.astype(relax.op.subtract(w, relax.op.sqrt(w)), "float64"),
        lambda w: relax.op.multiply(relax.op.astype(w, "float16"), relax.const(2.0, "float16")),
        lambda w: relax.op.divide(relax.op.astype(w, "int32"), relax.const(2, "int32")),
    ],
)
def test_values_are_those_of_loop_nests(compute: Callable[[Any], Any]) -> None:
    values = relax.const(np.linspace(0.5, 7, 6, dtype=np.float32).reshape(2, 3))
    mod = module(lambda x: relax.op.add(x, relax.op.astype(compute(values), "float32")), (1,))
    folded = FoldConstants()(mod)
    assert ops(folded) == ["add"]
    np.testing.assert_allclose(outputs(folded)[0], outputs(mod)[0], rtol=1e-6)
