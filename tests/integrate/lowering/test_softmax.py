"""Softmax in models: as the library's own definition has it, along any axis."""

from __future__ import annotations

from typing import Any

import pytest
import tunesmith as ts
from tunesmith.integrate.lowering.functions import prim_func_calls
from tunesmith.integrate.lowering.pipeline import prepare
from tvm.relax import op

from .plain import check_equal, module


def _lowered(operator: Any, axis: int, *shape: int) -> tuple[Any, Any, str]:
    mod = module(lambda x: operator(x, axis), shape)
    lowered = prepare(mod, ts.host_target())
    ((name, _),) = prim_func_calls(lowered)
    return mod, lowered, lowered[name].script()


@pytest.mark.parametrize(("axis", "shape"), [(-1, (3, 5, 7)), (1, (3, 5, 7)), (0, (4, 6)), (0, (9,))])
@pytest.mark.parametrize("operator", [op.nn.softmax, op.nn.log_softmax])
def test_exponentials_are_powers_of_two(operator: Any, axis: int, shape: tuple[int, ...]) -> None:
    mod, lowered, text = _lowered(operator, axis, *shape)
    assert "T.exp2(" in text and "T.exp(" not in text
    check_equal(mod, lowered)


def test_the_sum_of_a_row_divides_once() -> None:
    *_, text = _lowered(op.nn.softmax, -1, 3, 8)
    assert text.count(" / ") == 1 and 'T.sblock("inverse")' in text
