r"""Scales: what multiplies the output of a convolution or a linear layer goes into its weights.

.. math:: s (W x + b) + t = (s W) x + (s b + t)

for constants s and t that are the same for all pixels. Batch normalization is such a multiplication and an
addition at inference, behind whatever it stands.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm.relax import op

from .rewriting import TUPLE_ITEM, Rewriter, Rule, extents, op_name, rewritten

# Where its weight has the output channels: the letter of its layout; a matrix has them last.
_LINEAR = (
    "relax.nn.conv1d",
    "relax.nn.conv2d",
    "relax.nn.conv3d",
    "relax.nn.conv1d_transpose",
    "relax.nn.conv2d_transpose",
    "relax.nn.conv3d_transpose",
    "relax.matmul",
)


@tvm.transform.module_pass(opt_level=0, name="FoldScales")
class FoldScales:
    """Make batch normalization a multiplication and an addition, and fold those into weights and biases."""

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """Rewrite ``main``."""
        return rewritten(_RULES, mod)


def _batch_norm(rewriter: Rewriter, item: Any) -> Any:
    """Replace the normalized data by data * scale + shift."""
    call = rewriter.made_by(item.tuple_value, "relax.nn.batch_norm")
    if call is None or item.index != 0 or call.attrs.training:
        return None
    data, gamma, beta, mean, variance = call.args
    if not all(rewriter.constant(arg) for arg in call.args[1:]):
        return None
    epsilon = tvm.relax.const(float(call.attrs.epsilon), data.ty.dtype)
    scale = op.rsqrt(op.add(variance, epsilon))
    scale = op.multiply(gamma, scale) if call.attrs.scale else scale
    shift = op.negative(op.multiply(mean, scale))
    shift = op.add(beta, shift) if call.attrs.center else shift
    axis = int(call.attrs.axis) % len(extents(data))
    shape = [n if i == axis else 1 for i, n in enumerate(extents(data))]
    scaled = rewriter.make(op.multiply(data, rewriter.make(op.reshape(scale, shape))))
    return rewriter.make(op.add(scaled, rewriter.make(op.reshape(shift, shape))))


def _multiply(rewriter: Rewriter, call: Any) -> Any:
    """Fold a constant factor into what made the other operand."""
    data, factor = _with_constant_last(rewriter, call)
    if factor is None:
        return None
    inner = rewriter.made_by(data, "relax.add", "relax.multiply", *_LINEAR)
    if inner is None or not rewriter.only_use(data):
        return None
    if op_name(inner) in _LINEAR:
        return _scaled_weight(rewriter, inner, factor)
    value, constant = _with_constant_last(rewriter, inner)
    if constant is None or extents(value) != extents(data):
        return None
    product = rewriter.make(op.multiply(constant, factor))
    if op_name(inner) == "relax.multiply":
        return rewriter.make(op.multiply(value, product))
    return rewriter.make(op.add(rewriter.make(op.multiply(value, factor)), product))


def _scaled_weight(rewriter: Rewriter, call: Any, factor: Any) -> Any:
    """Multiply the weight by a factor that depends on the output's channel alone."""
    data, weight = call.args
    out, channel = len(extents(call)), _output_channel(call)
    shape = (1,) * (out - len(extents(factor))) + extents(factor)
    per_channel = [n if i == channel else 1 for i, n in enumerate(shape)]
    if not rewriter.constant(weight) or channel is None or prod(per_channel) != prod(shape):
        return None
    rank, axis = len(extents(weight)), _weight_channel(call)
    by_weight = [prod(shape) if i == axis else 1 for i in range(rank)]
    scaled = rewriter.make(op.multiply(weight, rewriter.make(op.reshape(factor, by_weight))))
    return tvm.relax.Call(call.op, [data, scaled], call.attrs)


def _output_channel(call: Any) -> int | None:
    if op_name(call) == "relax.matmul":
        return len(extents(call)) - 1 if len(extents(call.args[1])) == 2 else None
    if "transpose" in op_name(call) and call.attrs.groups != 1:
        return None
    return str(call.attrs.out_layout or call.attrs.data_layout).index("C")


def _weight_channel(call: Any) -> int:
    return 1 if op_name(call) == "relax.matmul" else str(call.attrs.kernel_layout).index("O")


def _add(rewriter: Rewriter, call: Any) -> Any:
    """Add two constants first."""
    data, term = _with_constant_last(rewriter, call)
    inner = rewriter.made_by(data, "relax.add") if term is not None else None
    if inner is None or not rewriter.only_use(data):
        return None
    value, constant = _with_constant_last(rewriter, inner)
    if constant is None or extents(value) != extents(data):
        return None
    return op.add(value, rewriter.make(op.add(constant, term)))


def _divide(rewriter: Rewriter, call: Any) -> Any:
    """Multiply by the reciprocal of a constant."""
    data, divisor = call.args
    if not rewriter.constant(divisor) or rewriter.constant(data) or "float" not in str(call.ty.dtype):
        return None
    one = tvm.relax.const(1.0, divisor.ty.dtype)
    return rewriter.make(op.multiply(data, rewriter.make(op.divide(one, divisor))))


def _subtract(rewriter: Rewriter, call: Any) -> Any:
    """Add the negative of a constant."""
    data, term = call.args
    if not rewriter.constant(term) or rewriter.constant(data) or "float" not in str(call.ty.dtype):
        return None
    return rewriter.make(op.add(data, rewriter.make(op.negative(term))))


def _with_constant_last(rewriter: Rewriter, call: Any) -> tuple[Any, Any]:
    """Return the operand that has the output's shape and the constant, None if there is no such pair."""
    for data, other in (call.args, reversed(call.args)):
        fits = extents(data) == extents(call) and "float" in str(call.ty.dtype)
        if fits and rewriter.constant(other) and not rewriter.constant(data):
            return data, other
    return call.args[0], None


_RULES: dict[str, Rule] = {
    TUPLE_ITEM: _batch_norm,
    "relax.multiply": _multiply,
    "relax.divide": _divide,
    "relax.add": _add,
    "relax.subtract": _subtract,
}
