"""Attention: two products with a softmax between them become one function; its scores never leave the cache.

Transformers write ``softmax(Q K^T * scale + mask) V`` of heads that are cut out of the rows of a projection,
with transpositions to cut them out and one to put them together. The function reads queries and values where
they lie in the projection and writes whole rows: of four transpositions, that of the keys is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import relax, s_tir, te
from tvm.relax import op

from ...kernels.arithmetic import LOG2_E
from ...schedules.cpu.attention import ATTENTION
from .rewriting import Rewriter, Rule, extents, rewritten
from .slices import columns_of
from .transpositions import PERMUTE, compose, transposed

_HEADS_FIRST = (0, 2, 1, 3)
_KEYS_FIRST = (0, 1, 3, 2)
_DTYPE = "float32"


@tvm.transform.module_pass(opt_level=0, name="FuseAttention")
class FuseAttention:
    """Replace the operators of attention by one function, where there is a schedule for it."""

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """Rewrite ``main``."""
        rules: dict[str, Rule] = {"relax.matmul": _attention, PERMUTE: compose}
        return rewritten(rules, mod)


@dataclass(frozen=True)
class _Heads:
    """Heads of rows: ``source[row, first + head, column]``."""

    source: Any
    first: int


@dataclass(frozen=True)
class _Scores:
    """What the softmax is taken of: ``queries keys * scale + mask``, the keys with their columns first."""

    queries: Any
    keys: Any
    scale: float
    mask: Any


def _attention(rewriter: Rewriter, call: Any) -> Any:
    """Replace the second product of one image or sentence."""
    softmax = rewriter.made_by(call.args[0], "relax.nn.softmax")
    if softmax is None or call.ty.dtype != _DTYPE or len(extents(call)) != 4 or extents(call)[0] != 1:
        return None
    scores = _scores(rewriter, softmax.args[0]) if int(softmax.attrs.axis) in (-1, 3) else None
    alone = rewriter.only_use(call.args[0]) and rewriter.only_use(softmax.args[0])
    queries = _heads(rewriter, scores.queries) if scores is not None and alone else None
    values = _heads(rewriter, call.args[1])
    if scores is None or queries is None or values is None:
        return None
    func = _function(scores, queries, values, extents(call))
    if ATTENTION.space(func, tvm.target.Target.current()) is None:
        return None
    keys = rewriter.make(op.permute_dims(scores.keys, _KEYS_FIRST))
    keys = rewriter.emit(op.reshape(keys, extents(keys)[1:]))
    arguments = [queries.source, keys, values.source, *([] if scores.mask is None else [scores.mask])]
    _, heads, rows, columns = extents(call)
    ty = relax.TensorType((rows, heads, columns), _DTYPE)
    result = rewriter.emit(rewriter.call(func.without_attr("global_symbol"), "attention", arguments, ty))
    return op.permute_dims(rewriter.emit(op.reshape(result, (1, rows, heads, columns))), _HEADS_FIRST)


def _scores(rewriter: Rewriter, expr: Any) -> _Scores | None:
    """Recognize the first product with its scale and its mask."""
    total = rewriter.made_by(expr, "relax.add")
    if total is None:
        return _scaled(rewriter, expr, None)
    for data, mask in (total.args, reversed(total.args)):
        found = _scaled(rewriter, data, mask) if rewriter.only_use(data) else None
        if found is not None:
            return found
    return None


def _scaled(rewriter: Rewriter, expr: Any, mask: Any) -> _Scores | None:
    scale, product = 1.0, rewriter.made_by(expr, "relax.matmul")
    if product is None and (found := _times(rewriter, expr)) is not None and rewriter.only_use(found[0]):
        scale, product = found[1], rewriter.made_by(found[0], "relax.matmul")
    if product is None or any(len(extents(arg)) != 4 for arg in product.args):
        return None
    if extents(product.args[0])[:2] != extents(product.args[1])[:2]:
        return None
    (queries, first), (keys, second) = (_unscaled(rewriter, arg) for arg in product.args)
    return _Scores(queries, keys, scale * first * second, mask)


def _unscaled(rewriter: Rewriter, expr: Any) -> tuple[Any, float]:
    """Take the scale off queries or keys: PyTorch multiplies each of them with the root of it."""
    moved = transposed(rewriter, expr)
    found = _times(rewriter, expr if moved is None else moved[0])
    if found is None:
        return expr, 1.0
    data, scale = found
    return (data if moved is None else rewriter.emit(op.permute_dims(data, moved[1]))), scale


def _times(rewriter: Rewriter, expr: Any) -> tuple[Any, float] | None:
    """Recognize a tensor times a number."""
    call = rewriter.made_by(expr, "relax.multiply")
    for data, factor in () if call is None else (call.args, reversed(call.args)):
        if isinstance(factor, tvm.ir.GenericConst) and prod(extents(factor)) == 1:
            if extents(data) == extents(expr):
                return data, float(factor.value.numpy().item())
    return None


def _heads(rewriter: Rewriter, expr: Any) -> _Heads | None:
    """Find the rows that heads are cut out of, and where they begin in a wider projection."""
    found = transposed(rewriter, expr)
    if found is None or found[1] != _HEADS_FIRST:
        return None
    _, rows, heads, columns = extents(found[0])
    cut = rewriter.made_by(found[0], "relax.reshape")
    part = None if cut is None else columns_of(rewriter, cut.args[0])
    if part is not None and part.begin % columns == extents(part.whole)[-1] % columns == 0:
        shape = (rows, extents(part.whole)[-1] // columns, columns)
        return _Heads(rewriter.emit(op.reshape(part.whole, shape)), part.begin // columns)
    return _Heads(rewriter.emit(op.reshape(found[0], (rows, heads, columns))), 0)


def _function(scores: _Scores, queries: _Heads, values: _Heads, shape: tuple[int, ...]) -> Any:
    """Define attention as `kernels.attention` does, with rows of heads and with a mask that is added.

    Scores with a mask become powers of two only after their maximum is subtracted: a mask of the least float
    times log2 e would be infinite, and a row of nothing else no number.
    """
    _, heads, m, columns = shape
    d, n = extents(scores.keys)[2:]
    q = te.placeholder(extents(queries.source), _DTYPE, name="Q")
    k = te.placeholder((heads, n, d), _DTYPE, name="K")
    v = te.placeholder(extents(values.source), _DTYPE, name="V")
    mask = None if scores.mask is None else te.placeholder(extents(scores.mask), _DTYPE, name="mask")
    c, j, t, u = (te.reduce_axis((0, e), name=a) for a, e in (("c", d), ("j", n), ("t", n), ("u", n)))
    product = te.compute(
        (heads, m, n),
        lambda h, i, x: te.sum(q[i, queries.first + h, c] * k[h, x, c], axis=c),
        name="product",
    )

    def score(h: Any, i: Any, x: Any) -> Any:
        if mask is None:
            return product[h, i, x] * tvm.tirx.const(scores.scale * LOG2_E, _DTYPE)
        return product[h, i, x] * tvm.tirx.const(scores.scale, _DTYPE) + _broadcast(mask, (0, h, i, x))

    def power(below: Any) -> Any:
        return tvm.tirx.exp2(below if mask is None else below * tvm.tirx.const(LOG2_E, _DTYPE))

    score_ = te.compute((heads, m, n), score, name="score")
    row_max = te.compute((heads, m), lambda h, i: te.max(score_[h, i, t], axis=t), name="row_max")
    weight = te.compute((heads, m, n), lambda h, i, x: power(score_[h, i, x] - row_max[h, i]), name="weight")
    row_sum = te.compute((heads, m), lambda h, i: te.sum(weight[h, i, u], axis=u), name="row_sum")
    one = tvm.tirx.const(1, _DTYPE)
    inverse = te.compute((heads, m), lambda h, i: one / row_sum[h, i], name="inverse")
    mixed = te.compute(
        (heads, m, columns),
        lambda h, i, e: te.sum(weight[h, i, j] * v[j, values.first + h, e], axis=j),
        name="mixed",
    )
    result = te.compute((m, heads, columns), lambda i, h, e: mixed[h, i, e] * inverse[h, i], name="attention")
    inputs = [q, k, v, *([] if mask is None else [mask])]
    func = te.create_prim_func([*inputs, result], index_dtype_override="int64")
    # The schedule shares heads, its outermost loop, among the threads.
    sch = s_tir.Schedule(func)
    i, h, e = sch.get_loops(sch.get_sblock("attention"))
    sch.reorder(h, i, e)
    return sch.mod["main"]


def _broadcast(mask: Any, indices: tuple[Any, ...]) -> Any:
    """Read a mask that has fewer dimensions, or an extent of 1 where it is the same for all."""
    shape = [int(d) for d in mask.shape]
    return mask[tuple(0 if d == 1 else i for d, i in zip(shape, indices[-len(shape) :], strict=True))]
