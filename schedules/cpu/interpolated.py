"""Interpolation along lines: bilinear resizing with channels first, by a whole number.

Before::

    for h, j:  line[h, j] = x[h // 2, j] * .. + x[h // 2 + 1, j] * ..
    for h, i:  y[h, i] = line[h, i // 2] * .. + line[h, i // 2 + 1] * ..

After::

    for h (parallel):
        for vectors of columns:
            lines of the columns and of their neighbours; the outputs of a step each; these interleaved

LLVM makes vectors of long lines only, and writes each with gaps.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir

from ...machine.facts import facts
from ..analysis import iterations
from ..forms.interpolated import BLOCK, find_interpolation
from ..rule import ScheduleRule
from ..space import KnobSpace
from ..transforms import spread
from .line_space import line_space

_LANES = (4, 8, 16)


def schedule_interpolated(sch: s_tir.Schedule, *, lanes: int, parallel: int) -> None:
    """Rewrite an interpolation, in the form of vectors, in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` of lines that are interpolated.
    lanes : int
        Columns in a vector.
    parallel : int
        1 spreads the lines over the threads; 0 stays on one.
    """
    block = sch.get_sblock(BLOCK)
    loops = sch.get_loops(block)
    rows = iterations(sch, loops)
    work = rows * int(sch.get(block).writes[0].source.shape[-1])
    del lanes
    spread(sch, loops, work, parallel)


def interpolated_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the vectors to choose from; None where nothing is interpolated, or lines are too short."""
    nest = find_interpolation(func)
    if nest is None:
        return None
    most = min(nest.extents[-1], facts(target).lanes(nest.dtype))
    fitting = tuple(lanes for lanes in _LANES if lanes <= most)
    if not fitting:
        return None
    return line_space(fitting, "columns")


INTERPOLATED = ScheduleRule(
    name="interpolated",
    summary="vectors of what lies between columns of a line: bilinear resizing, channels first",
    rewrite=schedule_interpolated,
    open_space=interpolated_space,
    algorithm=lambda knobs: f"interpolated_{knobs['lanes']}",
)
