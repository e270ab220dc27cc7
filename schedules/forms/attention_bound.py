"""Attention without maxima, where the lengths of queries and keys bound its scores.

A softmax subtracts each row's maximum so that no exponential overflows, and has no weight before it has all
scores of the row. But by Cauchy and Schwarz no score of a head is larger, or less, than its longest query
times its longest key. Where that is little, weights are powers of two of the scores as they are, computed
while a tile of scores is in registers, and added up there. Each head decides by its own numbers; one of
larger scores takes the steps of before::

    for h, i:     longest_query[h] = max(longest_query[h], |Q[h, i]|²); keys alike
    for h:        little[h] = scale² longest_query[h] longest_key[h] <= MOST_BITS²
    for h, i, k:  score = 2^s if little[h] else s                 # s: what it was
    for h, i, k:  parts[h, i, k % lanes] += score[h, i, k]
    for h, i, k:  row_max, weight, row_sum as they were, unless little[h]: the score is the weight then
    for h, i, e:  O, with the sum of parts[h, i] in place of row_sum where little[h]

A weight is as precise as before, its error being that of its score. It lies between 2^-MOST_BITS and
2^MOST_BITS, not below 1: values have so much less room below the largest float32, and above the least.

References
----------
Hong et al., "FlashDecoding++", 2023 (one number in place of all maxima; where weights overflow they are
computed once more).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any

from tvm import s_tir, te, tirx
from tvm.ir import Call, Op, Range, TensorLoad
from tvm.tirx import FloatImm, IterVar, Mul, Select, Sub
from tvm_ffi import structural_map

from ..expressions import index_variables, loads_of
from ..nests.attention import LITTLE, LONGEST, PADDED_KEYS, PARTS, TOTAL, Attention
from ..nests.products import product_operands
from ..passes.bfloat16_bits import as_float32
from ..restatement import held_block, held_blocks, nests, replaced, serial_loop, whole, with_nests
from .vector_expressions import shuffled

MOST_BITS = 32
"""What is little: powers of two up to this.

Queries and keys of 64 to 256 elements drawn from a normal distribution bound their scores by 20 to 30.
"""

_SUMMED = "float32"  # powers of two of other types are calls, for which a tile leaves its registers
_LEAST_LANES, _MOST_LANES = 4, 16  # of vectors in which the length of a row is summed


def can_bound(func: Any, nest: Attention) -> bool:
    """Tell whether scores are products times a number, causal or not, and weights powers of two of them."""
    blocks = held_blocks(func)
    operands, along = product_operands(blocks[nest.product]), blocks[nest.product].iter_vars[-1].var
    weight = blocks[nest.weight].body.value
    return (
        nest.dtype == _SUMMED
        and operands is not None
        and all(load.indices[-1].same_as(along) for load in operands)
        and gcd(nest.d, _MOST_LANES) >= _LEAST_LANES
        and _scale(blocks[nest.score]) is not None
        and isinstance(weight, Call)
        and weight.op.same_as(Op.get("tirx.exp2"))
        and isinstance(weight.args[0], Sub)
        and all(isinstance(each, TensorLoad) for each in (weight.args[0].a, weight.args[0].b))
    )


def with_bound(func: Any, nest: Attention, lanes: int) -> Any:
    """Return attention in the form above, for which `can_bound` holds.

    ``lanes``: so many parts of a row are summed side by side; they divide the keys.
    """
    blocks = held_blocks(func)
    scale = _scale(blocks[nest.score])
    assert scale is not None, "can_bound says that there is one"
    longest = [_buffer(name, (nest.heads,)) for name in LONGEST]
    little = _buffer(LITTLE, (nest.heads,), "bool")
    parts, total = _buffer(PARTS, (nest.heads, nest.m, lanes)), _buffer(TOTAL, (nest.heads, nest.m))
    score = blocks[nest.score].writes[0].source
    body: list[Any] = []
    for loops in nests(func):
        name = str(held_block(loops).name_hint)
        if name == nest.product:
            body += [_longest(blocks, name, which, longest[which]) for which in (0, 1)]
            body.append(_stage([*longest, little], lambda queries, keys: _is_little(queries, keys, scale)))
        body.append(_rewritten(loops, _value(blocks, nest, name, little, total)))
        if name == nest.score:
            body += [_stage([score, parts], lambda scores: _parts(scores, lanes)), _total(parts, total)]
    return with_nests(func, body, [*longest, little, parts, total])


def _value(blocks: Mapping[str, Any], nest: Attention, name: str, little: Any, total: Any) -> Any:
    """Return what a block computes, which for little scores is another thing, or of no use."""
    value = blocks[name].body.value
    if name in (nest.score, nest.weight):
        flag = little[blocks[name].iter_vars[0].var]
        new = (tirx.exp2(value), value) if name == nest.score else (value.args[0].a, value)
        return tirx.if_then_else(flag, *new)
    # The maximum and the sum of a row are of no use; who reads the sum reads another.
    source = {nest.row_max: nest.score, nest.row_sum: nest.weight}.get(name, nest.row_sum)
    buffer, is_reader = blocks[source].writes[0].source, source == nest.row_sum

    def choice(load: Any) -> Any:
        if not load.source.same_as(buffer):
            return load
        there = total[tuple(load.indices)] if is_reader else tirx.const(0, _SUMMED)
        return tirx.if_then_else(little[load.indices[0]], there, load)

    return structural_map(value, [(TensorLoad, choice)])


def _rewritten(loops: Any, value: Any) -> Any:
    """Return a loop nest whose block computes another value; it may read more."""

    def changed(block: Any) -> Any:
        if value.same_as(block.body.value):
            return block
        store = tirx.BufferStore(block.body.buffer, value, block.body.indices)
        known = {read.source for read in block.reads} | {block.body.buffer}
        more = {load.source: load for load in loads_of(value) if load.source not in known}
        reads = [*block.reads, *map(_read, more.values())]
        return s_tir.SBlock(block.iter_vars, reads, block.writes, block.name_hint, store, block.init)

    return structural_map(loops, [(s_tir.SBlock, changed)])


def _read(load: Any) -> Any:
    return tirx.BufferRegion(load.source, [Range.from_min_extent(i, whole(1)) for i in load.indices])


def _longest(blocks: Mapping[str, Any], product: str, which: int, longest: Any) -> Any:
    """Return the loop nest that finds the largest sum of squares of a head's queries or keys.

    It says how each row is summed, in vectors: TVM's primitives would sum the parts of all rows in memory.
    """
    operands = product_operands(blocks[product])
    assert operands is not None, "attention is found by its products"
    load, (head, *rows, along) = operands[which], blocks[product].iter_vars
    source, count, length = load.source, int(rows[which].dom.extent), int(along.dom.extent)
    if str(source.name) == PADDED_KEYS:
        # What is filled up is not longer; and TVM loses a buffer of bfloat16 whose vectors have names.
        source = blocks[PADDED_KEYS].reads[0].source
        count = int(source.shape[1])
    h, i = (tirx.Var(name, "int64") for name in "hi")
    *place, _ = (replaced(index, {head.var: h, rows[which].var: i}) for index in load.indices)
    lanes = gcd(length, _MOST_LANES)
    vectors = [tirx.Var("row", f"{_SUMMED}x{lanes}") for _ in range(0, length, lanes)]
    first, *more = (vector * vector for vector in vectors)
    folded, total = _lane_sum(sum(more, first), lanes)
    for number, vector in reversed(list(enumerate(vectors))):
        read = source.vload([*place, whole(number * lanes)], f"{source.dtype}x{lanes}")
        folded.insert(0, tirx.Bind(vector, as_float32(read)))
    largest = tirx.BufferStore(longest, tirx.max(longest[h], total), [h])
    zero = tirx.BufferStore(longest, tirx.const(0, _SUMMED), [h])
    body = tirx.SeqStmt([zero, serial_loop(i, whole(count), tirx.SeqStmt([*folded, largest]))])
    region = [
        Range(whole(0), extent) if index_variables([index]) & {i} else Range.from_min_extent(index, whole(1))
        for index, extent in zip(place, source.shape, strict=False)
    ]
    region.append(Range(whole(0), source.shape[-1]))
    return _nest([h], longest, tirx.BufferRegion(source, region), body)


def _total(parts: Any, total: Any) -> Any:
    """Return the loop nest that sums the parts of each row."""
    h, i = (tirx.Var(name, "int64") for name in "hi")
    lanes = int(parts.shape[-1])
    folded, result = _lane_sum(parts.vload([h, i, whole(0)], f"{_SUMMED}x{lanes}"), lanes)
    region = [*(Range.from_min_extent(at, whole(1)) for at in (h, i)), Range(whole(0), whole(lanes))]
    body = tirx.SeqStmt([*folded, tirx.BufferStore(total, result, [h, i])])
    return _nest([h, i], total, tirx.BufferRegion(parts, region), body)


def _lane_sum(vector: Any, lanes: int) -> tuple[list[Any], Any]:
    """Return statements and an expression that sum the lanes of a vector, a power of two: half to half."""
    statements: list[Any] = []
    while lanes > 1:
        name, lanes = tirx.Var("vector", vector.ty.dtype), lanes // 2
        statements.append(tirx.Bind(name, vector))
        halves = (range(lanes), range(lanes, 2 * lanes))
        low, high = (shuffled([name], half) for half in halves)
        vector = low + high
    return statements, vector


def _nest(axes: Sequence[Any], written: Any, read: Any, body: Any) -> Any:
    """Return loops around a block that is named for what it writes, an element for each of some axes."""
    extents = [int(extent) for extent in written.shape]
    variables = [
        IterVar(Range(whole(0), whole(extent)), axis, IterVar.DataPar)
        for axis, extent in zip(axes, extents, strict=True)
    ]
    writes, name = [_read(written[tuple(axes)])], str(written.name)
    block = s_tir.SBlock(variables, [read], writes, name, body)
    loops = [tirx.Var(f"{axis.name}_", "int64") for axis in axes]
    nest: Any = s_tir.SBlockRealize(loops, tirx.const(True, "bool"), block)
    for loop, extent in reversed(list(zip(loops, extents, strict=True))):
        nest = serial_loop(loop, whole(extent), nest)
    return nest


def _is_little(queries: Any, keys: Any, scale: float) -> Any:
    """Return the stage that tells whether a head's scores are little; they are not where a length is NaN."""
    most = tirx.const((MOST_BITS / scale) ** 2, _SUMMED)
    return te.compute(queries.shape, lambda h: queries[h] * keys[h] <= most, name=LITTLE)


def _parts(weights: Any, lanes: int) -> Any:
    """Return the stage that sums each row of weights in parts, side by side."""
    heads, m, n = weights.shape
    b = te.reduce_axis((0, n // lanes), name="b")
    return te.compute(
        (heads, m, lanes), lambda h, i, k: te.sum(weights[h, i, b * lanes + k], axis=b), name=PARTS
    )


def _stage(buffers: Sequence[Any], stage: Callable[..., Any]) -> Any:
    """Return the loop nest of a TE stage of some buffers, whose result is the last one."""
    *read, result = buffers
    inputs = [te.placeholder(buffer.shape, str(buffer.dtype), name=str(buffer.name)) for buffer in read]
    form = te.create_prim_func([*inputs, stage(*inputs)], index_dtype_override="int64")
    given = dict(zip(form.params, (*read, result), strict=True))
    (nest,) = nests(structural_map(form, [(tirx.Var, lambda v: given.get(v, v))]))
    return nest


def _scale(score: Any) -> float | None:
    """Return what a score is its product times, if it is no more than that or hidden; else None."""
    value: Any = getattr(score.body, "value", None)
    while isinstance(value, Select):
        value = value.true_value
    if isinstance(value, Mul) and isinstance(value.a, TensorLoad) and isinstance(value.b, FloatImm):
        return float(value.b)
    return None


def _buffer(name: str, shape: Sequence[int], dtype: str = _SUMMED) -> Any:
    return tirx.decl_buffer([whole(extent) for extent in shape], dtype, name)
