from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.integrate.lowering.sums import SumInFloat32
from tvm import relax
from tvm.relax import op

from .plain import ops

LENGTH = 4096


def _half(compute: Callable[[Any], Any], *shape: int) -> Any:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(compute(x)))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    ("compute", "shape"),
    [
        (lambda x: op.matmul(x, relax.const(np.ones((LENGTH, 16), "float16"))), (4, LENGTH)),
        (lambda x: op.nn.conv2d(x, relax.const(np.ones((8, LENGTH, 1, 1), "float16"))), (1, LENGTH, 2, 2)),
    ],
)
def test_a_sum_of_many_half_precision_numbers_is_rounded_once(
    compute: Callable[[Any], Any], shape: tuple[int, ...]
) -> None:
    package = ts.compile_model(ts.load_model(_half(compute, *shape)))
    # Added up in float16, ones count to 2048.
    np.testing.assert_array_equal(package(np.ones(shape, "float16")), np.float16(LENGTH))


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda x: op.nn.softmax(x), ["astype", "nn.softmax", "astype"]),
        (lambda x: op.mean(x, [0]), ["astype", "mean", "astype"]),
        (lambda x: op.exp(x), ["exp"]),
        (lambda x: op.sum(op.astype(x, "int32")), ["astype", "sum"]),
        (lambda x: op.sum(op.astype(x, "float32")), ["astype", "sum"]),
    ],
)
def test_reductions_are_made_in_float32_and_the_rest_stays(
    compute: Callable[[Any], Any], expected: list[str]
) -> None:
    wide = SumInFloat32()(_half(compute, 2, 8))
    assert ops(wide) == expected
    assert str(wide["main"].ret_ty.dtype) == str(_half(compute, 2, 8)["main"].ret_ty.dtype)
