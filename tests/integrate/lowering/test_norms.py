from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.integrate.lowering.application import apply_records
from tunesmith.integrate.lowering.norms import RaiseNorms
from tunesmith.integrate.lowering.pipeline import prepare
from tvm import relax
from tvm.ir.transform import Sequential
from tvm.relax import op

from .plain import check_equal, module, normal, ops, positive

RAISED = Sequential([relax.transform.EliminateCommonSubexpr(), RaiseNorms()])
WIDTH = 24
SHAPE = (1, 8, WIDTH)


def _const(value: float) -> Any:
    return relax.const(np.float32(value))


def _power(x: Any) -> Any:
    return op.power(x, _const(2))


def _product(x: Any) -> Any:
    return op.multiply(x, x)


def _emitted(expr: Any) -> Any:
    builder = relax.BlockBuilder.current()
    assert builder is not None
    return builder.emit(expr)


def _deviation(x: Any, square: Callable[[Any], Any] = _product, **options: Any) -> Any:
    mean = op.mean(square(x), options.get("axis", [-1]), keepdims=options.get("keepdims", True))
    return op.sqrt(op.add(mean, _const(1e-3)))


def _as_torch(x: Any) -> Any:
    """Write a layer normalization as PyTorch exported it: Sub, Pow, Div."""
    x = _emitted(op.subtract(x, op.mean(x, [-1], keepdims=True)))
    return op.add(op.multiply(op.divide(x, _deviation(x, _power)), positive(WIDTH)), normal(WIDTH))


def _as_tensorflow(x: Any) -> Any:
    """Subtract the mean twice, and multiply with the weight first."""
    first, second = (_emitted(op.subtract(x, op.mean(x, [-1], keepdims=True))) for _ in range(2))
    inverse = op.rsqrt(op.add(_const(1e-3), op.mean(_product(second), [2], keepdims=True)))
    return op.add(normal(1, 1, WIDTH), op.multiply(positive(1, WIDTH), op.multiply(inverse, first)))


def _rms(x: Any) -> Any:
    return op.multiply(positive(WIDTH), op.multiply(x, op.divide(_const(1), _deviation(x))))


def _rms_by_powers(x: Any) -> Any:
    inverse = op.power(op.add(op.mean(_power(x), [-1], keepdims=True), _const(1e-3)), _const(-0.5))
    return op.multiply(op.multiply(x, inverse), positive(WIDTH))


@pytest.mark.parametrize(
    ("compute", "norm"),
    [
        (_as_torch, "nn.layer_norm"),
        (_as_tensorflow, "nn.layer_norm"),
        (_rms, "nn.rms_norm"),
        (_rms_by_powers, "nn.rms_norm"),
    ],
)
def test_a_norm_becomes_one_function(compute: Callable[[Any], Any], norm: str) -> None:
    mod = module(compute, SHAPE)
    raised = RAISED(mod)
    assert norm in ops(raised) and not {"mean", "sqrt", "rsqrt", "power", "add"} & set(ops(raised))
    check_equal(mod, raised)
    target = ts.host_target()
    lowered = prepare(mod, target)
    check_equal(mod, lowered)
    (choice,) = apply_records(lowered, target)[1]
    assert choice.schedule == "rows"


def _of_others(x: Any) -> Any:
    """Divide by the deviation of something else."""
    return op.multiply(op.divide(x, _deviation(op.exp(x))), positive(WIDTH))


@pytest.mark.parametrize(
    "compute",
    [
        _of_others,
        lambda x: op.multiply(op.divide(x, _deviation(x, axis=[1])), positive(WIDTH)),
        lambda x: op.multiply(op.divide(x, _deviation(x, keepdims=False)), positive(WIDTH)),
        lambda x: op.multiply(op.divide(x, _deviation(x)), positive(WIDTH, WIDTH)),
        lambda x: op.multiply(op.divide(x, _deviation(x)), _const(2)),
        lambda x: op.multiply(op.divide(x, _deviation(x, lambda y: op.power(y, _const(3)))), positive(WIDTH)),
    ],
)
def test_others_stay_as_they_are(compute: Callable[[Any], Any]) -> None:
    mod = module(compute, (1, WIDTH, WIDTH))
    assert not {"nn.layer_norm", "nn.rms_norm"} & set(ops(RaiseNorms()(mod)))


def test_what_is_shifted_otherwise_keeps_its_addition() -> None:
    def compute(x: Any) -> Any:
        return op.add(_as_torch(x), x)

    mod = module(compute, SHAPE)
    assert ops(RaiseNorms()(mod))[-2:] == ["nn.layer_norm", "add"]
    check_equal(mod, RaiseNorms()(mod))
