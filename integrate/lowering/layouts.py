"""Layouts: channels last inside, and transpositions that travel until they meet, or reach the model's edge.

A convolution becomes one with channels last between two transpositions. Every operator that can work on a
transposed tensor does, and hands the transposition on::

    relu(permute(x)) = permute(relu(x))        permute(permute(x)) = permute(x) or x

What is left stands at inputs, at outputs, and where an operator needs the original order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import tvm
from tvm.relax import Call, op

from .convolutions import CONVOLUTIONS, channels_first, channels_first_of_last, channels_last
from .reshapes import RESHAPES, move_past_reshape
from .resizing import RESIZING
from .rewriting import TUPLE_ITEM, Rewriter, Rule, extents, op_name, rewritten, with_attrs
from .slices import SLICE, earlier_slice
from .transpositions import PERMUTE, Axes, compose, inverse, permutation, transposed


@tvm.transform.module_pass(opt_level=0, name="ChannelsLast")
class ChannelsLast:
    """Compute convolutions with channels last and move transpositions to where none are needed."""

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """Rewrite ``main``."""
        return rewritten(_RULES, mod)


@tvm.transform.module_pass(opt_level=0, name="SettleLayouts")
class SettleLayouts:
    """Make reshapes of transpositions that move only dimensions of extent 1."""

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """Rewrite ``main``."""
        return rewritten({PERMUTE: _without_movement, "relax.reshape": _one_reshape}, mod)


def _pooling(rewriter: Rewriter, call: Any) -> Any:
    """Pool channels-last what is channels-last."""
    found, rank = transposed(rewriter, call.args[0]), len(extents(call))
    if found is None or call.attrs.layout != channels_first(rank):
        return None
    if found[1] != channels_first_of_last(rank):
        return _pooling_3d(rewriter, call) if op_name(call) == "relax.nn.avg_pool3d" else None
    layout = channels_last(rank)
    result = with_attrs(call, [found[0]], layout=layout, out_layout=layout)
    return op.permute_dims(rewriter.emit(result), found[1])


def _pooling_3d(rewriter: Rewriter, call: Any) -> Any:
    """Pool what is transposed in its own order, as local response normalization needs."""
    found = transposed(rewriter, call.args[0])
    if found is None or found[1][:2] != (0, 1):
        return None
    data, axes = found
    order = [a - 2 for a in inverse(axes)[2:]]
    pads = [int(p) for p in call.attrs.padding]
    pads = pads * (6 // len(pads))
    changed = {n: [getattr(call.attrs, n)[i] for i in order] for n in ("pool_size", "strides", "dilation")}
    padding = [pads[i] for i in order] + [pads[3 + i] for i in order]
    return op.permute_dims(rewriter.emit(with_attrs(call, [data], padding=padding, **changed)), axes)


def _unary(rewriter: Rewriter, call: Any) -> Any:
    found = transposed(rewriter, call.args[0])
    if found is None:
        return None
    return op.permute_dims(rewriter.emit(Call(call.op, [found[0], *call.args[1:]], call.attrs)), found[1])


def _elementwise(rewriter: Rewriter, call: Any) -> Any:
    """Work on the first transposed operand's order; bring the others to it."""
    rank, shape = len(extents(call)), extents(call)
    found = [transposed(rewriter, a) for a in call.args]
    axes = next((f[1] for f, a in zip(found, call.args, strict=True) if f and extents(a) == shape), None)
    if axes is None:
        return None
    operands = [_in_order(rewriter, a, axes, rank) for a in call.args]
    return op.permute_dims(rewriter.emit(Call(call.op, operands, call.attrs)), axes)


def _in_order(rewriter: Rewriter, expr: Any, axes: Axes, rank: int) -> Any:
    """Transpose an operand the other way; numbers stay numbers."""
    shape = extents(expr)
    if len(shape) == 0:
        return expr
    if len(shape) < rank:
        expr = rewriter.make(op.reshape(expr, (1,) * (rank - len(shape)) + shape))
    return rewriter.make(op.permute_dims(expr, inverse(axes)))


def _reduction(rewriter: Rewriter, call: Any) -> Any:
    found = transposed(rewriter, call.args[0])
    if found is None:
        return None
    data, axes = found
    rank = len(axes)
    reduced = [int(a) % rank for a in (call.attrs.axis if call.attrs.axis is not None else range(rank))]
    result = rewriter.emit(with_attrs(call, [data], axis=[axes[a] for a in reduced]))
    if call.attrs.keepdims:
        return op.permute_dims(result, axes)
    kept = [axes[a] for a in range(rank) if a not in reduced]
    return op.permute_dims(result, [sorted(kept).index(a) for a in kept]) if kept else result


def _along_axis(rewriter: Rewriter, call: Any) -> Any:
    """Softmax and its like."""
    found = transposed(rewriter, call.args[0])
    if found is None or len(call.args) > 1:
        return None
    data, axes = found
    axis = axes[int(call.attrs.axis) % len(axes)]
    return op.permute_dims(rewriter.emit(with_attrs(call, [data], axis=axis)), axes)


def _concat(rewriter: Rewriter, call: Any) -> Any:
    parts = list(call.args[0].fields) if isinstance(call.args[0], tvm.relax.Tuple) else []
    if call.attrs.axis is None or not parts:
        return None
    # The order that most elements are in: the others are moved.
    sizes: Counter[tuple[int, ...]] = Counter()
    for part in parts:
        found = transposed(rewriter, part)
        sizes[found[1] if found else tuple(range(len(extents(call))))] += prod(extents(part))
    axes, _ = sizes.most_common(1)[0]
    if list(axes) == sorted(axes):
        return None
    operands = [_in_order(rewriter, p, axes, len(axes)) for p in parts]
    axis = axes[int(call.attrs.axis) % len(axes)]
    return op.permute_dims(rewriter.emit(op.concat(operands, axis)), axes)


def _part(rewriter: Rewriter, item: Any) -> Any:
    """Split in the other order; equal splits become one later."""
    call = rewriter.made_by(item.tuple_value, "relax.split")
    found = None if call is None else transposed(rewriter, call.args[0])
    if call is None or found is None:
        return None
    data, axes = found
    parts = rewriter.emit(with_attrs(call, [data], axis=axes[int(call.attrs.axis) % len(axes)]))
    return op.permute_dims(rewriter.make(tvm.relax.TupleGetItem(parts, item.index)), axes)


def _pad(rewriter: Rewriter, call: Any) -> Any:
    found = transposed(rewriter, call.args[0])
    if found is None:
        return None
    data, axes = found
    widths = [int(w) for w in call.attrs.pad_width]
    moved = [w for a in inverse(axes) for w in widths[2 * a : 2 * a + 2]]
    return op.permute_dims(rewriter.emit(with_attrs(call, [data], pad_width=moved)), axes)


def _reshape(rewriter: Rewriter, call: Any) -> Any:
    """Reshape what is transposed as far as whole dimensions are merged or split."""
    found = transposed(rewriter, call.args[0])
    if found is None or 0 in extents(call):
        return None
    data, axes = found
    order, shape, after = move_past_reshape(extents(data), axes, extents(call))
    if list(order) != sorted(order):
        if tuple(after) != channels_first_of_last(4):
            return None  # it is moved once now, as it was, not a part of it now and a part later
        data = rewriter.emit(op.permute_dims(data, order))
    result = rewriter.emit(op.reshape(data, shape))
    return result if list(after) == sorted(after) else op.permute_dims(result, after)


def _matmul(rewriter: Rewriter, call: Any) -> Any:
    """Transpose the rows of the weight where the data's columns are a transposed tensor in one row."""
    data, weight = call.args
    reshape = rewriter.made_by(data, "relax.reshape")
    moved = rewriter.made_by(reshape.args[0], PERMUTE) if reshape is not None else None
    if moved is None or not rewriter.constant(weight) or len(extents(weight)) != 2:
        return None
    axes, shape = permutation(moved), extents(moved)
    if axes[0] != 0 or extents(data) != (shape[0], extents(weight)[0]):
        return None
    back = [a - 1 for a in inverse(axes)[1:]]
    rows = rewriter.make(op.reshape(weight, (*shape[1:], extents(weight)[1])))
    rows = rewriter.make(op.permute_dims(rows, [*back, len(back)]))
    flat = rewriter.emit(op.reshape(moved.args[0], extents(data)))
    return Call(call.op, [flat, rewriter.make(op.reshape(rows, extents(weight)))], call.attrs)


def _without_movement(_rewriter: Rewriter, call: Any) -> Any:
    """Keep only transpositions that change the order of the elements."""
    shape = extents(call.args[0])
    moved = [a for a in permutation(call) if shape[a] != 1]
    return op.reshape(call.args[0], extents(call)) if moved == sorted(moved) else None


def _one_reshape(rewriter: Rewriter, call: Any) -> Any:
    inner = rewriter.made_by(call.args[0], "relax.reshape")
    data = call.args[0] if inner is None else inner.args[0]
    if extents(data) == extents(call):
        return data
    return None if inner is None else op.reshape(data, extents(call))


_UNARY = (
    "abs acos asin atan ceil clip cos cosh erf exp floor isfinite isinf isnan log logical_not negative round "
    "rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc astype bitwise_not nn.relu nn.leakyrelu nn.gelu "
    "nn.gelu_tanh nn.silu nn.softplus nn.selu nn.relu6"
).split()
_ELEMENTWISE = (
    "add subtract multiply divide floor_divide power maximum minimum mod floor_mod equal not_equal less "
    "less_equal greater greater_equal logical_and logical_or logical_xor where"
).split()
_REDUCTIONS = "mean sum max min prod variance std".split()
_POOLINGS = [f"{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_avg") for n in (1, 2, 3)]


def _rules() -> dict[str, Rule]:
    groups: dict[Callable[..., Any], list[str]] = {
        _unary: _UNARY,
        _elementwise: _ELEMENTWISE,
        _reduction: _REDUCTIONS,
        _pooling: [f"nn.{name}" for name in _POOLINGS],
        _along_axis: ["nn.softmax", "nn.log_softmax"],
    }
    rules = {f"relax.{name}": rule for rule, names in groups.items() for name in names}
    rules |= dict.fromkeys(RESHAPES, _reshape) | {SLICE: earlier_slice}
    rules |= {PERMUTE: compose, TUPLE_ITEM: _part, "relax.nn.pad": _pad}
    rules |= CONVOLUTIONS | RESIZING
    return rules | {"relax.concat": _concat, "relax.matmul": _matmul}


_RULES = _rules()
