"""Windows along lines: pooling of images whose lines lie in memory, channels first.

The function begins in `separable_form`: columns of windows first, then along the lines. After::

    for images, channels, blocks of output lines (parallel):
        for p:                                              # without conditions but in the first and last
            for w:  down[w] = max of x[p * s + i, w] over i (unrolled)
            for q:  y[p, q] = epilogue(max of down[q * s + j] over j (unrolled))

Lines fill vectors seldom: 28, 35, 112 / 2. The loops along them are left to LLVM's loop vectorizer, which
takes what remains of a line apart, and every second element of a strided one by shuffles.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from tvm import s_tir

from ...machine.facts import facts
from ..analysis import block_names, keeps_shape_after, static_extents
from ..loop_partition import partition
from ..rule import ScheduleRule
from ..separable_form import ALONG, DOWN, find_separable
from ..space import Constraint, Knob, KnobSpace
from ..transforms import LEAST_PARALLEL_SUMS, inline_blocks
from .window import UNROLLED_TAPS, divisors

# Shorter lines are no vectors: what is reduced is better one.
_LEAST_PIXELS = 4
# So many blocks of lines for each thread that one more for some of them is no matter.
_BLOCKS_EACH = 8


def schedule_separable(sch: s_tir.Schedule, *, axis: int, lines: int) -> None:
    """Rewrite a window in its separable form in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in that form.
    axis : int
        The dimension of the operand that is the line: names the form.
    lines : int
        Output lines in a block, which one thread computes.
    """
    del axis
    names = block_names(sch)
    before, after = names[: names.index(DOWN)], names[names.index(ALONG) + 1 :]
    inline_blocks(sch, [*before, *after[:-1]])
    down, along = sch.get_sblock(DOWN), sch.get_sblock(ALONG)
    tail = sch.get_sblock(after[-1]) if after else sch.cache_write(along, 0, "global")
    work = prod(static_extents(sch, DOWN) or ())
    *outer, line, pixel, tap = sch.get_loops(along)
    block, line = sch.split(line, [None, lines])
    sch.reverse_compute_at(tail, pixel)
    sch.compute_at(down, line)
    column, *taps = sch.get_loops(down)[len(outer) + 2 :]
    for loop in (line, column):
        partition(sch, loop)
    for reduced in ([tap], taps):
        if prod(int(sch.get(loop).extent) for loop in reduced) <= UNROLLED_TAPS:
            for loop in reduced:
                sch.unroll(loop)
    if work >= LEAST_PARALLEL_SUMS:
        sch.parallel(sch.fuse(*outer, block))
    sch.decompose_reduction(along, tap)


def separable_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the blocks of lines to choose from; None without such a window, or where lines are too short."""
    found = find_separable(func)
    if found is None or found.extents[-1] < _LEAST_PIXELS or not keeps_shape_after(func, found.name):
        return None
    lines = found.extents[-2]
    return KnobSpace(
        knobs=(
            Knob("axis", (found.axis,), "the dimension that is reduced last: the line"),
            Knob("lines", divisors(lines), "output lines in a block"),
        ),
        constraints=(
            Constraint(f"axis is {found.axis}", lambda k: k["axis"] == found.axis),
            Constraint(
                f"lines divides the output lines ({lines})",
                lambda k: k["lines"] > 0 and lines % k["lines"] == 0,
            ),
        ),
        default={"axis": found.axis, "lines": even_lines(found.extents, facts(target).cores)},
    )


def even_lines(extents: Sequence[int], cores: int) -> int:
    """Choose the longest blocks of lines, the last extent but one, that threads share evenly."""
    *outer, lines, _ = extents

    def uneven(block: int) -> tuple[bool, float, int]:
        blocks = prod(outer) * (lines // block)
        share = ceil(blocks / cores) * cores / blocks
        return blocks < cores, share if blocks < _BLOCKS_EACH * cores else 1.0, -block

    return min(divisors(lines), key=uneven)


SEPARABLE = ScheduleRule(
    name="separable",
    summary="windows along lines, columns first: pooling with channels first",
    rewrite=schedule_separable,
    open_space=separable_space,
    algorithm=lambda knobs: f"separable_{knobs['axis']}",
)
