"""Panels of a weight that fills none are made of it as it lies, not of a copy that is filled up.

Schedules fill a weight up before an instruction's groups are made of it in registers: then no vector of these
has a condition. But only the last panel, or the last group, needs it::

    for k, v, lane (vectorized):  # marked
        longer[k, 32 v + lane] = b[k, c + 32 v + lane] if c + 32 v + lane < 150 else 0
    panels[..] = groups of longer[k : k + 4, j : j + 16]

    ->  panels[..] = groups of b[k : k + 4, c + j : c + j + 16], masked where these are 150 and more

An index of another axis that would be beyond the weight is its last: what it gives meets zeros of the data,
or becomes columns that nobody stores. On 2 threads of a Zen 4 16 rows by 2024 x 1600 take 0.92 of the time,
by 1290 x 640 0.89, 8 by 424 x 984 0.78, 7x7 pixels of 480 to 580 channels, 3x3 by 2, 0.87.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.sym import Analyzer
from tvm_ffi import structural_map

from ..expressions import conjunction, index_variables, is_choice
from ..restatement import without_mark

COPY_MARK = "tunesmith.filled_copy"
"""Annotation of the innermost loop of a copy that is filled up with zeros."""


class _Needed(Exception):
    """Something reads the copy in another way than in vectors."""


@dataclass(frozen=True)
class _Copy:
    """A copy that is filled up: of which buffer, how far its elements lie from there, and where these end."""

    buffer: Any
    source: Any
    offsets: tuple[Any, ...]
    ends: dict[int, int]

    def load(self, load: Any) -> Any:
        """Return a vector of the source, zeros beyond it, in place of one of the copy."""
        if not isinstance(load, TensorLoad) or not load.source.same_as(self.buffer):
            return load
        *outer, last = load.indices
        if not isinstance(last, tirx.Ramp):
            raise _Needed
        places = [at + offset for at, offset in zip(outer, self.offsets, strict=False)]
        for axis, end in self.ends.items():
            if axis < len(places):
                places[axis] = tirx.min(places[axis], tirx.const(end - 1, places[axis].ty.dtype))
        first, lanes, dtype = last.base + self.offsets[-1], int(last.lanes), str(load.ty.dtype)
        vector = tirx.Ramp(first, last.stride, lanes)
        if len(places) not in self.ends:
            return tirx.BufferLoad(self.source, [*places, vector])
        left = tirx.max(tirx.min(self.ends[len(places)] - first, lanes), 0).astype("int8")
        there = tirx.Ramp(tirx.const(0, "int8"), tirx.const(1, "int8"), lanes) < tirx.Broadcast(left, lanes)
        loaded = T.masked_load(dtype, self.source, *places, vector, there)
        zeros = tirx.Broadcast(tirx.const(0, str(self.source.dtype)), lanes)
        name = tirx.Var("row", dtype)
        # Inside of a choice TVM would load without a mask.
        return tirx.Let(name, loaded, tirx.Select(there, name, zeros))


def mark_filled_copy(sch: s_tir.Schedule, copy: Any) -> None:
    """Mark a copy that is filled up, whose innermost loop is a vector, if it is one of integers."""
    if "int" in str(sch.get(copy).writes[0].source.dtype):
        sch.annotate(sch.get_loops(copy)[-1], COPY_MARK, 1)


def _read_directly(func: Any, _mod: Any, _context: Any) -> Any:
    needless: list[Any] = []

    def without_copy(statements: Any) -> Any:
        for at, each in enumerate(statements):
            copy = _copy_of(each)
            if copy is None:
                continue
            try:
                after = [structural_map(s, [(TensorLoad, copy.load)]) for s in statements[at + 1 :]]
            except _Needed:
                continue
            needless.append(copy.buffer)
            return tirx.SeqStmt([*statements[:at], *after])
        return statements

    def without_buffers(statements: Any) -> Any:
        kept = [s for s in statements if not _allocates(s, needless)]
        return tirx.SeqStmt(kept) if len(kept) < len(statements) else statements

    def unmarked(loop: Any) -> Any:
        return without_mark(loop, COPY_MARK) if COPY_MARK in loop.annotations else loop

    body = structural_map(func.body, [(tirx.SeqStmt, without_copy)])
    return func.with_body(structural_map(body, [(tirx.SeqStmt, without_buffers), (tirx.For, unmarked)]))


def _allocates(statement: Any, buffers: Sequence[Any]) -> bool:
    return isinstance(statement, tirx.AllocBuffer) and any(statement.buffer.same_as(b) for b in buffers)


def _copy_of(statement: Any) -> _Copy | None:
    """Find out how a marked copy relates to its source; None for another statement."""
    loops, marked = [], False
    while isinstance(statement, tirx.For):
        loops.append(statement.loop_var)
        marked, statement = COPY_MARK in statement.annotations, statement.body
    if not marked or not isinstance(statement, tirx.BufferStore) or not is_choice(statement.value):
        return None
    condition, load, _ = statement.value.args
    if not isinstance(load, TensorLoad) or len(load.indices) != len(statement.indices):
        return None
    analyzer = Analyzer()
    pairs = zip(load.indices, statement.indices, strict=True)
    offsets = tuple(analyzer.simplify(there - here) for there, here in pairs)
    ends = _ends(condition, load, analyzer)
    if ends is None or set(loops) & index_variables(offsets):
        return None
    return _Copy(statement.buffer, load.source, offsets, ends)


def _ends(condition: Any, load: Any, analyzer: Any) -> dict[int, int] | None:
    """Return where the axes of a source end, by a condition for a load; None for one of another kind."""
    ends = {}
    for each in conjunction(condition):
        bounded = isinstance(each, tirx.LT) and isinstance(each.b, tirx.IntImm)
        axes = [n for n, at in enumerate(load.indices) if bounded and analyzer.can_prove_equal(each.a, at)]
        if not axes:
            return None
        ends[axes[0]] = int(each.b)
    return ends


read_directly = tirx.transform.prim_func_pass(_read_directly, opt_level=0)
"""The pass that leaves out the marked copies of functions of plain loops."""
