r"""Norms: layer and RMS normalization written out as its arithmetic becomes the one operator that it is.

.. math:: (x - \mu) / \sqrt{\mathrm{mean}((x - \mu)^2) + \epsilon} \cdot \gamma + \beta, \qquad
          x / \sqrt{\mathrm{mean}(x^2) + \epsilon} \cdot \gamma

along the last axis, as ONNX models before version 17 have the first, and exporters write the second. Operator
by operator they are two or three functions that read and write all of x; in one a row stays in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from .rewriting import Rewriter, extents, rewritten

_LAYER_NORM = "relax.nn.layer_norm"


@tvm.transform.module_pass(opt_level=0, name="RaiseNorms")
class RaiseNorms:
    """Replace what computes a norm with weights by `layer_norm` or `rms_norm`."""

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """Rewrite ``main``."""
        return rewritten({"relax.multiply": _weighted, "relax.add": _biased}, mod)


def _weighted(rewriter: Rewriter, call: Any) -> Any:
    """Find a norm times its weight."""
    for data, weight in (call.args, reversed(call.args)):
        found = _normalized(rewriter, data) if _is_row(rewriter, weight, call) else None
        if found is None:
            continue
        rows, epsilon = found
        weight = rewriter.make(op.reshape(weight, extents(call)[-1:]))
        source = _centred(rewriter, rows)
        if source is None:
            return op.nn.rms_norm(rows, weight, [-1], epsilon)
        return op.nn.layer_norm(source, weight, op.zeros_like(weight), [-1], epsilon)
    return None


def _biased(rewriter: Rewriter, call: Any) -> Any:
    """Give a norm without a bias the one that follows it."""
    for data, bias in (call.args, reversed(call.args)):
        norm = rewriter.made_by(data, _LAYER_NORM)
        if norm is None or not rewriter.only_use(data) or not _is_row(rewriter, bias, call):
            continue
        if rewriter.made_by(norm.args[2], "relax.zeros_like") is None:
            continue
        bias = rewriter.make(op.reshape(bias, extents(call)[-1:]))
        return relax.Call(norm.op, [*norm.args[:2], bias], norm.attrs)
    return None


def _is_row(rewriter: Rewriter, weight: Any, call: Any) -> bool:
    """Tell whether a constant has one number for each place of a row."""
    columns = extents(call)[-1:]
    *outer, last = extents(weight) or (0,)
    return (last,) == columns and set(outer) <= {1} and rewriter.constant(weight)


def _normalized(rewriter: Rewriter, expr: Any) -> tuple[Any, float] | None:
    """Recognize rows divided by the root of their mean square and a small number; return both."""
    quotient, product = rewriter.made_by(expr, "relax.divide"), rewriter.made_by(expr, "relax.multiply")
    if quotient is not None:
        rows, square = quotient.args[0], _rooted(rewriter, quotient.args[1])
        return None if square is None else _with_epsilon(rewriter, rows, square)
    for rows, inverse in () if product is None else (product.args, reversed(product.args)):
        square = _inverse_root_of(rewriter, inverse)
        if square is not None:
            return _with_epsilon(rewriter, rows, square)
    return None


def _rooted(rewriter: Rewriter, expr: Any) -> Any:
    """Return what a square root is taken of, or None."""
    root, power = rewriter.made_by(expr, "relax.sqrt"), rewriter.made_by(expr, "relax.power")
    if root is not None:
        return root.args[0]
    return power.args[0] if power is not None and _number(power.args[1]) == 0.5 else None


def _inverse_root_of(rewriter: Rewriter, expr: Any) -> Any:
    inverse, power = rewriter.made_by(expr, "relax.rsqrt"), rewriter.made_by(expr, "relax.power")
    quotient = rewriter.made_by(expr, "relax.divide")
    if inverse is not None:
        return inverse.args[0]
    if power is not None:
        return power.args[0] if _number(power.args[1]) == -0.5 else None
    one = quotient is not None and _number(quotient.args[0]) == 1
    return _rooted(rewriter, quotient.args[1]) if one else None


def _with_epsilon(rewriter: Rewriter, rows: Any, expr: Any) -> tuple[Any, float] | None:
    """Recognize the mean square of these rows and what is added to it."""
    total = rewriter.made_by(expr, "relax.add")
    for square, epsilon in () if total is None else (total.args, reversed(total.args)):
        number, mean = _number(epsilon), _mean(rewriter, square)
        if number is not None and mean is not None and _is_square(rewriter, mean, rows):
            return rows, number
    return None


def _mean(rewriter: Rewriter, expr: Any) -> Any:
    """Return what a mean along the last axis is taken of, or None."""
    call = rewriter.made_by(expr, "relax.mean")
    if call is None or not call.attrs.keepdims or call.attrs.axis is None:
        return None
    rank = len(extents(expr))
    return call.args[0] if [int(a) % rank for a in call.attrs.axis] == [rank - 1] else None


def _is_square(rewriter: Rewriter, expr: Any, rows: Any) -> bool:
    call = rewriter.made_by(expr, "relax.multiply", "relax.power", "relax.square")
    if call is None or not call.args[0].same_as(rows):
        return False
    twice = call.args[-1]
    return len(call.args) == 1 or _number(twice) == 2 or twice.same_as(rows)


def _centred(rewriter: Rewriter, rows: Any) -> Any:
    """Return what the rows are without their mean, or None if they are as they are."""
    call = rewriter.made_by(rows, "relax.subtract")
    mean = None if call is None else _mean(rewriter, call.args[1])
    return call.args[0] if mean is not None and mean.same_as(call.args[0]) else None


def _number(expr: Any) -> float | None:
    """Return the value of a constant of one element."""
    known = isinstance(expr, tvm.ir.GenericConst) and isinstance(expr.value, tvm.runtime.Tensor)
    if not known or int(np.prod(extents(expr))) != 1:
        return None
    return float(expr.value.numpy().item())
