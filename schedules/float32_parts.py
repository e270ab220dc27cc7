"""Float32 as sums of three bfloat16: the form in which a matrix unit multiplies them.

A float32 has 24 bits, a bfloat16 8. Rounded to nearest, x is x0 + x1 + x2, where each part has what the ones
before leave, and no bit is lost::

    x0 = bfloat16(x)      x1 = bfloat16(x - x0)      x2 = bfloat16(x - x0 - x1)

A product of two is then nine products, each of which a float32 holds exactly. x1 y2, x2 y1 and x2 y2 come to
2**-23 of it at the very most and 2**-26 in the mean, where float32 rounds by up to 2**-24: they are left out.

What differs from float32: infinities, and numbers from 3.39e38 on, give NaN, as an infinity minus itself is;
and the unit takes numbers below 1.2e-38 for zeros, so that numbers below 1e-31 lose their last bits.

References
----------
Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision
computations", ARITH 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm_ffi import structural_map

from .bfloat16_bits import constant, of_lanes, op_name

_PARTS, _BITS = 3, "uint16"


@dataclass(frozen=True)
class PartedBuffer:
    """A buffer of bits in place of one of float32: the parts of a stretch of elements, one after the other.

    Parameters
    ----------
    whole : Buffer
        The one of float32.
    axes : int
        The innermost axes that stretches run along.
    stretch : int
        The elements of one; it divides those of these axes.
    """

    whole: Any
    axes: int
    stretch: int

    @cached_property
    def buffer(self) -> Any:
        """The buffer of bits."""
        shape = [int(extent) for extent in self.whole.shape]
        stretches, left = divmod(prod(shape[-self.axes :]), self.stretch)
        assert not left, f"stretches of {self.stretch} fill the rows of {self.whole.name}: {shape}"
        shape = [*shape[: -self.axes], stretches, _PARTS, self.stretch]
        return tirx.decl_buffer(shape, _BITS, str(self.whole.name))

    def place(self, indices: Sequence[Any], part: int) -> list[Any]:
        """Return where a part is of the element, or the vector of elements, at some indices."""
        *outer, last = indices
        ramp = last if isinstance(last, tirx.Ramp) else None
        element = last if ramp is None else ramp.base
        size = 1
        for _ in range(self.axes - 1):
            size *= int(self.whole.shape[len(outer)])
            element = outer.pop() * size + element
        at = element % self.stretch
        return [*outer, element // self.stretch, part, at if ramp is None else tirx.Ramp(at, 1, ramp.lanes)]


def in_parts(body: Any, parted: Mapping[Any, PartedBuffer]) -> Any:
    """Return statements that store the parts of what they stored in some of their own buffers."""

    def stored(store: Any) -> Any:
        if store.buffer not in parted:
            return store
        into = parted[store.buffer]
        steps, parts = _split(store.value)
        stores = [
            tirx.BufferStore(into.buffer, part, into.place(store.indices, i)) for i, part in enumerate(parts)
        ]
        return tirx.SeqStmt([*steps, *stores])

    def allocated(allocation: Any) -> Any:
        into = parted.get(allocation.buffer)
        return allocation if into is None else tirx.AllocBuffer(into.buffer)

    return structural_map(body, [(tirx.BufferStore, stored), (tirx.AllocBuffer, allocated)])


def _split(number: Any) -> tuple[list[Any], list[Any]]:
    """Return the steps that split a float32, or a vector of it, and the bits of its parts.

    What is not yet a vector has no steps: TVM makes no vectors of values that are named and have conditions.
    """
    lanes = int(number.ty.dtype.lanes)
    steps: list[Any] = []

    def named(value: Any) -> Any:
        if lanes == 1:
            return value
        name = tirx.Var("part", value.ty.dtype)
        steps.append(tirx.Bind(name, value))
        return name

    if lanes == 1 and op_name(number) == "prim.if_then_else":
        condition, *values = number.args
        (_, yes), (_, no) = map(_split, values)
        return [], [T.if_then_else(condition, *pair) for pair in zip(yes, no, strict=True)]
    left, parts = named(number), []
    for part in range(_PARTS):
        bits = T.reinterpret(left, dtype=of_lanes("uint32", lanes))
        if part < _PARTS - 1:  # to nearest; the last one is a bfloat16 already
            bits = named(tirx.bitwise_and(bits + constant(0x8000, lanes), constant(0xFFFF0000, lanes)))
            left = named(left - T.reinterpret(bits, dtype=of_lanes("float32", lanes)))
        parts.append(tirx.Cast(of_lanes(_BITS, lanes), tirx.shift_right(bits, constant(16, lanes))))
    return steps, parts
