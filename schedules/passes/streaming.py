"""Writing an output past the caches: it will not be read before it has left them anyway.

An ordinary store to a line that is in no cache reads the line first: a kernel that reads and writes as much
as memory delivers moves half as much again. LLVM's non-temporal stores (``vmovntps``, ``stnp``) do not read
it. TVM has no way to ask for one: here a vector is written by a function in LLVM IR, which LLVM inlines. On 2
threads of a Zen 5, ReLU of 4096 x 4096 takes 3.3 ms so, and 4.9 with ordinary stores.

A thread's stores of this kind become visible to others by its next locked instruction, which TVM's threads
execute when they finish their part.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import gcd, prod
from typing import Any

import tvm
from tvm import s_tir, sym, tirx
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T
from tvm_ffi import structural_map

from ...machine.element import element_bits, element_bytes
from ...machine.facts import facts, line_elements
from ...machine.streaming_store import IMPORT_LLVM, STREAMING_NAMES, streaming_name, streaming_store, streams
from ..analysis import gathered_buffers
from ..restatement import replaced, without_mark

STREAM_MARK = "tunesmith.stream"
"""Annotation of a vectorized loop whose stores lie one after the other at a multiple of its vectors."""

# A smaller output may still be in the cache when it is read.
_PART_OF_CACHE = 4


def exceeds_caches(func: Any, target: Any) -> int:
    """Return 1 where what is touched exceeds the last cache and the output is a good part of it, else 0.

    Of a table from which rows are gathered no more is read than is written.
    """
    return int(_exceeds(func, facts(target).kept_by_l3))


def exceeds_near_caches(func: Any, target: Any) -> int:
    """Return 1 where that is so of the caches before an L3 that is far away, else 0.

    Such an L3 is no faster than memory, and a store reads the line from there first. Gathered rows come from
    either as slowly.
    """
    machine = facts(target)
    past = machine.has_far_l3 and not gathered_buffers(func.body)
    return int(past and _exceeds(func, machine.near_bytes))


def _exceeds(func: Any, cache_bytes: int) -> bool:
    """Tell whether what a function touches exceeds a cache, and its output is a good part of it."""
    sizes, gathered = [], gathered_buffers(func.body)
    for parameter in func.params:
        extents = getattr(parameter, "shape", None)
        if extents is None or not all(hasattr(extent, "value") for extent in extents):
            return False
        elements: int = prod(int(extent) for extent in extents)
        sizes.append(elements * element_bytes(parameter.dtype))
    sizes = [
        min(size, sizes[-1]) if any(parameter.same_as(each) for each in gathered) else size
        for parameter, size in zip(func.params, sizes, strict=True)
    ]
    return sum(sizes) > cache_bytes and sizes[-1] > cache_bytes // _PART_OF_CACHE


def row_lanes(lanes: int, row: int, dtype: str, least_bits: int, least_lines: int) -> int:
    """Return the elements of a row to write past the caches at a time; 0 if it is not worth it.

    Whole lines, which `aligned_rows` puts together, if the row is as many but does not end with one. Else the
    widest vectors, up to so many lanes, that divide the row, if they have as many bits.
    """
    width, line = gcd(lanes, row), max(lanes, line_elements(dtype))
    if row % line and row >= least_lines * line:
        return line
    return width if width * element_bits(dtype) >= least_bits else 0


def stream_output(sch: s_tir.Schedule, block: Any, loop: Any, lanes: int, dtype: str) -> None:
    """Write a vector that a loop's iteration computes past the caches.

    Parameters
    ----------
    sch : Schedule
        The schedule.
    block : SBlockRV
        The copy from a vector to the output, as `cache_write` makes it.
    loop : LoopRV
        The loop over vectors, with one vector an iteration.
    lanes : int
        Elements in a vector; the output's rows are whole vectors.
    dtype : str
        The output's type.
    """
    sch.reverse_compute_at(block, loop)
    sch.tensorize(sch.get_loops(block)[-1], stream_intrinsic(lanes, dtype))


def _streamed(loop: Any) -> Any:
    """Return the statements that compute a marked loop's vector and write it past the caches.

    A loop that computes anything but one vector, or one of another type, or one that does not lie as the mark
    says, stays a loop.
    """
    if STREAM_MARK not in loop.annotations:
        return loop
    store, lane = loop.body, loop.loop_var
    known = isinstance(store, tirx.BufferStore) and streams(str(store.buffer.dtype))
    place = _place_of_vector(store, lane, loop.extent) if known else None
    if place is None:
        return without_mark(loop, STREAM_MARK)
    return streamed_vector(loop, place)


def streamed_vector(loop: Any, place: Any) -> Any:
    """Return the statements that compute what a loop stores, and write it past the caches as a vector.

    Parameters
    ----------
    loop : For
        A loop over the elements of a vector, which stores each, of a type that is streamed.
    place : PrimExpr
        How many elements of the array lie before the vector: a multiple of its own.
    """
    store, lane, lanes = loop.body, loop.loop_var, int(loop.extent)
    dtype = str(store.buffer.dtype)
    vector = tirx.decl_buffer((lanes,), dtype, "vector")
    stored, code = streaming_store(lanes, dtype)
    call = stored(store.buffer, place, vector.vload([0], f"{dtype}x{lanes}"))
    computed = tirx.For(lane, loop.min, loop.extent, loop.kind, tirx.BufferStore(vector, store.value, [lane]))
    written = tirx.AttrStmt(tirx.IntImm("int32", 0), IMPORT_LLVM, tvm.ir.StringImm(code), tirx.Evaluate(call))
    return tirx.SeqStmt([tirx.AllocBuffer(vector), computed, written])


def _place_of_vector(store: Any, lane: Any, lanes: Any) -> Any | None:
    """Return how many elements lie before those that all lanes store.

    None where these do not follow each other, or begin at no multiple of the lanes.
    """
    analyzer = sym.Analyzer()
    analyzer.bind(lane, tvm.ir.Range(0, lanes))
    first = first_of_consecutive(store, lane, [lane], analyzer)
    return first if first is not None and analyzer.can_prove(first % lanes == 0) else None


def first_of_consecutive(store: Any, number: Any, loops: Sequence[Any], analyzer: Any) -> Any | None:
    """Return how many elements lie before the first that loops store one after the other, else None.

    ``number``: that of an element, in the loops' variables, which begin at 0.
    """
    if store.buffer.strides:
        return None
    place = elements_before(store.buffer, store.indices)
    first = analyzer.simplify(replaced(place, {v: tirx.IntImm(str(v.ty.dtype), 0) for v in loops}))
    return first if analyzer.can_prove_equal(place, first + number) else None


def elements_before(buffer: Any, indices: Sequence[Any]) -> Any:
    """Return how many elements of a buffer lie before one."""
    place = indices[0]
    for extent, index in zip(buffer.shape[1:], indices[1:], strict=True):
        place = place * extent + index
    return place


def _stream(func: Any, _mod: Any, _context: Any) -> Any:
    return func.with_body(structural_map(func.body, [(tirx.For, _streamed)]))


stream_vectors = tirx.transform.prim_func_pass(_stream, opt_level=0)
"""The pass that has the marked loops of functions of plain loops write past the caches."""


def register_intrinsics(trace: str) -> None:
    """Register the intrinsics that a trace names: TVM knows only those registered in this process."""
    for lanes, dtype in set(STREAMING_NAMES.findall(trace)):
        stream_intrinsic(int(lanes), dtype)


@cache
def stream_intrinsic(lanes: int, dtype: str) -> str:
    """Return the name of the intrinsic ``B[i] = A[i]`` on a vector, written past the caches."""
    name = streaming_name(lanes, dtype)
    stored, code = streaming_store(lanes, dtype)
    vector = f"{dtype}x{lanes}"

    @T.prim_func(s_tir=True)
    def copied(a: T.handle, b: T.handle) -> None:
        A = T.match_buffer(a, (lanes,), dtype, offset_factor=1)
        B = T.match_buffer(b, (lanes,), dtype, offset_factor=lanes)
        with T.sblock("root"):
            T.reads(A[0:lanes])
            T.writes(B[0:lanes])
            for i in T.serial(lanes):
                with T.sblock("copy"):
                    vi = T.axis.spatial(lanes, i)
                    B[vi] = A[vi]

    @T.prim_func(s_tir=True)
    def streamed(a: T.handle, b: T.handle) -> None:
        A = T.match_buffer(a, (lanes,), dtype, offset_factor=1)
        B = T.match_buffer(b, (lanes,), dtype, offset_factor=lanes)
        with T.sblock("root"):
            T.reads(A[0:lanes])
            T.writes(B[0:lanes])
            T.sblock_attr({IMPORT_LLVM: code})
            T.evaluate(stored(B, 0, A.vload([0], vector)))

    TensorIntrin.register(name, copied, streamed, override=True)
    return name
