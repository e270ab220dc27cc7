"""Masked vectors of a function's own buffers become whole ones: these buffers are made as long.

What sums the last 7 of 23 columns keeps them in a buffer of 7 elements, loaded and stored by a mask in each
step. LLVM leaves it in memory, and a load must wait until a masked store is done::

    sum = buffer(7);   for i:  sum[lanes | lanes < 7] += a[i, 16 + lanes | lanes < 7]
    sum = buffer(16);  for i:  sum[lanes] += a[i, 16 + lanes | lanes < 7]     # stays in a register

Nobody else sees the buffer, and of its other elements nothing is read but what is written to them again. So
it is where the masks of all accesses are alike, as in tiles of which the last ends beyond the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import TensorLoad
from tvm_ffi import structural_map, structural_walk

from ..expressions import op_name, ranges_of

_LOAD, _STORE = "tirx.masked_load", "tirx.masked_store"


def make_buffers_whole(body: Any) -> Any:
    """Return statements whose own buffers hold whole vectors, where masks only say how long they are."""
    own: list[Any] = []
    masked: list[Any] = []
    others: list[tuple[Any, Any]] = []
    loops: list[Any] = []
    structural_walk(
        body,
        [
            (tirx.For, loops.append),
            (tirx.AllocBuffer, lambda allocation: own.append(allocation.buffer)),
            (tvm.ir.Call, lambda call: masked.append(call) if op_name(call) in (_LOAD, _STORE) else None),
            (tirx.BufferStore, lambda store: others.append((store.buffer, store.indices[-1]))),
            (TensorLoad, lambda load: others.append((load.source, load.indices[-1]))),
        ],
    )
    longer: dict[Any, Any] = {}
    ranges = ranges_of(loops)
    for buffer in own:
        calls = [call for call in masked if call.args[0].same_as(buffer)]
        bounds, length = {_bound(call) for call in calls}, int(buffer.shape[-1])
        places = [last for each, last in others if buffer.same_as(each)]
        alone = not places
        # What is beyond the bound within the buffer must be nobody's.
        bounded = len(bounds) == 1 and None not in bounds and (alone or bounds == {length})
        if not calls or not (bounded or (alone and _are_alike(calls, _around(loops, buffer)))):
            continue
        if _end(ranges, places) > length:
            # Whole vectors go on in the next row, which would begin later.
            continue
        end = _end(ranges, [call.args[-2] for call in calls])
        # Vectors of which nothing says where they end begin anywhere.
        if end < length + max(int(call.args[-2].lanes) for call in calls):
            shape = [*buffer.shape[:-1], tirx.IntImm("int64", max(length, end))]
            longer[buffer] = tirx.decl_buffer(shape, str(buffer.dtype), str(buffer.name))
    return _with_longer(body, longer) if longer else body


def _are_alike(calls: Sequence[Any], around: Sequence[Any]) -> bool:
    """Tell whether masks of vectors are one function of where these are, which does not change meanwhile.

    ``around``: the loops in which the buffer lives.
    """
    places = [call.args[-2:] for call in calls]
    if not all(isinstance(last, tirx.Ramp) for last, _ in places):
        return False
    further = [set(_variables(mask)) - set(_variables(last)) for last, mask in places]
    lasting = further[0] <= {loop.loop_var for loop in around} and further.count(further[0]) == len(further)
    first, *others = places
    return lasting and all(tvm_ffi.structural_equal(first, other, map_free_vars=True) for other in others)


def _variables(expression: Any) -> list[Any]:
    return list(tirx.analysis.undefined_vars(expression, []))


def _around(loops: Sequence[Any], buffer: Any) -> list[Any]:
    """Return those of some loops that are around the allocation of a buffer."""

    def holds(loop: Any) -> bool:
        found: list[Any] = []
        structural_walk(loop.body, (tirx.AllocBuffer, lambda each: found.append(each.buffer)))
        return any(buffer.same_as(each) for each in found)

    return [loop for loop in loops if holds(loop)]


def _end(ranges: sym.Analyzer, places: Sequence[Any]) -> int:
    """Return the element before which the last vector of some last indices ends; 0 of no vectors."""
    vectors = [last for last in places if isinstance(last, tirx.Ramp)]
    ends = (ranges.const_int_bound(last.base).max_value + int(last.lanes) for last in vectors)
    return max(ends, default=0)


def _bound(call: Any) -> int | None:
    """Return the element before which a mask ends a vector, or None: it says something else."""
    *_, last, mask = call.args
    within = isinstance(last, tirx.Ramp) and isinstance(last.base, tirx.IntImm) and isinstance(mask, tirx.LT)
    bound = mask.b.value if within and isinstance(mask.b, tirx.Broadcast) else None
    if not isinstance(bound, tirx.IntImm) or not tvm_ffi.structural_equal(mask.a, last):
        return None
    return int(bound)


def _with_longer(body: Any, longer: dict[Any, Any]) -> Any:
    """Return statements with some buffers replaced, their masked vectors by whole ones."""

    def loaded(call: Any) -> Any:
        if op_name(call) != _LOAD or call.args[0] not in longer:
            return call
        buffer, *indices, _ = call.args
        return tirx.BufferLoad(longer[buffer], indices)

    def stored(statement: Any) -> Any:
        call = statement.value
        if op_name(call) != _STORE or call.args[0] not in longer:
            return statement
        buffer, value, *indices, _ = call.args
        return tirx.BufferStore(longer[buffer], value, indices)

    def allocated(allocation: Any) -> Any:
        new = longer.get(allocation.buffer)
        return allocation if new is None else tirx.AllocBuffer(new)

    body = structural_map(body, [(tvm.ir.Call, loaded), (tirx.Evaluate, stored)])
    return structural_map(body, [(tirx.AllocBuffer, allocated), (tirx.Var, lambda v: longer.get(v, v))])
