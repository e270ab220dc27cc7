"""Attention over keys that fill no vectors, as attention over more, of which the last are hidden.

197 keys become 208, a multiple of 16::

    keys[h, k, c] = K[h, k, c] if k < 197 else 0
    score[h, i, k] = ... if k < 197 else -1e30                   # k < 208; its weight is then 0
    mixed[h, i, e] += weight[h, i, j] * V[h, j, e]               # j < 197, as before

Rows of scores are whole vectors then, and so are panels of keys. The values are as many as they were.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from tvm import te, tirx
from tvm.tirx import IterVar
from tvm_ffi import structural_map

from ..kernels.attention import MASKED
from ..machine.errors import InputError
from .analysis import loads_of
from .attention_nest import PADDED_KEYS, Attention, find_attention
from .contraction import product_operands
from .restatement import held_block, nests, replaced, with_longer_axis, with_nests


def can_restate(func: Any) -> bool:
    """Tell whether a PrimFunc is attention over keys that lie (head, key, element)."""
    nest = find_attention(func)
    if nest is None:
        return False
    product = _blocks(func)[nest.product]
    key, indices = product.iter_vars[2].var, _keys(product).indices
    return len(indices) == 3 and bool(indices[1].same_as(key))


def restate(func: Any, width: int) -> Any:
    """Lengthen the keys to a multiple of ``width``.

    Parameters
    ----------
    func : PrimFunc
        An unscheduled one.
    width : int
        Elements of one or more vectors.

    Raises
    ------
    InputError
        It is no such attention, or its keys are such a multiple: a trace may name a form that is not one of
        its function.
    """
    nest = find_attention(func)
    if nest is None or not can_restate(func) or nest.n % width == 0:
        raise InputError(f"the function is no attention over keys that are no multiple of {width}")
    length, blocks = ceil(nest.n / width) * width, _blocks(func)
    keys = _keys(blocks[nest.product]).source
    new = {keys: _longer(keys, 1, length, PADDED_KEYS)}
    for name in (nest.product, nest.score, nest.weight):
        buffer = blocks[name].writes[0].source
        new[buffer] = _longer(buffer, 2, length)
    padding = _padding(keys, new[keys])
    body = structural_map(func.body, [(tirx.Var, lambda v: new.get(v, v))])
    changed = tirx.PrimFunc([*func.params], body, func.ret_type, func.attrs)
    rest = [_lengthened(each, nest, length, func.params) for each in nests(changed)]
    return with_nests(changed, [*padding, *rest], [new[keys]])


def _blocks(func: Any) -> dict[str, Any]:
    held = [held_block(nest) for nest in nests(func)]
    return {str(block.name_hint): block for block in held if block is not None}


def _keys(product: Any) -> Any:
    """Return what the first product reads of the keys."""
    operands = product_operands(product)
    assert operands is not None, "attention is found by its products"
    return operands[1]


def _longer(buffer: Any, dimension: int, length: int, name: str | None = None) -> Any:
    """Return a buffer that is longer in one dimension."""
    shape = [length if d == dimension else int(extent) for d, extent in enumerate(buffer.shape)]
    shape = [tirx.IntImm("int64", extent) for extent in shape]
    return tirx.decl_buffer(shape, str(buffer.dtype), name or str(buffer.name))


def _padding(keys: Any, longer: Any) -> list[Any]:
    """Return the loop nest that copies the keys and sets more to zero."""
    heads, n, d = (int(extent) for extent in keys.shape)
    source = te.placeholder((heads, n, d), str(keys.dtype), name="keys")
    copy = te.compute(
        [int(extent) for extent in longer.shape],
        lambda h, k, c: tirx.if_then_else(k < n, source[h, k, c], tirx.const(0, str(keys.dtype))),
        name=PADDED_KEYS,
    )
    form = te.create_prim_func([source, copy], index_dtype_override="int64")
    given = dict(zip(form.params, (keys, longer), strict=True))
    return nests(structural_map(form, [(tirx.Var, lambda v: given.get(v, v))]))


def _lengthened(loops: Any, nest: Attention, length: int, params: Any) -> Any:
    """Return a loop nest over all keys, or as it is where it has none of them, or each with its value."""
    block = held_block(loops)
    name = str(block.name_hint)
    if name in (nest.row_max, nest.row_sum):
        axis = next(v for v in block.iter_vars if v.iter_type == IterVar.CommReduce)
    elif name in (nest.product, nest.score, nest.weight):
        axis = [v for v in block.iter_vars if v.iter_type == IterVar.DataPar][2]
    else:
        return loops
    body = block.body
    if name == nest.score:
        value, hidden = _within(body.value, axis, params), tirx.const(MASKED, str(body.value.ty.dtype))
        if not _hides_the_rest(nest):
            value = tirx.Select(axis.var < axis.dom.extent, value, hidden)
        body = tirx.BufferStore(body.buffer, value, body.indices)
    return with_longer_axis(loops, axis, length, body)


def _within(score: Any, axis: Any, params: Any) -> Any:
    """Return a score that reads what lies beside its product, such as a mask, for no key after the last."""
    last = tirx.min(axis.var, axis.dom.extent - 1)
    beside = [load for load in loads_of(score) if any(load.source.same_as(each) for each in params)]
    bounded = {
        b: tirx.BufferLoad(b.source, [replaced(i, {axis.var: last}) for i in b.indices]) for b in beside
    }
    return replaced(score, bounded)


def _hides_the_rest(nest: Attention) -> bool:
    """Tell whether a causal mask hides all that comes after the last key."""
    return nest.ahead is not None and nest.m + nest.ahead <= nest.n
