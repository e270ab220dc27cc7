"""Attention over keys or columns that fill no vectors, as attention over more of them.

197 keys become 208, a multiple of 16, of which the last are hidden; 40 columns of values become 48::

    keys[h, k, c] = K[h, k, c] if k < 197 else 0
    score[h, i, k] = ... if k < 197 else -1e30                   # k < 208; its weight is then 0
    values[h, j, e] = V[h, j, e] if e < 40 else 0                # j < 197, as before
    mixed[h, i, e] += weight[h, i, j] * values[h, j, e]          # e < 48
    O[h, i, e] = ... mixed[h, i, e]                              # e < 40, as before

Rows of scores are whole vectors then, and so are panels of keys and rows of what is mixed. What is mixed is
summed over so many keys as well where its sum is to be whole steps (``whole_sums``): other values are zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from tvm import te, tirx
from tvm.tirx import IterVar
from tvm_ffi import structural_map

from ...kernels.attention import MASKED
from ...machine.errors import InputError
from ..expressions import loads_of
from ..nests.attention import PADDED_KEYS, PADDED_VALUES, Attention, find_attention
from ..nests.products import product_operands
from ..restatement import held_block, held_blocks, nests, replaced, with_longer_axis, with_nests
from .attention_bound import can_bound, with_bound


def can_pad_keys(func: Any) -> bool:
    """Tell whether a PrimFunc is attention over keys that lie (head, key, element)."""
    nest = find_attention(func)
    return nest is not None and _lies(held_blocks(func)[nest.product], (1, 2))


def can_pad_values(func: Any) -> bool:
    """Tell whether a PrimFunc is attention with values that lie (head, key, column)."""
    nest = find_attention(func)
    return nest is not None and _lies(held_blocks(func)[nest.mixed], (2, 1))


def restate(func: Any, width: int, columns: int = 1, lanes: int = 0, whole_sums: int = 0) -> Any:
    """Lengthen the keys to a multiple of ``width``, the values' rows to one of ``columns``, and bound scores.

    Parameters
    ----------
    func : PrimFunc
        An unscheduled one.
    width, columns : int
        Elements of one or more vectors; 1: they stay as they are.
    lanes : int
        Elements of a vector, where lengths of queries and keys are to bound scores (`attention_bound`); 0:
        they are not.
    whole_sums : int
        1: the sum over values is as long as there are keys then; 0: it is as long as it was.

    Raises
    ------
    InputError
        It is no such attention, or there is nothing to do: a trace may name a form that is not one of its
        function.
    """
    columns = max(columns, 1)
    if not lanes:
        return _padded(func, width, columns, whole_sums)
    nest = find_attention(func)
    if nest is None or not can_bound(func, nest):
        raise InputError("the function is no attention whose scores are products times a number")
    if nest.n % width or nest.columns % columns:
        func = _padded(func, width, columns, whole_sums)
        nest = find_attention(func)
    if nest is None or nest.n % lanes:
        raise InputError(f"the function is no attention over keys that are whole vectors of {lanes}")
    return with_bound(func, nest, lanes)


def _padded(func: Any, width: int, columns: int, whole_sums: int) -> Any:
    nest = find_attention(func)
    longer, wider = (nest.n % width, nest.columns % columns) if nest is not None else (0, 0)
    more_values = wider or (longer and whole_sums)
    allowed = (not longer or can_pad_keys(func)) and (not more_values or can_pad_values(func))
    if nest is None or not (longer or wider) or not allowed:
        raise InputError(
            f"the function is no attention over keys that are no multiple of {width}, "
            f"or of columns that are none of {columns}"
        )
    keys, across = ceil(nest.n / width) * width, ceil(nest.columns / columns) * columns
    blocks = held_blocks(func)
    padded: dict[Any, Any] = {}
    new: dict[Any, Any] = {}
    summed = keys if whole_sums else nest.n
    for grows, lengths, name, length, (product, *others) in (
        (longer, {1: keys}, PADDED_KEYS, keys, (nest.product, nest.score, nest.weight)),
        (more_values, {1: summed, 2: across}, PADDED_VALUES, across, (nest.mixed,)),
    ):
        if grows:
            read = _second_operand(blocks[product]).source
            padded[read] = _longer(read, lengths, name)
            written = (blocks[each].writes[0].source for each in (product, *others))
            new |= {buffer: _longer(buffer, {2: length}) for buffer in written}
    new |= padded
    body = structural_map(func.body, [(tirx.Var, lambda v: new.get(v, v))])
    changed = tirx.PrimFunc([*func.params], body, func.ret_type, func.attrs)
    rest = [_lengthened(each, nest, keys, across, summed, func.params) for each in nests(changed)]
    padding = [copy for old, buffer in padded.items() for copy in _padding(old, buffer)]
    return with_nests(changed, [*padding, *rest], [*padded.values()])


def _second_operand(product: Any) -> Any:
    """Return what a product reads of the keys, or of the values."""
    operands = product_operands(product)
    assert operands is not None, "attention is found by its products"
    return operands[1]


def _lies(product: Any, axes: tuple[int, int]) -> bool:
    """Tell whether what a product reads lies (head, then along these of its axes), counted after the head."""
    indices, variables = _second_operand(product).indices, [v.var for v in product.iter_vars[1:]]
    return len(indices) == 3 and all(
        index.same_as(variables[axis]) for index, axis in zip(indices[1:], axes, strict=True)
    )


def _longer(buffer: Any, lengths: Mapping[int, int], name: str | None = None) -> Any:
    """Return a buffer of other lengths in some dimensions."""
    shape = [lengths.get(d, int(extent)) for d, extent in enumerate(buffer.shape)]
    shape = [tirx.IntImm("int64", extent) for extent in shape]
    return tirx.decl_buffer(shape, str(buffer.dtype), name or str(buffer.name))


def _padding(array: Any, longer: Any) -> list[Any]:
    """Return the loop nest that copies an array and sets what is more to zero."""
    shape, wanted = ([int(extent) for extent in buffer.shape] for buffer in (array, longer))
    source, zero = te.placeholder(shape, str(array.dtype), name="source"), tirx.const(0, str(array.dtype))

    def padded(*index: Any) -> Any:
        inside = (i < extent for i, extent, more in zip(index, shape, wanted, strict=True) if more > extent)
        return tirx.if_then_else(tirx.all(*inside), source[index], zero)

    copy = te.compute(wanted, padded, name=str(longer.name))
    form = te.create_prim_func([source, copy], index_dtype_override="int64")
    given = dict(zip(form.params, (array, longer), strict=True))
    return nests(structural_map(form, [(tirx.Var, lambda v: given.get(v, v))]))


def _lengthened(loops: Any, nest: Attention, keys: int, columns: int, summed: int, params: Any) -> Any:
    """Return a loop nest over all keys or columns, or as it is where it has none."""
    block, length = held_block(loops), keys
    name = str(block.name_hint)
    if name == nest.mixed:
        along = block.iter_vars[3]
        if int(along.dom.extent) < summed:
            loops = with_longer_axis(loops, along, summed, block.body)
            block = held_block(loops)
        axis, length = block.iter_vars[2], columns
    elif name in (nest.row_max, nest.row_sum):
        axis = next(v for v in block.iter_vars if v.iter_type == IterVar.CommReduce)
    elif name in (nest.product, nest.score, nest.weight):
        axis = [v for v in block.iter_vars if v.iter_type == IterVar.DataPar][2]
    else:
        return loops
    if int(axis.dom.extent) == length:
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
