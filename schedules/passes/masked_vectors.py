"""Vectors that end beyond their array are masked, where the CPU has masks.

Rows of 37 elements are two vectors of 16 and one of which 5 are there::

    for o:  for v in vectorized(16):  if o * 16 + v < 37:  b[o * 16 + v] = f(a[o * 16 + v])

TVM turns a vectorized loop whose condition depends on the lane into a loop over single elements. Here it
becomes vectors whose loads and stores have the condition as their mask::

    for o:  there = (o * 16 + lanes < 37);  b[o * 16 + lanes | there] = f(a[o * 16 + lanes | there])

What all lanes read or none, as the vectors of a panel that ends within it, is masked so in sums: a branch in
each step would keep these out of registers, 144 x 384 by 384 x 784 take 0.65 of the time. LLVM drops the mask
where it is plainly true. AVX-512 has such instructions, as fast as others; those of AVX2 are not (a store
takes 12 cycles on a Zen 3), and on aarch64 LLVM would write out a branch for each lane. On such CPUs, and
where types are stored that LLVM masks wrongly, vectors that are whole have no condition::

    for o:  if o * 16 + 16 <= 37:  for v in vectorized(16):  b[o * 16 + v] = f(a[o * 16 + v])
            else:  for v in 16:  if v < 37 - o * 16:  b[o * 16 + v] = f(a[o * 16 + v])
"""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx
from tvm_ffi import structural_map, structural_walk

from ...machine.facts import facts
from ..expressions import conjunction
from ..restatement import replaced, with_functions, with_own_variables
from .flat_parts import flatten_parts
from .lane_conditions import adds_chosen, chooses_by_lane, depends, may_need_masks
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
        chosen = chooses_by_lane(loop) or (change is _masked and adds_chosen(loop))
        return change(loop) if chosen else loop

    def with_masks(body: Any) -> Any:
        return make_buffers_whole(structural_map(flatten_parts(body), (tirx.For, without_choices)))

    masked = {name: func.with_body(with_masks(func.body)) for name, func in plain.items()}
    changed = {name: func for name, func in masked.items() if not func.body.same_as(plain[name].body)}
    return with_functions(mod, {name: _with_own_names(func) for name, func in changed.items()})


def _with_own_names(func: Any) -> Any:
    """Return a function whose copies of a block bind names of their own, if blocks bind any.

    That of a maximum with its position does.
    """
    bound: list[Any] = []
    structural_walk(func.body, (tirx.Bind, bound.append))
    return with_own_variables(func) if bound else func


def _masked(loop: Any) -> Any:
    """Return vectors in place of a vectorized loop with conditions of its lanes, or what is not masked."""
    try:
        return Lanes(loop.loop_var, int(loop.extent)).statement(loop.body, None)
    except NoVectors:
        return _cut_short(loop)


def _cut_short(loop: Any) -> Any:
    """Return whole vectors, and single elements where one ends beyond its array, in place of a condition.

    It is one that says that the lane lies below a number. LLVM would make masks of it: see `lane_vectors`.
    """
    branch, lane = loop.body, loop.loop_var
    if not isinstance(branch, tirx.IfThenElse) or branch.else_case is not None:
        return loop
    conditions = list(conjunction(branch.condition))
    of_lane = [c for c in conditions if depends(c, [lane])]
    if len(of_lane) != 1 or not isinstance(of_lane[0], tirx.LT):
        return loop
    (below,), analyzer = of_lane, sym.Analyzer()
    there = analyzer.simplify(below.b - (below.a - lane))
    if depends(there, [lane]):
        return loop
    single = tirx.Var(str(lane.name), lane.ty)
    body, extent = replaced(branch.then_case, {lane: single}), loop.extent
    if analyzer.can_prove(there < extent):
        cut = tirx.For(single, loop.min, analyzer.simplify(tirx.max(there, 0)), tirx.ForKind.SERIAL, body)
    else:
        whole = tirx.For(lane, loop.min, extent, loop.kind, branch.then_case)
        # Of a number of iterations that varies, sums in registers would be stored to be looked up.
        each = tirx.For(
            single, loop.min, extent, tirx.ForKind.SERIAL, tirx.IfThenElse(single < there, body, None)
        )
        cut = tirx.IfThenElse(there >= extent, whole, each)
    shared = [c for c in conditions if not c.same_as(below)]
    return tirx.IfThenElse(tirx.all(*shared), cut, None) if shared else cut
