"""Vectors that end beyond their array are masked, where the CPU has masks.

Rows of 37 elements are two vectors of 16 and one of which 5 are there::

    for o:  for v in vectorized(16):  if o * 16 + v < 37:  b[o * 16 + v] = f(a[o * 16 + v])

TVM turns a vectorized loop whose condition depends on the lane into a loop over single elements. Here it
becomes vectors whose loads and stores have the condition as their mask::

    for o:  there = (o * 16 + lanes < 37);  b[o * 16 + lanes | there] = f(a[o * 16 + lanes | there])

LLVM drops the mask where it is plainly true. AVX-512 has such instructions, as fast as others; those of AVX2
are not (a store takes 12 cycles on a Zen 3), and on aarch64 LLVM would write out a branch for each lane.
"""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx
from tvm_ffi import structural_map

from ...machine.facts import facts
from ..restatement import with_functions
from .lane_conditions import chooses_by_lane, depends, may_need_masks
from .lane_vectors import Lanes, NoVectors
from .loop_partition import as_plain_loops
from .quotients import share_quotients
from .whole_buffers import make_buffers_whole


def mask_vectors(mod: Any, target: Any) -> Any:
    """Mask the vectors of a module's functions; functions that need none stay as they are.

    Conditions that all lanes share are no reason to (`quotients`), on CPUs without masks neither. What
    is changed is lowered to plain loops, as in `partition_loops`.
    """
    functions = {name: func for name, func in mod.functions.items() if may_need_masks(func)}
    plain, change = as_plain_loops(functions), _masked if facts(target).has_masks else _cut_short

    def without_choices(loop: Any) -> Any:
        loop = share_quotients(loop) if chooses_by_lane(loop) else loop
        return change(loop) if chooses_by_lane(loop) else loop

    masked = {
        name: func.with_body(make_buffers_whole(structural_map(func.body, (tirx.For, without_choices))))
        for name, func in plain.items()
    }
    return with_functions(mod, {n: f for n, f in masked.items() if not f.body.same_as(plain[n].body)})


def _masked(loop: Any) -> Any:
    """Return vectors in place of a vectorized loop with conditions of its lanes, or what is not masked."""
    try:
        return Lanes(loop.loop_var, int(loop.extent)).statement(loop.body, None)
    except NoVectors:
        return _cut_short(loop)


def _cut_short(loop: Any) -> Any:
    """Return a loop over the lanes below a number in place of one with a condition that says so.

    LLVM would make masks of the condition: see `lane_vectors`.
    """
    branch, lane = loop.body, loop.loop_var
    if not isinstance(branch, tirx.IfThenElse) or branch.else_case is not None:
        return loop
    below = branch.condition
    if not isinstance(below, tirx.LT) or not below.a.same_as(lane) or depends(below.b, [lane]):
        return loop
    extent = sym.Analyzer().simplify(tirx.max(tirx.min(below.b, loop.extent), 0))
    return tirx.For(lane, loop.min, extent, tirx.ForKind.SERIAL, branch.then_case)
