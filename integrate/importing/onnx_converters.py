"""Converters of our own for ONNX operators that TVM's importer converts wrongly or badly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import inf
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx.onnx_frontend import Conv, ReduceMax, ReduceMin, Slice, onnx_input

# TVM sorts no numbers of these types.
_SORTED_AS = {
    "int16": "int32",
    "uint16": "int32",
    "uint32": "int64",
    "uint64": "int64",
    "bfloat16": "float32",
}

Converter = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]
"""Makes a Relax expression from a block builder, a node's inputs, and its attributes with the "opset"."""


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


def _shift(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Shift by any number: by as many bits as there are, all are out, and LLVM's shift is undefined."""
    x, by = inputs
    kind = by.ty.dtype.dtype
    left = attributes["direction"] == b"LEFT"
    shift = op.left_shift if left else op.right_shift
    bits, zero = relax.const(by.ty.dtype.dtype.itemsize * 8, kind), relax.const(0, kind)
    within = builder.normalize(op.less(by, bits))
    signed = str(kind).startswith("int")
    if signed:
        within = builder.normalize(op.logical_and(within, op.greater_equal(by, zero)))
    if signed and not left:
        most = relax.const(by.ty.dtype.dtype.itemsize * 8 - 1, kind)
        return shift(x, builder.normalize(op.where(within, by, most)))
    shifted = builder.normalize(shift(x, builder.normalize(op.where(within, by, zero))))
    return op.where(within, shifted, relax.const(0, x.ty.dtype.dtype))


def _extremum(converter: Any, limit: float) -> Converter:
    """Reduce as TVM does, and give infinity where nothing else is: TVM begins at a finite number."""

    def convert(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        def reduced(by: Any, x: Any) -> Any:
            operands = onnx_input([x, *inputs[1:]])
            convert = by.get_converter(attributes["opset"])
            return builder.normalize(convert(builder, operands, dict(attributes), [{}, {}]))

        x = inputs[0]
        found = reduced(converter, x)
        if not str(x.ty.dtype).startswith(("float", "bfloat")):
            return found
        infinity = relax.const(limit, x.ty.dtype.dtype)
        others = builder.normalize(op.astype(builder.normalize(op.not_equal(x, infinity)), "uint8"))
        exist = builder.normalize(op.astype(reduced(ReduceMax, others), "bool"))
        return op.where(exist, found, infinity)

    return convert


def _gather(_builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Take along an axis; TVM computes the axis's extent and the negative indices as the model runs."""
    return op.take(inputs[0], inputs[1], int(attributes.get("axis", 0)) % len(inputs[0].ty.shape))


def _power(builder: Any, inputs: Sequence[Any], _attributes: Mapping[str, Any]) -> Any:
    """Raise to a power of another type; of integers in float64, as there is no integer power."""
    base, exponent = inputs
    kind = base.ty.dtype.dtype
    number = exponent.value.numpy() if isinstance(exponent, tvm.ir.GenericConst) else np.zeros(2)
    if number.size == 1 and number.ndim <= len(base.ty.shape) and number.item() in (1, 2, 3):
        return _pairwise(op.multiply)(builder, [base] * int(number.item()), {})
    inside = kind if str(kind).startswith(("float", "bfloat")) else "float64"
    powers = [x if x.ty.dtype == inside else builder.normalize(op.astype(x, inside)) for x in inputs]
    result = builder.normalize(op.power(*powers))
    return result if inside == kind else op.astype(builder.normalize(op.round(result)), kind)


def _modulo(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Take the remainder with the divisor's sign; of floats from C's remainder, which infinite divisors have.

    TVM computes ``a - b * floor(a / b)``, which is no number where b is infinite.
    """
    a, b = inputs
    kind = a.ty.dtype.dtype
    if attributes.get("fmod", 0) or not str(kind).startswith(("float", "bfloat")):
        return (op.mod if attributes.get("fmod", 0) else op.floor_mod)(a, b)

    def made(expr: Any) -> Any:
        return builder.normalize(expr)

    zero, rest = relax.const(0, kind), made(op.mod(a, b))
    opposite = made(op.logical_xor(made(op.less(rest, zero)), made(op.less(b, zero))))
    other_sign = made(op.logical_and(made(op.not_equal(rest, zero)), opposite))
    return op.where(other_sign, made(op.add(rest, b)), rest)


def _top_k(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Sort as another type what TVM sorts not at all: in an order that is the same."""
    data, *given = inputs
    kind = str(data.ty.dtype.dtype)
    sorted_as = _SORTED_AS.get(kind, kind)
    k = int(given[0].value.numpy().item() if given else attributes["k"])
    # Half of the range lower, so that the order of signed numbers is that of unsigned ones.
    top = relax.const(np.uint64(1 << 63)) if kind == "uint64" else None
    if top is not None:
        data = builder.normalize(op.bitwise_xor(data, top))
    data = data if sorted_as == kind else builder.normalize(op.astype(data, sorted_as))
    axis, largest = int(attributes.get("axis", -1)), bool(attributes.get("largest", 1))
    found = builder.normalize(op.topk(data, k, axis, "both", largest, "int64"))
    values, places = (builder.normalize(relax.TupleGetItem(found, i)) for i in range(2))
    values = values if sorted_as == kind else builder.normalize(op.astype(values, kind))
    values = values if top is None else builder.normalize(op.bitwise_xor(values, top))
    return relax.Tuple([values, places])


def _slice(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Slice from and to attributes, as before version 10; TVM has the later form alone."""
    if attributes["opset"] >= 10:
        convert = Slice.get_converter(attributes["opset"])
        return convert(builder, onnx_input(inputs), dict(attributes), [{}, {}])
    starts, ends = attributes["starts"], attributes["ends"]
    axes = attributes.get("axes", tuple(range(len(starts))))
    return op.strided_slice(inputs[0], list(axes), list(starts), list(ends))


def _space_to_depth(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Move blocks into channels: TVM orders them by block whatever the mode."""
    (n, c, h, w), size = (int(d) for d in inputs[0].ty.shape), int(attributes["blocksize"])
    blocks = builder.normalize(op.reshape(inputs[0], (n, c, h // size, size, w // size, size)))
    by_channel = attributes.get("mode", b"DCR") == b"CRD"
    order = [0, 1, 3, 5, 2, 4] if by_channel else [0, 3, 5, 1, 2, 4]
    moved = builder.normalize(op.permute_dims(blocks, order))
    return op.reshape(moved, (n, c * size * size, h // size, w // size))


def _prelu(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Scale what is negative by a slope that is broadcast, before version 7 along the channels."""
    x, slope = inputs
    if attributes["opset"] < 7 and len(x.ty.shape) > 1 and len(slope.ty.shape) == 1:
        slope = builder.normalize(op.reshape(slope, (-1, *[1] * (len(x.ty.shape) - 2))))
    negative = builder.normalize(op.less(x, relax.const(0, x.ty.dtype.dtype)))
    return op.where(negative, builder.normalize(op.multiply(x, slope)), x)


def _conv_integer(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Convolve in 32-bit integers, which TVM's converter of Conv takes as well."""
    x, w, x_zero, w_zero = (*inputs, None, None)[:4]

    def centered(array: Any, zero: Any) -> Any:
        wide = builder.normalize(op.astype(array, "int32"))
        if zero is None:
            return wide
        shift = builder.normalize(op.astype(zero, "int32"))
        if len(shift.ty.shape) == 1 and int(shift.ty.shape[0]) > 1:
            shift = builder.normalize(op.reshape(shift, (-1, *[1] * (len(wide.ty.shape) - 1))))
        return builder.normalize(op.subtract(wide, shift))

    convert = Conv.get_converter(11)
    operands = onnx_input([centered(x, x_zero), centered(w, w_zero)])
    return convert(builder, operands, dict(attributes), [{}, {}])


def _lp_normalization(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Divide by the norm along an axis, and leave zeros where that is zero."""
    x, axis = inputs[0], int(attributes.get("axis", -1))
    squares = attributes.get("p", 2) == 2
    terms = builder.normalize(op.multiply(x, x) if squares else op.abs(x))
    norm = builder.normalize(op.sum(terms, axis, keepdims=True))
    norm = builder.normalize(op.sqrt(norm)) if squares else norm
    zero, one = (relax.const(value, x.ty.dtype.dtype) for value in (0, 1))
    safe = builder.normalize(op.where(builder.normalize(op.equal(norm, zero)), one, norm))
    return op.divide(x, safe)


CONVERTERS: dict[str, Converter] = {
    "BitShift": _shift,
    "ConvInteger": _conv_integer,
    "Gather": _gather,
    "IsInf": _isinf,
    "LpNormalization": _lp_normalization,
    "Max": _pairwise(op.maximum),
    "Mean": _mean,
    "Min": _pairwise(op.minimum),
    "Mod": _modulo,
    "PRelu": _prelu,
    "Pow": _power,
    "ReduceMax": _extremum(ReduceMax, -inf),
    "ReduceMin": _extremum(ReduceMin, inf),
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Sum": _pairwise(op.add),
    "TopK": _top_k,
}
"""By the names of standard operators."""
