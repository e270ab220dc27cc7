"""Pooling by several elements along lines shorter than a vector, channels first.

Before::

    for h, i, k, l:  y[h, i] = max(y[h, i], x[2 h + k, 2 i + l])

After::

    for h (parallel):
        for vectors of a line of y:
            columns = max of vectors of x; y = max of the columns, brought together in registers

LLVM goes through lines so short element by element, and gathers what lies apart.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Any

from tvm import s_tir

from ...machine.facts import facts
from ..forms.pooled import BLOCK, MOST_VECTORS, find_pooling
from ..rule import ScheduleRule
from ..space import KnobSpace
from ..transforms import spread
from .line_space import line_space

_LANES = (2, 4, 8, 16)


def schedule_pooled(sch: s_tir.Schedule, *, lanes: int, parallel: int) -> None:
    """Rewrite a pooling, in the form of vectors, in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` of lines that are pooled.
    lanes : int
        Outputs in a vector.
    parallel : int
        1 spreads the lines over the threads; 0 stays on one.
    """
    del lanes
    block = sch.get_sblock(BLOCK)
    loops = sch.get_loops(block)
    read = prod(int(extent) for extent in sch.get(block).reads[0].source.shape)
    spread(sch, loops, read, parallel)


def pooled_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the vectors to choose from; None where nothing is pooled so, or lines are a vector and more."""
    nest = find_pooling(func)
    if nest is None:
        return None
    widest, line = facts(target).lanes(str(nest.output.dtype)), nest.window.extents[-1]
    few = (lanes for lanes in _LANES if ceil(line / lanes) <= MOST_VECTORS)
    fitting = tuple(lanes for lanes in few if lanes <= min(line, widest, nest.width))
    return line_space(fitting, "outputs") if fitting else None


POOLED = ScheduleRule(
    name="pooled",
    summary="vectors of windows that move by several elements along short lines: pooling, channels first",
    rewrite=schedule_pooled,
    open_space=pooled_space,
    algorithm=lambda knobs: f"pooled_{knobs['lanes']}",
)
