"""Loops that end earlier in the first iterations of an outer loop: what a causal mask hides is not computed.

Of n keys a block of queries sees those up to its last query. TVM's primitives know only loops of constant
length. So a schedule marks the loop over blocks and the loops over keys in it, and these are cut short when
the blocks have become plain loops (`loop_partition`), in which lengths may depend on outer variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import Any

from tvm import s_tir, tirx
from tvm_ffi import structural_map

from ..restatement import without_mark

BOUNDING_MARK = "tunesmith.bounds"
"""Annotation of an outer loop: elements that each iteration sees more than that before, and how many more the
first sees."""

BOUNDED_MARK = "tunesmith.bounded"
"""Annotation of a loop in it: the elements of an iteration, and the multiple that it ends at."""


def bound_loops(
    sch: s_tir.Schedule, outer: Any, rows: int, ahead: int, loops: Sequence[Any], count: int
) -> None:
    """Mark loops that need only the elements below ``(iteration + 1) * rows + ahead``.

    Parameters
    ----------
    sch : Schedule
        The schedule.
    outer : LoopRV
        The loop whose iterations are counted.
    rows, ahead : int
        Elements that an iteration sees more than that before, and how many more the first one.
    loops : sequence of LoopRV
        Loops inside, each over all elements, and before those that read what it computes. It ends at a
        multiple of what it and the later ones take in an iteration.
    count : int
        How many elements there are.
    """
    sch.annotate(outer, BOUNDING_MARK, [rows, ahead])
    unit = 1
    for loop in reversed(loops):
        elements = count // int(sch.get(loop).extent)
        unit = lcm(unit, elements)
        sch.annotate(loop, BOUNDED_MARK, [elements, unit])


def _bounding(outer: Any) -> Any:
    """Return a loop with the marked ones in it cut short, or as it is where it has no mark."""
    if BOUNDING_MARK not in outer.annotations:
        return outer
    rows, ahead = (int(number) for number in outer.annotations[BOUNDING_MARK])

    def shortened(loop: Any) -> Any:
        if BOUNDED_MARK not in loop.annotations:
            return loop
        elements, unit = (int(number) for number in loop.annotations[BOUNDED_MARK])
        units = tirx.floordiv((outer.loop_var + 1) * rows + (ahead + unit - 1), unit)
        end = tirx.min(loop.extent, units * (unit // elements))
        return tirx.For(loop.loop_var, loop.min, end, loop.kind, loop.body)

    return without_mark(outer, BOUNDING_MARK, body=structural_map(outer.body, [(tirx.For, shortened)]))


def _shorten(func: Any, _mod: Any, _context: Any) -> Any:
    return func.with_body(structural_map(func.body, [(tirx.For, _bounding)]))


shorten_loops = tirx.transform.prim_func_pass(_shorten, opt_level=0)
"""The pass that cuts the marked loops of functions of plain loops short."""
