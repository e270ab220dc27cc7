"""Rows of any length as whole vectors: what is reduced is longer, and neutral beyond a row's end.

A reduction of 50257 elements, 29 times a prime, becomes one of 50304, a multiple of 64::

    out[i] = max(out[i], x[i, k])                                       # k < 50257
    out[i] = max(out[i], x[i, k] if likely(k < 50257) else -inf)        # k < 50304

Parts of a row are then equally long, and TVM's loop partition leaves the condition in the last step only. A
loop cut short instead has its condition around the block, where TVM loses it when it moves the block.

Several axes that lie in memory like one, as the lines and columns of an image do, become one, indexed along
the first line, beyond its end: by line and column TVM would not see that neighbours lie side by side where
vectors do not divide lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import IterVar

from ..machine.errors import InputError
from .analysis import index_variables, loads_of, step_along
from .restatement import held_block, nests, replaced, whole, with_longer_axis, with_nests


def restate(func: Any, width: int) -> Any:
    """Lengthen every reduction to a multiple of ``width``, along one axis.

    Parameters
    ----------
    func : PrimFunc
        An unscheduled one.
    width : int
        Elements that are reduced at a time.

    Raises
    ------
    InputError
        No reduction needs it: a trace may name a form that is not one of its function.
    """
    old = nests(func)
    changed = [_lengthened(func, nest, width) for nest in old]
    if not any(changed):
        raise InputError(f"the function has no reduction that is no multiple of {width}")
    return with_nests(func, [new or nest for new, nest in zip(changed, old, strict=True)])


def can_restate(func: Any) -> bool:
    """Tell whether each reduction of an unscheduled function is one that can be lengthened."""
    blocks = [block for block in map(held_block, nests(func)) if block is not None]
    reductions = [block for block in blocks if _reduced(block)]
    return all(_guarded(func, block) is not None for block in reductions)


def _lengthened(func: Any, nest: Any, width: int) -> Any | None:
    """Return a loop nest with a longer reduction, or along one axis; None where it has none, or is so."""
    block = held_block(nest)
    body, axes = _guarded(func, block), _reduced(block)
    longer = ceil(_length(axes) / width) * width
    if body is None or (len(axes) == 1 and longer == _length(axes)):
        return None
    return with_longer_axis(nest, axes[-1], longer, body, axes[:-1])


def _guarded(func: Any, block: Any) -> Any | None:
    """Return a reduction's step ``out = out + value`` with the neutral value outside of the row.

    None where it is of another form: over several axes that do not lie in memory like one, or of pairs.
    """
    axes = _reduced(block)
    step, neutral = getattr(block.body, "value", None), getattr(block.init, "value", None)
    if not axes or neutral is None or not isinstance(step, (tirx.Add, tirx.Max, tirx.Min, tirx.Mul)):
        return None
    if not isinstance(step.a, TensorLoad) or not step.a.source.same_as(block.body.buffer):
        return None
    if len(axes) > 1 and not _lie_like_one(func, step.b, axes):
        return None
    first = {axis.var: whole(0) for axis in axes[:-1]}
    inside = tirx.likely(axes[-1].var < tirx.IntImm(axes[-1].var.ty.dtype, _length(axes)))
    value = type(step)(step.a, tirx.if_then_else(inside, replaced(step.b, first), neutral))
    return tirx.BufferStore(block.body.buffer, value, block.body.indices)


def _reduced(block: Any) -> list[Any]:
    """Return the axes that a block reduces."""
    return [v for v in block.iter_vars if v.iter_type == IterVar.CommReduce]


def _length(axes: Sequence[Any]) -> int:
    return prod(int(axis.dom.extent) for axis in axes)


def _lie_like_one(func: Any, value: Any, axes: Sequence[Any]) -> bool:
    """Tell whether what is reduced is read from arguments of a function where all axes lie in one piece."""
    reduced = {axis.var for axis in axes}
    loads = [load for load in loads_of(value) if index_variables(load.indices) & reduced]
    alone = replaced(value, {load: tirx.FloatImm("float32", 0) for load in loads})
    steps = [prod(int(axis.dom.extent) for axis in axes[at + 1 :]) for at in range(len(axes))]
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
