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
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm_ffi import structural_map

from ..expressions import is_choice, loads_of
from .bfloat16_bits import constant, of_lanes, widened

# Parts of which the last is what is left, and has as many bits as a bfloat16.
_EXACT, _BITS = 3, "uint16"


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
    parts : int
        The parts of an element: 3, or as many as are enough beside the other operand's.
    """

    whole: Any
    axes: int
    stretch: int
    parts: int

    @cached_property
    def buffer(self) -> Any:
        """The buffer of bits."""
        shape = [int(extent) for extent in self.whole.shape]
        stretches, left = divmod(prod(shape[-self.axes :]), self.stretch)
        assert not left, f"stretches of {self.stretch} fill the rows of {self.whole.name}: {shape}"
        if self.axes == 1:
            # Rows a power of two apart evict each other from L1: 1024 rows by 4096 x 1024 take 0.93.
            stretches |= 1
        shape = [*shape[: -self.axes], stretches, self.parts, self.stretch]
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
    """Return statements that store the parts of what they stored in some of their own buffers.

    What else they load from these is the sum of the parts, which is the number itself.
    """

    def loaded(load: Any) -> Any:
        into = parted.get(load.source)
        if into is None:
            return load
        return _whole([into.buffer[into.place(load.indices, part)] for part in range(into.parts)])

    def stored(store: Any) -> Any:
        if store.buffer not in parted:
            return store
        into, value = parted[store.buffer], store.value
        before: list[Any] = []
        if any(load.source.same_as(into.buffer) for load in loads_of(value)):
            # Its parts are all read before one of them is overwritten.
            name = tirx.Var("whole", value.ty.dtype)
            before, value = [tirx.Bind(name, value)], name
        steps, parts = _split(value, into.parts)
        stores = [
            tirx.BufferStore(into.buffer, part, into.place(store.indices, i)) for i, part in enumerate(parts)
        ]
        return tirx.SeqStmt([*before, *steps, *stores])

    def allocated(allocation: Any) -> Any:
        into = parted.get(allocation.buffer)
        return allocation if into is None else tirx.AllocBuffer(into.buffer)

    replacing = [(tirx.BufferStore, stored), (TensorLoad, loaded), (tirx.AllocBuffer, allocated)]
    return structural_map(body, replacing)


def _whole(parts: Sequence[Any]) -> Any:
    """Return the number, or the vector of numbers, whose parts these are: each sum is exact."""
    numbers = map(widened, parts)
    return sum(numbers, next(numbers))


def _split(number: Any, count: int) -> tuple[list[Any], list[Any]]:
    """Return the steps that split a float32, or a vector of it, and the bits of so many parts of it.

    What is not yet a vector has no steps: TVM makes no vectors of values that are named and have conditions.
    """
    lanes = int(number.ty.dtype.lanes)
    if lanes == 1 and is_choice(number):
        condition, *values = number.args
        (_, yes), (_, no) = (_split(value, count) for value in values)
        return [], [T.if_then_else(condition, *pair) for pair in zip(yes, no, strict=True)]
    if not _is_interleaved(number):
        steps, words = _words_of_parts(number, count)
        bits = (tirx.shift_right(word, constant(16, lanes)) for word in words)
        return steps, [tirx.Cast(of_lanes(_BITS, lanes), part) for part in bits]
    # The upper halves of two rows' words take turns where one is shifted under the other.
    (steps, evens), (more, odds) = (_words_of_parts(vector, count) for vector in number.vectors)
    half = constant(16, lanes // 2)
    pairs = (tirx.bitwise_or(tirx.shift_right(a, half), b) for a, b in zip(evens, odds, strict=True))
    return [*steps, *more], [T.reinterpret(pair, dtype=of_lanes(_BITS, lanes)) for pair in pairs]


def _is_interleaved(number: Any) -> bool:
    """Tell whether a vector has the elements of two others in turns."""
    if not isinstance(number, tirx.Shuffle) or len(number.vectors) != 2:
        return False
    lanes = int(number.ty.dtype.lanes) // 2
    turns = [row * lanes + at for at in range(lanes) for row in range(2)]
    return [int(index) for index in number.indices] == turns


def _words_of_parts(number: Any, count: int) -> tuple[list[Any], list[Any]]:
    """Return the steps that split a number, and words whose upper half is a part, and whose lower is zero."""
    lanes = int(number.ty.dtype.lanes)
    steps: list[Any] = []

    def named(value: Any) -> Any:
        if lanes == 1:
            return value
        name = tirx.Var("part", value.ty.dtype)
        steps.append(tirx.Bind(name, value))
        return name

    left, words = named(number), []
    for part in range(count):
        word = T.reinterpret(left, dtype=of_lanes("uint32", lanes))
        if part < _EXACT - 1:  # to nearest; the last of all is a bfloat16 already
            word = named(tirx.bitwise_and(word + constant(0x8000, lanes), constant(0xFFFF0000, lanes)))
        if part < count - 1:
            left = named(left - T.reinterpret(word, dtype=of_lanes("float32", lanes)))
        words.append(word)
    return steps, words
