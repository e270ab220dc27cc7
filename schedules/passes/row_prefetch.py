"""Fetching the next rows while these are computed: a row that is read twice is waited for once.

What prefetches lines by itself, the CPU, goes no further than to the end of a page, and rows of 4 KiB are
pages: the first pass over each waits for memory, and the others leave memory waiting. So the last pass that
reads a row's input, of those that compute exponentials if any does, also asks for the same elements of the
rows after the next. What is computed element by element is read in one loop, which asks for later vectors of
its own. TVM's primitives cannot say that: a schedule marks the loop over rows and the pass, and these get
their prefetches when blocks have become plain loops (`loop_partition`). A prefetch of what lies beyond the
array does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx import ForKind
from tvm_ffi import structural_map, structural_walk

from ...machine.facts import line_elements
from ..expressions import index_variables, loads_of, stores_of
from ..restatement import replaced, without_mark

AHEAD_MARK = "tunesmith.rows_ahead"
"""Annotation of a loop over rows: how many iterations later what is fetched is read."""

FETCHING_MARK = "tunesmith.fetching"
"""Annotation of a loop in it, over the vectors of a row: here the same elements of later rows are fetched."""

# Operands of LLVM's intrinsic: to read, into L2, data. What L1 fetches takes the places of what it waits for.
# With prefetches into L2, on 2 threads of a Zen 4, layer_norm of 4096 x 4096 takes 0.71 of the time, rms_norm
# of 16384 x 1024 0.72, softmax of 4096 x 8192 0.80, 12 rows by a transposed 4096 x 4096 0.81; tiles of 8 rows
# and more by panels 1.00.
_READ, _INTO_L2, _DATA = 0, 2, 1


def fetch_ahead(sch: s_tir.Schedule, rows: Any, steps: Any, ahead: int) -> None:
    """Mark a loop over rows, and one over a row's vectors in it, for fetching so many iterations ahead.

    They may be the same loop.
    """
    sch.annotate(rows, AHEAD_MARK, ahead)
    sch.annotate(steps, FETCHING_MARK, 1)


def _with_fetches(outer: Any, inputs: list[Any]) -> Any:
    """Return a loop over rows whose marked loops fetch what they will read."""
    if AHEAD_MARK not in outer.annotations:
        return outer
    later = {outer.loop_var: outer.loop_var + int(outer.annotations[AHEAD_MARK])}

    def fetching(loop: Any) -> Any:
        if FETCHING_MARK not in loop.annotations:
            return loop
        lines = [(line, index_variables(line.indices)) for line in _lines(loop, inputs)]
        # What is the same in some loop around, as a scale of all rows, has been read before.
        around = {outer.loop_var, loop.loop_var}.union(*(variables for _, variables in lines))
        fetches = [fetch(replaced(line, later)) for line, variables in lines if variables == around]
        return without_mark(
            loop, FETCHING_MARK, body=tirx.SeqStmt([*fetches, loop.body]) if fetches else None
        )

    return without_mark(structural_map(outer, [(tirx.For, fetching)]), AHEAD_MARK)


def _lines(loop: Any, inputs: list[Any]) -> Iterator[Any]:
    """Yield what an iteration of a loop reads of inputs, the first element of each line of the cache."""
    seen: list[Any] = []
    for load in loads_of(loop.body):
        known = any(tvm_ffi.structural_equal(load, other) for other in seen)
        # Where later iterations find their place, as rows that are gathered, may not be looked up yet.
        looked_up = any(loads_of(index) for index in load.indices)
        if known or looked_up or not any(load.source.same_as(each) for each in inputs):
            continue
        seen.append(load)
        yield from lines_of(load, loop)


def lines_of(load: Any, loop: Any) -> Iterator[Any]:
    """Yield the first element of each line of the cache that an iteration of a loop reads by a load."""
    inner: list[Any] = []
    structural_walk(loop.body, [(tirx.For, inner.append)])
    line = line_elements(str(load.source.dtype))
    along = [each for each in inner if each.loop_var in index_variables(load.indices)]
    strides = [line if each.kind == ForKind.VECTORIZED else 1 for each in along]
    for place in product(*(range(0, int(i.extent), s) for i, s in zip(along, strides, strict=True))):
        at = {each.loop_var: tirx.IntImm("int64", p) for each, p in zip(along, place, strict=True)}
        yield replaced(load, at)


def fetch(element: Any) -> Any:
    """Return the statement that asks for an element's line, or a vector's first, into L2."""
    *others, last = element.indices
    first = last.base if isinstance(last, tirx.Ramp) else last
    place = tirx.address_of(tirx.BufferLoad(element.source, [*others, first]))
    return tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", place, _READ, _INTO_L2, _DATA))


def _fetch_rows(func: Any, _mod: Any, _context: Any) -> Any:
    written = [store.buffer for store in stores_of(func.body)]
    inputs = [p for p in func.params if not any(p.same_as(each) for each in written)]
    return func.with_body(structural_map(func.body, [(tirx.For, lambda loop: _with_fetches(loop, inputs))]))


fetch_rows = tirx.transform.prim_func_pass(_fetch_rows, opt_level=0)
"""The pass that gives the marked loops of functions of plain loops their prefetches."""
