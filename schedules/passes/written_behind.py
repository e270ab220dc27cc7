"""Rows that are written while the next ones are computed: memory has something to do meanwhile.

A softmax beyond the caches computes exponentials, for which memory waits, and then writes, for which the core
waits. TVM's primitives cannot take a loop of one row and a loop of the row before together. A schedule marks
the loop over rows, the pass over a row that computes and the one that writes::

    for row: A(row); for v: compute(row, v); B(row); for v: write(row, v)

Of each chunk of so many rows, which a thread takes one after the other, becomes::

    A(0); for v: compute(0, v); B(0)
    for row from 1 on:
        what B(row - 1) found is kept; A(row)
        for v: write(row - 1, v); compute(row, v)
        B(row)
    for v: write(last, v)

Vectors that are computed to be written take the places of those that have just been written. Software
pipelining: Lam, "Software Pipelining: An Effective Scheduling Technique for VLIW Machines", 1988.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod
from typing import Any

import tvm
from tvm import s_tir, sym, tirx
from tvm.ir import TensorLoad
from tvm_ffi import structural_map, structural_walk

from .streaming import elements_before
from ..restatement import replaced, whole, with_marked, without_mark

BEHIND_MARK = "tunesmith.written_behind"
"""Annotation of a loop over rows: how many of them a thread takes one after the other."""

COMPUTING_MARK = "tunesmith.computing"
"""Annotation of a loop in it, over the vectors of a row: it computes while the row before is written."""

WRITING_MARK = "tunesmith.writing"
"""Annotation of a loop in it, over the vectors of a row: the one that writes."""

# What is found of a row, such as its largest element and its sum, is copied; more is a row.
_MOST_COPIED = 16


def write_behind(sch: s_tir.Schedule, rows: Any, computing: Any, writing: Any, chunk: int) -> None:
    """Mark a loop over rows, and two over a row's vectors in it, to be taken in chunks of so many rows."""
    sch.annotate(rows, BEHIND_MARK, chunk)
    sch.annotate(computing, COMPUTING_MARK, 1)
    sch.annotate(writing, WRITING_MARK, 1)


@dataclass(frozen=True)
class _Row:
    """What is done for one row.

    Parameters
    ----------
    buffers : list
        The statements that allocate what is kept of a row.
    before, computing, after : list, For, list
        What finds all that is written, and of these the loop during which the row before is written.
    ends, writing : list, For
        What writes a row: single vectors, and a loop over those between.
    """

    buffers: list[Any]
    before: list[Any]
    computing: Any
    after: list[Any]
    ends: list[Any]
    writing: Any


def _found(loop: Any) -> _Row | None:
    """Take the body of a loop over rows apart; None where it is not as the marks say."""
    statements = list(loop.body) if isinstance(loop.body, tirx.SeqStmt) else [loop.body]
    buffers = [each for each in statements if isinstance(each, tirx.AllocBuffer)]
    steps = [each for each in statements if not isinstance(each, tirx.AllocBuffer)]
    kept = [each.buffer for each in buffers]
    written = len(steps)
    while written and not _stores_to(steps[written - 1], kept):
        written -= 1
    # What is left after whole vectors is marked too.
    computing = next((each for each in steps[:written] if _is_marked(each, COMPUTING_MARK)), None)
    writing = next((each for each in steps[written:] if _is_marked(each, WRITING_MARK)), None)
    if computing is None or writing is None:
        return None
    at = next(n for n, each in enumerate(steps) if each is computing)
    ends = [each for each in steps[written:] if each is not writing]
    return _Row(buffers, steps[:at], computing, steps[at + 1 : written], ends, writing)


def _size(buffer: Any) -> int:
    return prod(int(extent) for extent in buffer.shape)


def _is_marked(statement: Any, mark: str) -> bool:
    known = isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.SERIAL
    return known and mark in statement.annotations and isinstance(statement.extent, tirx.IntImm)


def _stores_to(statement: Any, buffers: Sequence[Any]) -> bool:
    """Tell whether a statement stores to one of these buffers."""
    found: list[bool] = []

    def note(buffer: Any) -> None:
        found.append(any(buffer.same_as(each) for each in buffers))

    structural_walk(statement, [(tirx.BufferStore, lambda store: note(store.buffer))])
    return any(found)


def _loaded(statements: Sequence[Any], buffers: Sequence[Any]) -> list[Any]:
    """Return the loads from one of these buffers."""
    loads: list[Any] = []
    for each in statements:
        structural_walk(each, [(TensorLoad, loads.append)])
    return [load for load in loads if any(load.source.same_as(each) for each in buffers)]


def _taken_behind(loop: Any) -> Any | None:
    """Return a marked loop over rows with each row written while the next is computed, or None."""
    row = _found(loop)
    if row is None:
        return None
    kept = [each.buffer for each in row.buffers]
    read = [each for each in kept if _loaded([*row.ends, row.writing], [each])]
    found = [each for each in read if _size(each) <= _MOST_COPIED]
    rows = [each for each in read if _size(each) > _MOST_COPIED]
    several = ceil(int(row.writing.extent) / int(row.computing.extent))
    if any(_stores_to(each, rows) for each in row.before) or not _is_ahead(row, rows, several):
        return None
    copies = {each: tirx.decl_buffer(each.shape, each.dtype, f"{each.name}_before") for each in found}
    number, part, later = loop.loop_var, tirx.Var("part", "int64"), tirx.Var("later", "int64")
    chunk, count = int(loop.annotations[BEHIND_MARK]), int(loop.extent)
    start = part * chunk
    rest = whole(chunk) if count % chunk == 0 else tirx.min(whole(chunk), count - start)

    def at(statements: Sequence[Any], place: Any) -> list[Any]:
        return [replaced(each, {number: place}) for each in statements]

    def written(statements: Sequence[Any]) -> list[Any]:
        """Return what writes a row, of which was found what is in the copies."""

        def copied(load: Any) -> Any:
            new = next((copies[each] for each in found if load.source.same_as(each)), None)
            return load if new is None else tirx.BufferLoad(new, load.indices)

        return [structural_map(each, [(TensorLoad, copied)]) for each in at(statements, start + later)]

    saved = [
        tirx.BufferStore(copies[each], tirx.BufferLoad(each, list(map(whole, place))), list(map(whole, place)))
        for each in found
        for place in product(*(range(int(extent)) for extent in each.shape))
    ]
    together, left_written, left_computed = _together(row, several)
    following = start + later + 1
    both = tirx.SeqStmt([*written([together.writing]), *at([together.computing], following)])
    both = tirx.For(together.step, whole(0), whole(together.count), tirx.ForKind.SERIAL, both)
    body = [
        *saved,
        *at(row.before, following),
        *written([*row.ends, *left_written]),
        both,
        *at([*left_computed, *row.after], following),
    ]
    pipelined = tirx.For(later, whole(0), rest - 1, tirx.ForKind.SERIAL, tirx.SeqStmt(body))
    alone = [*row.before, without_mark(row.computing, COMPUTING_MARK), *row.after]
    last = [*row.ends, without_mark(row.writing, WRITING_MARK)]
    of_chunk = [
        *row.buffers,
        *map(tirx.AllocBuffer, copies.values()),
        *at(alone, start),
        pipelined,
        *at(last, start + rest - 1),
    ]
    others = {key: value for key, value in loop.annotations.items() if key != BEHIND_MARK}
    return tirx.For(
        part, whole(0), whole(ceil(count / chunk)), loop.kind, tirx.SeqStmt(of_chunk), annotations=others
    )


@dataclass(frozen=True)
class _Together:
    """An iteration in which a row's vectors are computed, and as many of another's are written before."""

    step: Any
    count: int
    writing: Any
    computing: Any


def _together(row: _Row, several: int) -> tuple[_Together, list[Any], list[Any]]:
    """Return the iterations that the two loops have together, and what is left of each."""
    writing, computing, step = row.writing, row.computing, tirx.Var("together", "int64")
    count = min(int(computing.extent), int(writing.extent) // several)
    written = [replaced(writing.body, {writing.loop_var: step * several + n}) for n in range(several)]
    computed = replaced(computing.body, {computing.loop_var: step})
    together = _Together(step, count, tirx.SeqStmt(written) if several > 1 else written[0], computed)
    return together, _from(writing, count * several), _from(computing, count)


def _from(loop: Any, first: int) -> list[Any]:
    """Return a loop from an iteration on, if any is left."""
    left = int(loop.extent) - first
    if not left:
        return []
    body = replaced(loop.body, {loop.loop_var: loop.loop_var + first})
    return [tirx.For(loop.loop_var, whole(0), whole(left), loop.kind, body)]


def _is_ahead(row: _Row, rows: Sequence[Any], several: int) -> bool:
    """Tell whether what is written of a row is read before the next row's vectors take its place.

    Of each buffer that is a row, iteration for iteration, writing reads no less far than computing stores.
    """
    analyzer = sym.Analyzer()
    stores: list[Any] = []
    structural_walk(row.computing, [(tirx.BufferStore, stores.append)])
    zero = {loop.loop_var: whole(0) for loop in _loops([row.computing, row.writing])}

    def moved(index: Any, step: Any) -> Any:
        """Return how far an index moves in an iteration."""
        at = [analyzer.simplify(replaced(index, {**zero, step: whole(n)})) for n in (0, 1)]
        return analyzer.simplify(at[1] - at[0])

    def follows(load: Any, store: Any) -> bool:
        read, stored = elements_before(load.source, load.indices), elements_before(store.buffer, store.indices)
        further = several * moved(read, row.writing.loop_var) - moved(stored, row.computing.loop_var)
        ahead = replaced(read, zero) - replaced(stored, zero)
        return bool(analyzer.can_prove(further >= 0) and analyzer.can_prove(ahead >= 0))

    def is_ahead(buffer: Any) -> bool:
        to = [store for store in stores if store.buffer.same_as(buffer)]
        return bool(to) and all(follows(load, s) for load in _loaded([row.writing], [buffer]) for s in to)

    return all(map(is_ahead, rows))


def _loops(statements: Sequence[Any]) -> list[Any]:
    loops: list[Any] = []
    for each in statements:
        structural_walk(each, [(tirx.For, loops.append)])
    return loops


def _write_behind(func: Any, _mod: Any, _context: Any) -> Any:
    found: list[bool] = []
    structural_walk(func.body, [(tirx.For, lambda loop: found.append(BEHIND_MARK in loop.annotations))])
    if not any(found):
        return func
    changed = with_marked(func, BEHIND_MARK, _taken_behind)
    # Statements of a row are there twice, with their loops and buffers.
    return tirx.transform.ConvertSSA()(tvm.IRModule({"main": changed}))["main"]


write_rows_behind = tirx.transform.prim_func_pass(_write_behind, opt_level=0)
"""The pass that has rows of functions of plain loops written while the next are computed, where marked."""
