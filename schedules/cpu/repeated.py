"""Repetition: neighbours along a short line are the same element, as in resizing by the nearest.

Before::

    for h, i:  y[h, i] = x[h // 2, i // 2]

After::

    for h (parallel):
        for vectors of a line of x:
            one vector of x is two of y

LLVM does the same to lines that are a vector or longer, and goes through shorter ones element by element: 256
channels of 13 x 13, made 26 x 26, take 0.12 of the time so, on 2 threads of a Zen 4.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir

from ...machine.facts import facts
from ..analysis import iterations
from ..forms.repeated import BLOCK, find_repetition
from ..rule import ScheduleRule
from ..space import KnobSpace
from ..transforms import spread
from .line_space import line_space

_LANES = (4, 8, 16, 32)


def schedule_repeated(sch: s_tir.Schedule, *, lanes: int, parallel: int) -> None:
    """Rewrite a repetition, in the form of vectors, in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` of vectors that are repeated.
    lanes : int
        Elements in a vector.
    parallel : int
        1 spreads the lines over the threads; 0 stays on one.
    """
    loops = sch.get_loops(sch.get_sblock(BLOCK))
    work = iterations(sch, loops) * lanes
    spread(sch, loops[:-1] or loops, work, parallel)


def repeated_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the vectors to choose from; None where it repeats nothing, or lines of a vector and more."""
    nest = find_repetition(func)
    if nest is None:
        return None
    widest, line = facts(target).lanes(nest.dtype), nest.extents[-1]
    fitting = tuple(lanes for lanes in _LANES if lanes <= min(line, widest))
    if not fitting or line >= widest:
        return None
    return line_space(fitting, "elements")


REPEATED = ScheduleRule(
    name="repeated",
    summary="vectors of elements repeated along short lines: resizing by the nearest, channels first",
    rewrite=schedule_repeated,
    open_space=repeated_space,
    algorithm=lambda knobs: f"repeated_{knobs['lanes']}",
)
