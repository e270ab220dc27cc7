"""Rows of any length as whole vectors: what is reduced is longer, and neutral beyond a row's end.

A reduction of 50257 elements, 29 times a prime, becomes one of 50304, a multiple of 64::

    out[i] = max(out[i], x[i, k])                                       # k < 50257
    out[i] = max(out[i], x[i, k] if likely(k < 50257) else -inf)        # k < 50304

Parts of a row are then equally long, and TVM's loop partition leaves the condition in the last step only. A
loop cut short instead has its condition around the block, where TVM loses it when it moves the block.

Several axes that lie in memory like one, as the lines and columns of an image do, become one, indexed along
the first line, beyond its end: by line and column TVM would not see that neighbours lie side by side where
vectors do not divide lines.

Values that are computed once and then reduced, as a softmax's exponentials, can be longer with it: they are
reduced as they are computed then, and their reduction needs no condition (`restate_with_values`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil, prod
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import IterVar
from tvm_ffi import structural_equal, structural_map

from ...machine.errors import InputError
from ..expressions import are_just, index_variables, loads_of, step_along
from ..restatement import (
    held_block,
    nests,
    replaced,
    whole,
    with_longer_axis,
    with_nests,
    without_buffers,
)

_STEPS = (tirx.Add, tirx.Max, tirx.Min, tirx.Mul)


def restate(func: Any, width: int, parts: int = 1) -> Any:
    """Lengthen every reduction to a multiple of ``width``, along one axis.

    Parameters
    ----------
    func : PrimFunc
        An unscheduled one.
    width : int
        Elements that are reduced at a time.
    parts : int
        Parts of a row that are reduced each by itself: where it lies in one piece, each is such a multiple;
        otherwise each piece is.

    Raises
    ------
    InputError
        No reduction needs it: a trace may name a form that is not one of its function.
    """
    old = nests(func)
    changed = [_lengthened(func, nest, width, parts) for nest in old]
    if not any(changed):
        raise InputError(f"the function has no reduction that is no multiple of {width}")
    return with_nests(func, [new or nest for new, nest in zip(changed, old, strict=True)])


def restate_with_values(func: Any, width: int, parts: int = 1) -> Any:
    """Lengthen every reduction as `restate` does, and the values between that it reduces: see `kept_values`.

    These lie in one piece.

    Raises
    ------
    InputError
        There are no such values.
    """
    values = kept_values(func)
    if not values:
        raise InputError("the function has no values that are computed once, then reduced")
    new = {buffer: _longer_buffer(buffer, width * parts) for buffer, _ in values}
    longer = [_with_longer_values(func, nest, width * parts, dict(values)) for nest in nests(func)]
    body = [structural_map(nest, [(tirx.Var, lambda v: new.get(v, v))]) for nest in longer]
    kept = [new.get(buffer, buffer) for buffer in func.body.block.alloc_buffers]
    return with_nests(without_buffers(func), body, kept)


@lru_cache(maxsize=16)
def kept_values(func: Any) -> tuple[tuple[Any, Any], ...]:
    """Return the buffers of values that are computed once and then reduced, each with what is neutral there.

    Each is written element by element, and each reduction that reads it does nothing but reduce it along its
    last axis: the exponentials of a softmax are such.
    """
    blocks = [block for block in map(held_block, nests(func)) if block is not None]
    found = []
    for block in blocks:
        buffer = block.writes[0].source
        own = any(buffer.same_as(each) for each in func.body.block.alloc_buffers)
        order = [axis.var for axis in block.iter_vars]
        if not own or _reduced(block) or not are_just(getattr(block.body, "indices", ()), order):
            continue
        readers = [b for b in blocks if _reduced(b) and any(r.source.same_as(buffer) for r in b.reads)]
        neutral = [_neutral_of_values(reader, buffer) for reader in readers]
        if neutral and None not in neutral and all(structural_equal(neutral[0], each) for each in neutral):
            found.append((buffer, neutral[0]))
    return tuple(found)


def _neutral_of_values(block: Any, buffer: Any) -> Any | None:
    """Return what is neutral in a reduction of a buffer along its last axis; None of any other step."""
    step, axes = getattr(block.body, "value", None), _reduced(block)
    value = step.b if isinstance(step, _STEPS) else None
    if len(axes) != 1 or not isinstance(value, TensorLoad) or not value.source.same_as(buffer):
        return None
    *outer, last = value.indices
    along = are_just([last], [axes[0].var]) and axes[0].var not in index_variables(outer)
    return block.init.value if along else None


def _with_longer_values(func: Any, nest: Any, width: int, values: Mapping[Any, Any]) -> Any:
    """Return a loop nest that reduces, or computes values that are reduced, along a longer axis."""
    block = held_block(nest)
    reads = [region.source for region in block.reads]
    written = block.writes[0].source
    if written in values:
        axis = block.iter_vars[-1]
        value = _neutral_beyond([axis], block.body.value, values[written])
        body = tirx.BufferStore(written, value, block.body.indices)
        return with_longer_axis(nest, axis, _longer([axis], width), body)
    if _reduced(block) and any(source in values for source in reads):
        (axis,) = _reduced(block)
        return with_longer_axis(nest, axis, _longer([axis], width), block.body)
    return _lengthened(func, nest, width) or nest


def _longer_buffer(buffer: Any, width: int) -> Any:
    """Return a buffer like another whose last axis is whole vectors."""
    *others, last = buffer.shape
    return tirx.decl_buffer((*others, whole(_whole_vectors(int(last), width))), buffer.dtype, buffer.name)


@lru_cache(maxsize=64)  # a constraint asks at every point
def lengthened_axes(func: Any, width: int, parts: int = 1) -> tuple[int, ...] | None:
    """Return the extents of the longest reduction in this form; None where one of them has no such form.

    The last is that of what lies in one piece.
    """
    blocks = [block for block in map(held_block, nests(func)) if block is not None]
    reductions = [block for block in blocks if _reduced(block)]
    if any(_guarded(func, block) is None for block in reductions):
        return None
    longest = max(reductions, key=lambda block: _length(_reduced(block)))
    others, last = _around_and_last(func, longest)
    return *(int(axis.dom.extent) for axis in others), _longer(last, _multiple(others, width, parts))


def _lengthened(func: Any, nest: Any, width: int, parts: int = 1) -> Any | None:
    """Return a loop nest with a longer reduction, or along one axis; None where it has none, or is so."""
    block = held_block(nest)
    body, (around, last) = _guarded(func, block), _around_and_last(func, block)
    longer = _longer(last, _multiple(around, width, parts))
    if body is None or (len(last) == 1 and longer == _length(last)):
        return None
    return with_longer_axis(nest, last[-1], longer, body, last[:-1])


def _multiple(around: Sequence[Any], width: int, parts: int) -> int:
    """Return what the length of a piece is a multiple of: there are several where axes are around it."""
    return width if around else width * parts


def _guarded(func: Any, block: Any) -> Any | None:
    """Return a reduction's step ``out = out + value`` with the neutral value outside of the row.

    None where it is of another form, such as of pairs.
    """
    _, last = _around_and_last(func, block)
    step, neutral = getattr(block.body, "value", None), getattr(block.init, "value", None)
    if not last or neutral is None or not isinstance(step, _STEPS):
        return None
    if not isinstance(step.a, TensorLoad) or not step.a.source.same_as(block.body.buffer):
        return None
    first = {axis.var: whole(0) for axis in last[:-1]}
    value = type(step)(step.a, _neutral_beyond(last, replaced(step.b, first), neutral))
    return tirx.BufferStore(block.body.buffer, value, block.body.indices)


def _neutral_beyond(axes: Sequence[Any], value: Any, neutral: Any) -> Any:
    """Return a value where the last of some axes, which lie like one, is within them, and what is neutral."""
    variable = axes[-1].var
    inside = tirx.likely(variable < tirx.IntImm(variable.ty.dtype, _length(axes)))
    return tirx.if_then_else(inside, value, neutral)


def _reduced(block: Any) -> list[Any]:
    """Return the axes that a block reduces."""
    return [v for v in block.iter_vars if v.iter_type == IterVar.CommReduce]


def _around_and_last(func: Any, block: Any) -> tuple[list[Any], list[Any]]:
    """Return the axes that a block reduces: first those apart, then those that lie in memory like one."""
    axes = _reduced(block)
    many = len(axes)
    while many > 1 and not _lie_like_one(func, block, axes[-many:]):
        many -= 1
    return axes[: len(axes) - many], axes[len(axes) - many :]


def _length(axes: Sequence[Any]) -> int:
    return prod(int(axis.dom.extent) for axis in axes)


def _longer(axes: Sequence[Any], width: int) -> int:
    return _whole_vectors(_length(axes), width)


def _whole_vectors(length: int, width: int) -> int:
    return ceil(length / width) * width


def _lie_like_one(func: Any, block: Any, axes: Sequence[Any]) -> bool:
    """Tell whether what a block reads along some axes are arguments of a function, and lie in one piece."""
    reduced, value = {axis.var for axis in axes}, getattr(block.body, "value", None)
    loads = [load for load in loads_of(value) if index_variables(load.indices) & reduced]
    alone = replaced(value, {load: tirx.FloatImm("float32", 0) for load in loads})
    steps = [_length(axes[at + 1 :]) for at in range(len(axes))]
    return not index_variables([alone]) & reduced and all(
        any(load.source.same_as(each) for each in func.params)
        and [_step_in_memory(load, axis.var) for axis in axes] == steps
        for load in loads
    )


def _step_in_memory(load: Any, variable: Any) -> int:
    """Return by how many elements a load moves on with a variable."""
    pitch, step = 1, 0
    for index, extent in reversed([*zip(load.indices, load.source.shape, strict=True)]):
        step += pitch * step_along(index, variable)
        pitch *= int(extent)
    return step
