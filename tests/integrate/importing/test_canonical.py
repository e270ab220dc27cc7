from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.integrate.importing.canonical import canonicalized
from tunesmith.integrate.lowering.functions import dataflow_bindings
from tvm import relax
from tvm.relax import op

X = np.arange(60, dtype=np.float32).reshape(3, 5, 4)


def _taken(indices: Any, axis: int, dtype: str = "int64") -> Any:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(X.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            part = builder.emit(op.take(x, relax.const(np.array(indices, dtype)), axis))
            result = builder.emit_output(op.nn.relu(part))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    ("indices", "axis", "operator"),
    [
        (2, 0, "strided_slice"),
        (-1, 1, "strided_slice"),
        ([1], 2, "strided_slice"),
        ([[3]], 1, "strided_slice"),
        ([1, 2, 3], 1, "strided_slice"),
        ([0, 2, -1], 1, "strided_slice"),
        ([[0, 1], [2, 3]], -1, "strided_slice"),
        ([0, 1, 3], 1, "take"),
        ([3, 2, 1], 1, "take"),
        ([1, 1], 1, "take"),
    ],
)
def test_known_indices_are_a_slice_where_one_has_them(
    indices: Any, axis: int, operator: str, capfd: Any
) -> None:
    mod = canonicalized(_taken(indices, axis))
    assert dataflow_bindings(mod["main"])[0].value.op.name == f"relax.{operator}"
    got = ts.compile_model(ts.load_model(mod)).run({"x": X})["output_0"]
    np.testing.assert_array_equal(got, np.take(X, indices, axis))
    assert "Warning" not in capfd.readouterr().err


def test_a_cast_to_the_type_that_it_has_is_none() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(X.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            cast = builder.emit(op.astype(builder.emit(op.astype(x, "float32")), "int32"))
            result = builder.emit_output(op.abs(cast))
        builder.emit_func_output(result)
    bindings = dataflow_bindings(canonicalized(builder.get())["main"])
    assert [b.value.op.name for b in bindings if isinstance(b.value, relax.Call)] == [
        "relax.astype",
        "relax.abs",
    ]


def test_an_index_outside_is_refused() -> None:
    with pytest.raises(ValueError, match="index -6 in an axis of 5"):
        canonicalized(_taken(-6, 1))
