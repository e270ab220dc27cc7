"""Parts of TVM's expressions that several passes look for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx


def conjunction(condition: Any) -> Iterator[Any]:
    """Yield the conditions that all hold where one does."""
    if isinstance(condition, tirx.And):
        yield from conjunction(condition.a)
        yield from conjunction(condition.b)
    else:
        yield condition


def is_zero(number: Any) -> bool:
    """Tell whether an expression is the constant 0, of any type."""
    return isinstance(number, (tirx.IntImm, tirx.FloatImm)) and number.value == 0


def is_one(number: Any) -> bool:
    """Tell whether an expression is the constant 1."""
    return isinstance(number, tirx.IntImm) and int(number) == 1
