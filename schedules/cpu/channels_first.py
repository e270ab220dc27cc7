"""Convolution of channels first by the schedules of channels last: what they read and write is transposed.

The function begins in `channels_last_form`. Its transpositions are passes of their own, before and after, in
squares as in ``transpose``; what is between them is any convolution of channels last, and scheduled as one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import s_tir

from ...machine.facts import facts
from ..algorithms import THEN
from ..analysis import block_names
from ..channels_last_form import RESULT, find_channels_first, restate, squares_of
from ..rule import ScheduleRule
from ..space import Constraint, Knob, Knobs, KnobSpace
from ..squares_form import is_of_squares
from .conv2d import CONV2D
from .transpose import SQUARES_OF_BLOCK, STRETCH, share_squares
from .winograd import WINOGRAD

_SQUARES = (4, 8, 16)
_FORM = "channels_last"


def schedule_channels_first(inner: ScheduleRule, sch: s_tir.Schedule, *, squares: int, **knobs: int) -> None:
    """Rewrite a convolution in the form of channels last in place, in squares of up to so many lanes.

    Parameters
    ----------
    inner : ScheduleRule
        What schedules a convolution of channels last, by its knobs.
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in the form that `channels_last_form.restate` makes.
    squares : int
        Rows and columns of the largest squares.
    """
    names = [name for name in block_names(sch) if is_of_squares(name)]
    inner.rewrite(sch, **knobs)
    for name in names:
        share_squares(sch, name, squares, squares=SQUARES_OF_BLOCK, stretch=STRETCH)


def channels_first_space(inner: ScheduleRule, func: Any, target: Any) -> KnobSpace | None:
    """Return a schedule's space on a convolution whose channels were first; None where it is none."""
    found = find_channels_first(func)
    if found is None:
        return None
    dtype = str(found.block.writes[0].source.dtype)
    widest = min(facts(target).lanes(dtype), _SQUARES[-1])
    if RESULT not in squares_of(found, widest):
        return None
    space = inner.space(restate(func, widest), target)
    if space is None:
        return None
    fitting = tuple(s for s in _SQUARES if s <= widest)
    return KnobSpace(
        knobs=(
            Knob("squares", fitting, "rows and columns of the largest squares in registers"),
            *space.knobs,
        ),
        constraints=(
            Constraint(f"squares is one of {fitting}", lambda k: k["squares"] in fitting),
            *space.constraints,
        ),
        default={"squares": widest, **space.default},
    )


def _algorithm(inner: ScheduleRule, knobs: Knobs) -> str:
    name = f"{_FORM}_{knobs['squares']}"
    then = None if inner.algorithm is None else inner.algorithm(knobs)
    return name if then is None else f"{name}{THEN}{then}"


def _of_channels_first(inner: ScheduleRule) -> ScheduleRule:
    return ScheduleRule(
        name=f"{inner.name}_channels_first",
        summary=f"as {inner.name}, with image, weight and result transposed in registers",
        rewrite=partial(schedule_channels_first, inner),
        open_space=partial(channels_first_space, inner),
        algorithm=partial(_algorithm, inner),
    )


CONV2D_CHANNELS_FIRST, WINOGRAD_CHANNELS_FIRST = map(_of_channels_first, (CONV2D, WINOGRAD))
