"""Products that are summed: which two loads a block multiplies."""

from __future__ import annotations

from typing import Any

from tvm.ir import TensorLoad
from tvm.tirx import Add, Cast, Mul


def product_operands(block: Any) -> tuple[TensorLoad, TensorLoad] | None:
    """Return the two loads of ``out = out + a * b``, casts allowed, or None for another body."""
    value = getattr(block.body, "value", None)
    if not isinstance(value, Add):
        return None
    product = _uncast(value.b) if isinstance(_uncast(value.a), TensorLoad) else _uncast(value.a)
    if not isinstance(product, Mul):
        return None
    a, b = _uncast(product.a), _uncast(product.b)
    return (a, b) if isinstance(a, TensorLoad) and isinstance(b, TensorLoad) else None


def _uncast(value: Any) -> Any:
    while isinstance(value, Cast):
        value = value.value
    return value
