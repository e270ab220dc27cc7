"""Windows along lines: pooling of images whose lines lie in memory, channels first.

The function begins in `forms.separable`: columns of windows first, then along the lines. After::

    for images, channels, blocks of output lines (parallel):
        for p:                                              # without conditions but in the first and last
            for w:  down[w] = max of x[p * s + i, w] over i (unrolled)
            for q:  y[p, q] = epilogue(max of down[q * s + j] over j (unrolled))

Lines fill vectors seldom: 28, 35, 112 / 2. Where the next window begins one element on and the CPU masks
vectors, they are vectors of which the last is there in part::

        for p:  down[p, vectors] = max of x[p * s + i, vectors] over i (unrolled)
        for p:  y[p, vectors] = epilogue(max of down[p, vectors + j] over j (unrolled))

All lines of a block come before: what has just been stored is read from another element on, and a CPU waits
for that. Other lines are left to LLVM's loop vectorizer, which takes every second element of a strided one by
shuffles, and what remains of a line apart: 7x7 of 512 channels take 0.25 of its time in masked vectors, 35x35
of 192 0.74 (2 threads of a Zen 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from tvm import s_tir

from ...machine.element import element_bits
from ...machine.facts import facts
from ..analysis import block_names, iterations, keeps_shape_after, loops_by_kind, loops_inside, static_extents
from ..forms.separable import ALONG, DOWN, find_separable
from ..passes.loop_partition import partition
from ..rule import ScheduleRule
from ..space import Constraint, Knob, KnobSpace
from ..transforms import LEAST_PARALLEL_SUMS, inline_blocks, vectorize_last
from .even_parts import divisors
from .window import UNROLLED_TAPS

# Shorter lines are no vectors: what is reduced is better one.
_LEAST_PIXELS = 4
# So many blocks of lines for each thread that one more for some of them is no matter.
_BLOCKS_EACH = 8
# Columns of a block are reduced before its lines: the first cache holds them beside what is read. Blocks of
# 14 lines of 112x112 take 0.85 of the time of the whole image, of 28 of 56x56 0.93 (2 threads of a Zen 4).
_PART_OF_L1 = 4

# What is left of a line of narrower types is not masked, and lines of float64 take 1.37 of the time (14x14).
_MASKED_BITS = 32


def schedule_separable(sch: s_tir.Schedule, *, axis: int, lines: int, lanes: int) -> None:
    """Rewrite a window in its separable form in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in that form.
    axis : int
        The dimension of the operand that is the line: names the form.
    lines : int
        Output lines in a block, which one thread computes.
    lanes : int
        Elements in a vector of a line; 1 leaves vectors to LLVM.
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
    if lanes > 1:
        pixel = _vectorized(sch, pixel, [tap], lanes)
    sch.reverse_compute_at(tail, pixel)
    around = block if lanes > 1 else line
    sch.compute_at(down, around)
    outside = len(sch.get_loops(down)) - len(loops_inside(sch, down, around))
    (*_, column), taps = loops_by_kind(sch, down, outside)
    if lanes > 1:
        vectorize_last(sch, tail, lanes)
        column = _vectorized(sch, column, taps, lanes)
        partition(sch, pixel)
    # Not the lines of `down`: where a block is shorter than what lies beyond the image, TVM cuts beyond it.
    for loop in (line, column):
        partition(sch, loop)
    for reduced in ([tap], taps):
        if iterations(sch, reduced) <= UNROLLED_TAPS:
            for loop in reduced:
                sch.unroll(loop)
    if work >= LEAST_PARALLEL_SUMS:
        sch.parallel(sch.fuse(*outer, block))
    sch.decompose_reduction(along, tap)
    if lanes > 1:
        sch.decompose_reduction(down, taps[0])


def _vectorized(sch: s_tir.Schedule, loop: Any, inside: Sequence[Any], lanes: int) -> Any:
    """Cut a loop into vectors, each around other loops; return the loop over them."""
    outer, lane = sch.split(loop, [None, lanes])
    sch.reorder(outer, *inside, lane)
    sch.vectorize(lane)
    return outer


def separable_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the blocks of lines to choose from; None without such a window, or where lines are too short."""
    found = find_separable(func)
    if found is None or found.extents[-1] < _LEAST_PIXELS or not keeps_shape_after(func, found.name):
        return None
    if all(int(v.dom.extent) == 1 for v in found.down):
        return None
    *_, lines, line = found.extents
    machine, dtype = facts(target), str(found.block.body.buffer.dtype)
    bits = element_bits(dtype)
    masked = machine.has_masks and found.moves_by_one and bits == _MASKED_BITS
    widths = (1, machine.lanes(dtype)) if masked else (1,)
    most = machine.l1_bytes // _PART_OF_L1 // (line * bits // 8) if masked else None
    return KnobSpace(
        knobs=(
            Knob("axis", (found.axis,), "the dimension that is reduced last: the line"),
            Knob("lines", divisors(lines), "output lines in a block"),
            Knob("lanes", widths, "elements in a vector of a line; 1 leaves vectors to LLVM"),
        ),
        constraints=(
            Constraint(f"axis is {found.axis}", lambda k: k["axis"] == found.axis),
            Constraint(
                f"lines divides the output lines ({lines})",
                lambda k: k["lines"] > 0 and lines % k["lines"] == 0,
            ),
            Constraint(f"lanes is one of {widths}", lambda k: k["lanes"] in widths),
        ),
        default={
            "axis": found.axis,
            "lines": even_lines(found.extents, machine.cores, most),
            "lanes": widths[-1],
        },
    )


def even_lines(extents: Sequence[int], cores: int, most: int | None = None) -> int:
    """Choose the longest blocks of lines that threads share evenly, up to so many if that is said."""
    *outer, lines, _ = extents

    def uneven(block: int) -> tuple[bool, float, int]:
        blocks = prod(outer) * (lines // block)
        share = ceil(blocks / cores) * cores / blocks
        return blocks < cores, share if blocks < _BLOCKS_EACH * cores else 1.0, -block

    return min((block for block in divisors(lines) if most is None or block <= max(1, most)), key=uneven)


SEPARABLE = ScheduleRule(
    name="separable",
    summary="windows along lines, columns first: pooling with channels first",
    rewrite=schedule_separable,
    open_space=separable_space,
    algorithm=lambda knobs: f"separable_{knobs['axis']}",
)
