"""Slices: parts of a tensor are taken before it is transposed or reshaped."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import relax
from tvm.relax import op

from .reshapes import RESHAPES, groups
from .rewriting import Rewriter, extents
from .transpositions import transposed

SLICE = "relax.strided_slice"

Ranges = dict[int, tuple[int, int, int]]
"""Begin, end and step by axis; begin and end are in the axis, and the step is positive."""


@dataclass(frozen=True)
class Columns:
    """Neighbouring columns of a wider tensor: ``whole[..., begin : begin + n]``."""

    whole: Any
    begin: int


def columns_of(rewriter: Rewriter, expr: Any) -> Columns | None:
    """Find what a tensor is some columns of, or None."""
    call = rewriter.made_by(expr, SLICE)
    found = None if call is None else ranges(call)
    last = len(extents(expr)) - 1
    if call is None or found is None or list(found) != [last] or found[last][2] != 1:
        return None
    return Columns(call.args[0], found[last][0])


def ranges(call: Any) -> Ranges | None:
    """Return what a slice takes of each axis, or None where that is not known or runs backwards."""
    fields = [_numbers(arg) for arg in call.args[1:]]
    if any(f is None for f in fields):
        return None
    axes, begins, ends = (list(f or ()) for f in fields[:3])
    steps = list(fields[3] or ()) if len(fields) > 3 else [1] * len(axes)
    shape = extents(call.args[0])
    if any(step <= 0 for step in steps):
        return None
    axes = [a % len(shape) for a in axes]
    return {
        a: slice(begin, end, step).indices(shape[a])
        for a, begin, end, step in zip(axes, begins, ends, steps, strict=True)
    }


def slice_of(data: Any, taken: Ranges) -> Any:
    """Return the slice of a tensor."""
    begins, ends, steps = zip(*taken.values(), strict=True)
    return op.strided_slice(data, list(taken), list(begins), list(ends), list(steps))


def earlier_slice(rewriter: Rewriter, call: Any) -> Any:
    """Take a part of what is transposed or reshaped before that is done."""
    taken, moved = ranges(call), transposed(rewriter, call.args[0])
    if not taken or 0 in extents(call):
        return None
    if moved is not None:
        data, axes = moved
        part = rewriter.make(slice_of(data, {axes[a]: taken[a] for a in taken}))
        return op.permute_dims(part, axes)
    reshaped = rewriter.made_by(call.args[0], *RESHAPES)
    before = None if reshaped is None else _before(extents(reshaped.args[0]), extents(reshaped), taken)
    if reshaped is None or before is None:
        return None
    return op.reshape(rewriter.make(slice_of(reshaped.args[0], before)), extents(call))


def _before(source: tuple[int, ...], target: tuple[int, ...], taken: Ranges) -> Ranges | None:
    """Return what to take before a reshape: only of the outermost of what one dimension is split into."""
    found: Ranges = {}
    for dims, split in groups(source, target):
        cut = [axis for axis in split if axis in taken]
        if not cut:
            continue
        begin, end, step = taken[cut[0]]
        inner = prod(target[axis] for axis in split[1:])
        if cut != split[:1] or len(dims) != 1 or (step != 1 and inner != 1):
            return None
        found[dims[0]] = (begin * inner, end * inner, step)
    return found


def _numbers(arg: Any) -> list[int] | None:
    """Return the elements of a tuple of known numbers, or None."""
    fields: list[Any] = list(arg.fields) if isinstance(arg, relax.Tuple) else [None]
    known = all(isinstance(field, (int, tvm.tirx.IntImm)) for field in fields)
    return [int(field) for field in fields] if known else None
