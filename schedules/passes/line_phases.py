"""Lines that are taken apart into every other element: two vectors become two in registers.

LLVM takes strided copies apart only in part: a line of 56 elements takes 80 loads of single ones. Here the
loops are marked, and become vectors when blocks have become plain loops (`loop_partition`)::

    for u < 28:  # marked                          for u in 0, 12:
        for f < 2:  wide[f, u] = x[2 u + f]   ->       a, b = x[2 u : 2 u + 16], x[2 u + 16 : 2 u + 32]
                                                       wide[0, u : u + 16] = the even elements of a and b
                                                       wide[1, u : u + 16] = the odd ones

The last vectors reach back, and some elements are written twice, with the same value.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from ..expressions import index_variables, is_along, step_along
from ..restatement import replaced, vector_start, with_marked
from ..transposition import moved

PHASES_MARK = "tunesmith.phases"
"""Annotation of the loop along a line, in which that over its phases lies: the most elements in a vector."""

# Fewer elements are no faster as a vector.
_LEAST_LANES = 4


def mark_phases(sch: s_tir.Schedule, along: Any, lanes: int) -> None:
    """Mark the outer one of the two loops that take a line apart."""
    sch.annotate(along, PHASES_MARK, lanes)


def _take(func: Any, _mod: Any, _context: Any) -> Any:
    return with_marked(func, PHASES_MARK, _in_registers)


take_phases = tirx.transform.prim_func_pass(_take, opt_level=0)
"""The pass that takes the marked lines of functions of plain loops apart."""


def _in_registers(loop: Any) -> Any | None:
    """Return the loop over vectors; None where elements have conditions, are too few or lie otherwise."""
    phase, along = loop.body, loop.loop_var
    if not isinstance(phase, tirx.For) or not isinstance(loop.extent, tirx.IntImm) or int(phase.extent) != 2:
        return None
    store, extent = phase.body, int(loop.extent)
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, TensorLoad):
        return None
    load, lanes = store.value, min(int(loop.annotations[PHASES_MARK]), 1 << extent.bit_length() - 1)
    apart = _are_apart(load, along, phase.loop_var) and is_along(store.indices, along)
    if lanes < _LEAST_LANES or not apart:
        return None
    step = tirx.Var(str(along.name), along.ty)

    def at(number: int) -> dict[Any, Any]:
        return {along: loop.min + vector_start(step, extent, lanes), phase.loop_var: phase.min + number}

    def loaded(further: int) -> Any:
        *outer, first = (replaced(index, at(0)) for index in load.indices)
        return moved(load.source.vload([*outer, first + further], f"{load.source.dtype}x{lanes}"))

    pair = [loaded(0), loaded(lanes)]
    stores = []
    for number in (0, 1):
        places = [tirx.const(2 * n + number, "int32") for n in range(lanes)]
        there = [replaced(index, at(number)) for index in store.indices]
        stores.append(store.buffer.vstore(there, moved(tirx.Shuffle(pair, places), str(load.source.dtype))))
    vectors = tirx.const(ceil(extent / lanes), along.ty.dtype)
    return tirx.For(step, tirx.const(0, along.ty.dtype), vectors, tirx.ForKind.SERIAL, tirx.SeqStmt(stores))


def _are_apart(load: Any, along: Any, phase: Any) -> bool:
    """Tell whether elements lie two apart along the loop, and one from phase to phase."""
    *others, last = load.indices
    apart = step_along(last, along) == 2 and step_along(last, phase) == 1
    return apart and not {along, phase} & index_variables(others)
