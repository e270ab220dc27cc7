"""Rows of any length as whole vectors: what is reduced is longer, and neutral beyond a row's end.

A reduction of 50257 elements, 29 times a prime, becomes one of 50304, a multiple of 64::

    out[i] = max(out[i], x[i, k])                                       # k < 50257
    out[i] = max(out[i], x[i, k] if likely(k < 50257) else -inf)        # k < 50304

Parts of a row are then equally long, and TVM's loop partition leaves the condition in the last step only. A
loop cut short instead has its condition around the block, where TVM loses it when it moves the block.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.tirx import IterVar

from ..machine.errors import InputError
from .analysis import block_names, is_reduction
from .restatement import held_block, nests, with_longer_axis, with_nests


def restate(func: Any, width: int) -> Any:
    """Lengthen every reduction along one axis to a multiple of ``width``.

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
    changed = [_lengthened(nest, width) for nest in old]
    if not any(changed):
        raise InputError(f"the function has no reduction that is no multiple of {width}")
    return with_nests(func, [new or nest for new, nest in zip(changed, old, strict=True)])


def can_restate(func: Any) -> bool:
    """Tell whether each reduction of an unscheduled function is one that can be lengthened."""
    schedule = s_tir.Schedule(func)
    names = [name for name in block_names(schedule) if is_reduction(schedule, name)]
    return all(_guarded(schedule.get(schedule.get_sblock(name))) is not None for name in names)


def _lengthened(nest: Any, width: int) -> Any | None:
    """Return a loop nest with a longer reduction, or None where it has none that can be."""
    block = held_block(nest)
    body = _guarded(block)
    axis = next((v for v in block.iter_vars if v.iter_type == IterVar.CommReduce), None)
    if body is None or axis is None or int(axis.dom.extent) % width == 0:
        return None
    return with_longer_axis(nest, axis, ceil(int(axis.dom.extent) / width) * width, body)


def _guarded(block: Any) -> Any | None:
    """Return a reduction's step ``out = out + value`` with the neutral value outside of the row.

    None where it is of another form: over several axes, or of pairs.
    """
    reduced = [v for v in block.iter_vars if v.iter_type == IterVar.CommReduce]
    step, neutral = getattr(block.body, "value", None), getattr(block.init, "value", None)
    if len(reduced) != 1 or neutral is None or not isinstance(step, (tirx.Add, tirx.Max, tirx.Min, tirx.Mul)):
        return None
    if not isinstance(step.a, TensorLoad) or not step.a.source.same_as(block.body.buffer):
        return None
    inside = tirx.likely(reduced[0].var < reduced[0].dom.extent)
    value = type(step)(step.a, tirx.if_then_else(inside, step.b, neutral))
    return tirx.BufferStore(block.body.buffer, value, block.body.indices)
