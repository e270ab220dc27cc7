from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tunesmith.integrate.lowering.constants import FoldConstants
from tunesmith.integrate.lowering.scales import FoldScales
from tvm import relax
from tvm.ir.transform import Sequential
from tvm.relax import op

from .plain import check_equal, module, normal, ops, positive

LOWERED = Sequential([FoldScales(), FoldConstants()])
IMAGE = (1, 4, 6, 6)


def _normalized(x: Any, channels: int, axis: int = 1, **attrs: Any) -> Any:
    parts = [positive(channels), normal(channels), normal(channels), positive(channels)]
    return relax.TupleGetItem(op.nn.batch_norm(x, *parts, axis=axis, training=False, **attrs), 0)


def _convolution(x: Any) -> Any:
    return _normalized(op.nn.conv2d(x, normal(8, 4, 3, 3)), 8)


def _depthwise(x: Any) -> Any:
    return _normalized(op.nn.conv2d(x, normal(8, 1, 3, 3), groups=4), 8)


def _transposed(x: Any) -> Any:
    return _normalized(op.nn.conv2d_transpose(x, normal(4, 8, 3, 3)), 8)


def _biased_then_scaled(x: Any) -> Any:
    y = op.add(op.nn.conv2d(x, normal(8, 4, 3, 3)), normal(1, 8, 1, 1))
    y = op.divide(op.subtract(y, normal(8, 1, 1)), relax.const(3.0))
    return op.add(op.multiply(_normalized(y, 8), positive(8, 1, 1)), normal(8, 1, 1))


def _linear(x: Any) -> Any:
    return _normalized(op.add(op.matmul(op.reshape(x, (4, 36)), normal(36, 5)), normal(5)), 5)


@pytest.mark.parametrize(
    ("compute", "operators"),
    [
        (_convolution, ["nn.conv2d", "add"]),
        (_depthwise, ["nn.conv2d", "add"]),
        (_transposed, ["nn.conv2d_transpose", "add"]),
        (_biased_then_scaled, ["nn.conv2d", "add"]),
        (_linear, ["reshape", "matmul", "add"]),
        (lambda x: _normalized(op.nn.relu(x), 4), ["nn.relu", "multiply", "add"]),
        (lambda x: _normalized(x, 4, center=False, scale=False), ["multiply", "add"]),
    ],
)
def test_scales_go_into_weights(compute: Callable[..., Any], operators: list[str]) -> None:
    mod = module(compute, IMAGE)
    lowered = LOWERED(mod)
    assert ops(lowered) == operators
    check_equal(mod, lowered)


def test_a_result_that_is_read_elsewhere_keeps_its_weights() -> None:
    def compute(x: Any) -> Any:
        builder = relax.BlockBuilder.current()
        assert builder is not None
        y = builder.emit(op.nn.conv2d(x, normal(8, 4, 3, 3)))
        return op.add(op.multiply(y, relax.const(2.0)), op.nn.relu(y))

    mod = module(compute, IMAGE)
    assert ops(LOWERED(mod)) == ["nn.conv2d", "multiply", "nn.relu", "add"]
    check_equal(mod, LOWERED(mod))


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: op.multiply(op.nn.conv2d(x, normal(8, 4, 3, 3)), normal(1, 1, 4, 4)),
        lambda x: op.multiply(op.nn.conv2d(x, normal(1, 4, 3, 3)), normal(1, 8, 1, 1)),
        lambda x: op.multiply(op.nn.conv2d_transpose(x, normal(4, 2, 3, 3), groups=2), normal(4, 1, 1)),
        lambda x: op.multiply(op.matmul(op.reshape(x, (4, 36)), normal(36, 5)), normal(4, 1)),
    ],
)
def test_factors_of_pixels_stay(compute: Callable[..., Any]) -> None:
    mod = module(compute, IMAGE)
    assert ops(LOWERED(mod))[-1] == "multiply"
    check_equal(mod, LOWERED(mod))


def test_whole_numbers_are_divided_as_they_are() -> None:
    def compute(x: Any) -> Any:
        return op.astype(op.divide(op.astype(x, "int32"), relax.const(2, "int32")), "float32")

    assert "divide" in ops(LOWERED(module(compute, IMAGE)))
