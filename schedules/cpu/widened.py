"""Products of float16 or bfloat16 that are summed in float32: operands are widened first (`forms.widened`).

A register tile reads each element of its data for every step, and broadcasts it; widening it there takes two
or three instructions more, which wait for the units of the multiply-adds. Here data are widened once, in a
copy of float32, and the weight where panels are packed. What follows is scheduled as `matmul` or `conv2d`
schedule float32. Where threads share the rows each widens its own.

On 2 threads of an Emerald Rapids, float16, time over that of `matmul` or `conv2d`: 512 cubed 0.55, 1024
cubed 0.45, 128 rows by 768 x 3072 0.58, 12 products of 128 x 64 x 128 0.53, 200 rows by 100 x 300 0.53, 56x56
pixels of 64 channels 3x3 0.54, 28x28 of 128 to 512 0.51, 7x7 of 512 to 2048 0.42, ResNet-50's first 0.45.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import s_tir

from ...machine.facts import facts
from ..forms.widened import has_halves, restate
from ..nests.contraction import Contraction, find_contraction, weight_exceeds_l2
from ..rule import ScheduleRule, rule_in_form
from ..space import Knob, KnobSpace
from .conv2d import CONV2D
from .matmul import MATMUL

_BITS = 32

# Rows from which on it is worth it. On 2 threads of an Emerald Rapids, time over that of others, 512 x 512: 4
# rows 1.3, 8 0.88, 12 0.76, 16 0.48; 2048 x 1024: 1.09, 0.96, 0.75, 0.59. Panels of a constant weight are
# twice as large, which is read from memory in each call.
_ROWS, _ROWS_FAR = 8, 32


def schedule_widened(inner: ScheduleRule, sch: s_tir.Schedule, *, bits: int, **knobs: int) -> None:
    """Rewrite a product in the form of `forms.widened` in place.

    Parameters
    ----------
    inner : ScheduleRule
        What schedules a product of float32, by its knobs.
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in the form that `forms.widened.restate` makes.
    bits : int
        Of the operands, when they are widened.
    """
    del bits
    inner.rewrite(sch, **knobs)


def widened_space(inner: ScheduleRule, func: Any, target: Any) -> KnobSpace | None:
    """Return a schedule's space on a product whose operands are widened; None where they need not be."""
    nest = find_contraction(func)
    if nest is None or not has_halves(nest):
        return None
    space = inner.space(restate(func, _BITS), target)
    if space is None:
        return None
    space = space.in_form(Knob("bits", (_BITS,), "bits of the operands, widened"), _BITS)
    return replace(space, preferred=nest.all_rows >= _least_rows(nest, target))


def _least_rows(nest: Contraction, target: Any) -> int:
    far = nest.constant_weight and weight_exceeds_l2(nest, facts(target))
    return _ROWS_FAR if far else _ROWS


def _of_widened(inner: ScheduleRule) -> ScheduleRule:
    return rule_in_form(
        inner,
        lambda knobs: f"widened_{knobs['bits']}",
        name=f"widened_{inner.name}",
        summary=f"as {inner.name}, with operands of 16 bits widened first",
        rewrite=schedule_widened,
        open_space=widened_space,
    )


WIDENED_MATMUL, WIDENED_CONV2D = map(_of_widened, (MATMUL, CONV2D))
