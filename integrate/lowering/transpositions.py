"""Transpositions: what they do to axes, and where one meets another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.relax import op

from .rewriting import Rewriter, extents

Axes = Sequence[int]

PERMUTE = "relax.permute_dims"


def transposed(rewriter: Rewriter, expr: Any) -> tuple[Any, tuple[int, ...]] | None:
    """Return what a tensor is a transposition of, and its axes, or None."""
    call = rewriter.made_by(expr, PERMUTE)
    return None if call is None else (call.args[0], permutation(call))


def permutation(call: Any) -> tuple[int, ...]:
    """Return the axes of a transposition."""
    rank = len(extents(call))
    return tuple(int(a) % rank for a in call.attrs.axes or reversed(range(rank)))


def inverse(axes: Axes) -> tuple[int, ...]:
    """Return the transposition that undoes another."""
    return tuple(axes.index(i) for i in range(len(axes)))


def compose(rewriter: Rewriter, call: Any) -> Any:
    """Make one transposition of two, or none."""
    axes, found = permutation(call), transposed(rewriter, call.args[0])
    if found is not None:
        data, first = found
        return rewriter.make(op.permute_dims(data, [first[a] for a in axes]))
    return call.args[0] if list(axes) == sorted(axes) else None
