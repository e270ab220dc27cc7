"""Transposing a square of elements in registers: log2(lanes) rounds in which pairs of rows exchange elements.

Element by element, a transposition reads or writes one element a step. A square of ``lanes`` rows is read as
``lanes`` vectors. In parts of 128 bits, of n elements, each row of the first half of n is interleaved with
its like in the second, log2(n) times::

    a0 a1 a2 a3      a0 c0 a1 c1      a0 b0 c0 d0
    b0 b1 b2 b3  ->  a2 c2 a3 c3  ->  a1 b1 c1 d1
    c0 c1 c2 c3      b0 d0 b1 d1      a2 b2 c2 d2
    d0 d1 d2 d3      b2 d2 b3 d3      a3 b3 c3 d3

Of wider vectors the rows i and i + d, d = n, 2n, ..., then swap the parts whose positions differ from theirs
in d.

References
----------
Eklundh, "A fast computer method for matrix transposing", IEEE Trans. Computers C-21, 1972.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from ..machine.element import element_bits
from ..machine.streaming_store import IMPORT_LLVM, streaming_store
from .restatement import in_order

# Within parts of so many bits CPUs interleave two vectors in one instruction: unpack on x86, zip on aarch64.
_PART_BITS = 128

_NAME = "tunesmith_transpose_{lanes}_{dtype}{streamed}"
_NAMED = re.compile(
    _NAME.format(lanes=r"(2|4|8|16|32|64)", dtype=r"(float\d\d|int\d\d?)", streamed="(_streamed)?")
)


def register_intrinsics(trace: str) -> None:
    """Register the intrinsics that a trace names: TVM knows only those registered in this process."""
    for lanes, dtype, streamed in set(_NAMED.findall(trace)):
        transposition_intrinsic(int(lanes), dtype, bool(streamed))


@cache
def transposition_intrinsic(lanes: int, dtype: str, streamed: bool = False) -> str:
    """Return the name of the intrinsic ``B[i, j] = A[j, i]`` on a square of lanes, registered with TVM.

    ``streamed``: B is written past the caches; traces from before `forms.squares` name such intrinsics.
    """
    name = _NAME.format(lanes=lanes, dtype=dtype, streamed="_streamed" if streamed else "")
    TensorIntrin.register(
        name, _described(lanes, dtype), _in_registers(lanes, dtype, streamed), override=True
    )
    return name


def _described(lanes: int, dtype: str) -> Any:
    @T.prim_func(s_tir=True)
    def transposed(a: T.handle, b: T.handle) -> None:
        A = T.match_buffer(a, (lanes, lanes), dtype, offset_factor=1, strides=[T.int64(), 1])
        B = T.match_buffer(b, (lanes, lanes), dtype, offset_factor=1, strides=[T.int64(), 1])
        with T.sblock("root"):
            T.reads(A[0:lanes, 0:lanes])
            T.writes(B[0:lanes, 0:lanes])
            for i, j in T.grid(lanes, lanes):
                with T.sblock("transpose"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vj, vi]

    return transposed


def _in_registers(lanes: int, dtype: str, streamed: bool) -> Any:
    """Return the same with vectors: the description's buffers and regions around another body."""
    described = _described(lanes, dtype)
    A, B = described.params
    vector = f"{dtype}x{lanes}"
    steps, rows = transposed([A.vload([T.int64(i), T.int64(0)], vector) for i in range(lanes)])
    notes = {}
    if streamed:
        stored, code = streaming_store(lanes, dtype)
        notes[IMPORT_LLVM] = code
        steps += [tirx.Evaluate(stored(B, i * B.strides[0], row)) for i, row in enumerate(rows)]
    else:
        steps += [B.vstore([T.int64(i), T.int64(0)], row) for i, row in enumerate(rows)]
    return performing(described, steps, notes)


def transposed(rows: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the statements that transpose a square, given as a vector for each row, and its rows then."""
    steps: list[Any] = []

    def named(value: Any) -> Any:
        """Compute a vector once, whatever reads it."""
        name = tirx.Var("row", value.ty.dtype)
        steps.append(tirx.Bind(name, value))
        return name

    square = [named(row) for row in rows]
    lanes, bits = len(square), element_bits(rows[0].ty.dtype)
    part = min(lanes, _PART_BITS // bits)
    for _ in range(part.bit_length() - 1):
        square = [
            named(shuffled(pair, _interleaved(lanes, part, half))) for pair, half in _pairs(square, part)
        ]
    distance = part
    while distance < lanes:
        for i in range(lanes):
            if not i & distance:
                pair = square[i], square[i + distance]
                square[i] = named(shuffled(pair, _swapped(lanes, distance, 0)))
                square[i + distance] = named(shuffled(pair, _swapped(lanes, distance, distance)))
        distance *= 2
    return steps, square


def _pairs(square: Sequence[Any], part: int) -> Iterator[tuple[tuple[Any, Any], int]]:
    """Pair each row of the first half of so many with one of the second, for both halves of their parts."""
    for first in range(0, len(square), part):
        for i in range(first, first + part // 2):
            yield from (((square[i], square[i + part // 2]), half) for half in (0, 1))


def moved(vector: Any, dtype: str = "uint16") -> Any:
    """Return a vector of bfloat16 as its bits, or what its bits have become; any other as it is.

    TVM computes with a bfloat16 in float32, and makes that of one that is only moved as well.
    """
    bits, lanes = str(vector.ty.dtype).partition("x")[::2]
    other = {"bfloat16": "uint16", "uint16": dtype}.get(bits, bits)
    return vector if other == bits else tirx.reinterpret(f"{other}x{lanes}", vector)


def performing(described: Any, steps: Sequence[Any], notes: Mapping[str, Any] | None = None) -> Any:
    """Return a function with the buffers and regions of an intrinsic's description and other statements."""
    block = described.body.block
    statement = in_order(steps)
    body = s_tir.SBlock([], block.reads, block.writes, block.name_hint, statement, annotations=notes or {})
    return described.with_body(s_tir.SBlockRealize([], tvm.tirx.const(True, "bool"), body))


def shuffled(vectors: Sequence[Any], places: Sequence[int]) -> Any:
    """Return the vector of the elements at some places of one or two vectors, the second's counted on."""
    return tirx.Shuffle([*vectors], [tirx.const(place, "int32") for place in places])


def _interleaved(lanes: int, part: int, half: int) -> list[int]:
    """Return the places that alternate between a half of each part of one row and the same of another."""
    starts = range(half * part // 2, lanes, part)
    return [start + i + row * lanes for start in starts for i in range(part // 2) for row in (0, 1)]


def _swapped(lanes: int, distance: int, start: int) -> list[int]:
    """Return the places of that row of a swapped pair whose elements have ``distance`` in theirs or not."""
    return [(p & ~distance | start) + (lanes if p & distance else 0) for p in range(lanes)]
