"""Elements that are repeated along the last axis, as whole vectors, for lines of any length.

Where vectors do not divide a line, the last one reaches back::

    y[h, i] = x[h // 2, i // 2]                                         # i < 26

    for h, v < 2:                                                       # vectors of 8 of 13 elements
        i0 = min(8 v, 5)
        a = x[h // 2, i0 : i0 + 8]
        y[h, 2 i0 : 2 i0 + 8] = a[0, 0, 1, 1, 2, 2, 3, 3]
        y[h, 2 i0 + 8 : 2 i0 + 16] = a[4, 4, 5, 5, 6, 6, 7, 7]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any

from tvm import tirx
from tvm.tirx import FloorDiv, IntImm

from ...machine.errors import InputError
from ..analysis import plain_copy
from ..expressions import index_variables
from ..restatement import replaced, vector_start, with_one_block
from ..transposition import moved

BLOCK = "repeated"
"""The block of the form: a vector of the input an iteration, of other axes and, last, of a line."""

_MOST_TIMES = 8


@dataclass(frozen=True)
class Repetition:
    """A copy in which neighbours along the last axis are the same element.

    Parameters
    ----------
    block : SBlock
        What copies.
    load : TensorLoad
        What it reads.
    times : int
        How often each element is written, one after the other.
    """

    block: Any
    load: Any
    times: int

    @property
    def extents(self) -> tuple[int, ...]:
        """How long the axes are; the last one is the input's line."""
        *outer, line = (int(v.dom.extent) for v in self.block.iter_vars)
        return (*outer, line // self.times)

    @property
    def dtype(self) -> str:
        """The elements' type."""
        return str(self.block.body.buffer.dtype)


@lru_cache(maxsize=16)  # a rule's space asks, and then the restatement
def find_repetition(func: Any) -> Repetition | None:
    """Find the one copy that a PrimFunc consists of, if it repeats each element of its lines."""
    block = plain_copy(func)
    if block is None:
        return None
    variables, load = [v.var for v in block.iter_vars], block.body.value
    *others, last = load.indices
    if not isinstance(last, FloorDiv) or not last.a.same_as(variables[-1]) or not isinstance(last.b, IntImm):
        return None
    times, line = int(last.b), int(block.iter_vars[-1].dom.extent)
    fits = 1 < times <= _MOST_TIMES and line % times == 0
    return Repetition(block, load, times) if fits and variables[-1] not in index_variables(others) else None


def restate(func: Any, lanes: int) -> Any:
    """Put vectors in the place of a copy's elements.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_repetition` finds a copy.
    lanes : int
        Elements of the input in a vector, at most a line of it.

    Raises
    ------
    InputError
        There is no such copy: a trace may name a form that is not one of its function.
    """
    found = find_repetition(func)
    if found is None or lanes > found.extents[-1]:
        raise InputError(f"the function repeats no elements of lines of {lanes} or more")
    *outer, line = found.extents
    output = found.block.body.buffer

    def body(at: list[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        *place, number = at
        start = vector_start(number, line, lanes)
        new = dict(zip((v.var for v in found.block.iter_vars), place, strict=False))
        there = [replaced(index, new) for index in found.load.indices[:-1]]
        read = moved(found.load.source.vload([*there, start], f"{found.dtype}x{lanes}"))
        vector = tirx.Var("vector", read.ty.dtype)
        stores: list[Any] = [tirx.Bind(vector, read)]
        for part in range(found.times):
            sources = [(part * lanes + lane) // found.times for lane in range(lanes)]
            shuffled = tirx.Shuffle([vector], [tirx.const(source, "int32") for source in sources])
            first = start * found.times + part * lanes
            stores.append(output.vstore([*place, first], moved(shuffled, found.dtype)))
        return stores, {}

    return with_one_block(func, BLOCK, [*outer, ceil(line / lanes)], (found.load.source, output), body)
