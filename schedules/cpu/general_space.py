"""The knobs of the schedule for everything else, their candidates and default."""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import s_tir

from ...machine.facts import facts
from ...machine.vector_math import POLYNOMIALS
from ..analysis import (
    block_names,
    called,
    flat_axes,
    gathered_buffers,
    is_reduction,
    output_blocks,
    static_extents,
)
from ..space import Constraint, Knob, KnobSpace
from ..streaming import exceeds_caches

_POLYNOMIALS = {f"tirx.{name}" for name in POLYNOMIALS}
# What is read or written at a time where little is computed.
_MOVED_BITS = 256


def general_space(func: Any, target: Any) -> KnobSpace:
    """Return vector widths and threading to choose from; every PrimFunc has this space."""
    widest = facts(target).lanes(_output_dtype(func))
    widths = tuple(sorted({1, max(1, widest // 2), widest, 2 * widest}))
    return KnobSpace(
        knobs=(
            Knob("lanes", widths, "elements in a vector; 1 leaves vectors to LLVM"),
            Knob("parallel", (0, 1), "1: loops with enough work run on all threads"),
            Knob("stream", (0, 1), "1: outputs are written past the caches"),
        ),
        constraints=(Constraint("lanes is at least 1", lambda k: k["lanes"] >= 1),),
        default={"lanes": _lanes(func, widest), "parallel": 1, "stream": exceeds_caches(func, target)},
    )


def _lanes(func: Any, widest: int) -> int:
    """Choose how many elements to compute at a time.

    Two vectors where exp and its like are called: their polynomials are chains, and two of them overlap (tanh
    and exp of 512 x 512 in 0.87 of the time). 256 bits where elements are but read and written (relu of
    3136 x 256 in 0.88, batch norm of 56 x 56 x 256 in 0.78), unless it is rows from here and there. All of it
    on a Zen 5.
    """
    sch, bits = s_tir.Schedule(func), int(tvm.DataType(_output_dtype(func)).bits)
    names = block_names(sch)
    if gathered_buffers(func.body) or any(is_reduction(sch, name) for name in names):
        return widest
    if _POLYNOMIALS & called(func.body):
        # Narrower types are computed in float32: they are several vectors of it already.
        twice = bits >= 32 and all(_fills(sch, name, 2 * widest) for name in output_blocks(sch))
        return 2 * widest if twice else widest
    return max(1, min(widest, _MOVED_BITS // bits))


def _fills(sch: s_tir.Schedule, name: str, lanes: int) -> bool:
    """Tell whether vectors of so many elements fill a block's rows, or all that lies in memory like one."""
    extents = static_extents(sch, name)
    if not extents:
        return False
    return extents[-1] % lanes == 0 or prod(extents[-flat_axes(sch, name) :]) % lanes == 0


def _output_dtype(func: Any) -> str:
    return str(func.params[-1].ty.dtype) if hasattr(func.params[-1].ty, "dtype") else "float32"
