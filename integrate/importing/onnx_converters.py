"""Converters of our own for ONNX operators that TVM's importer converts wrongly or badly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from tvm import relax
from tvm.relax import op

Converter = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]
"""Makes a Relax expression from a block builder, the inputs and the attributes of a node."""


def _pairwise(combine: Callable[[Any, Any], Any]) -> Converter:
    """Combine all inputs two at a time: TVM stacks them and reduces, which nothing can be fused with."""
    return lambda builder, inputs, _attributes: reduce(lambda a, b: builder.normalize(combine(a, b)), inputs)


def _mean(builder: Any, inputs: Sequence[Any], _attributes: Mapping[str, Any]) -> Any:
    total = reduce(lambda a, b: builder.normalize(op.add(a, b)), inputs)
    return op.divide(total, relax.const(len(inputs), total.ty.dtype.dtype))


def _isinf(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """TVM takes either sign whatever is asked for."""
    x = inputs[0]
    zero = relax.const(0, x.ty.dtype.dtype)
    found = builder.normalize(op.isinf(x))
    if not attributes.get("detect_negative", 1):
        found = builder.normalize(op.logical_and(found, op.greater(x, zero)))
    if not attributes.get("detect_positive", 1):
        found = builder.normalize(op.logical_and(found, op.less(x, zero)))
    return found


CONVERTERS: dict[str, Converter] = {
    "IsInf": _isinf,
    "Max": _pairwise(op.maximum),
    "Mean": _mean,
    "Min": _pairwise(op.minimum),
    "Sum": _pairwise(op.add),
}
"""By the names of standard operators."""
