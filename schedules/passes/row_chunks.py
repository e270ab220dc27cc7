"""Rows that a thread takes one after the other: what a row leaves behind, the next one finds.

A parallel loop says nothing of which iterations follow each other on a thread. Of a marked one::

    for row (parallel): A(row)

it becomes known for so many rows::

    for part (parallel): for row < chunk (serial, in order): A(part * chunk + row)

The last part has fewer where the chunk does not divide the rows.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from tvm import s_tir, tirx

from ..restatement import replaced, whole, with_marked

CHUNKS = (1, 8, 16, 32, 64)
"""How many rows a chunk may have.

In turns in one process, on 2 threads of a Zen 4, chunks of 8 take 0.01 to 0.05 more of the time of a softmax
than of 32; of 64 as long.
"""

_CHUNKS_A_CORE = 4

CHUNK_MARK = "tunesmith.chunk"
"""Annotation of a loop over rows: how many of them a thread takes one after the other."""

IN_ORDER_MARK = "tunesmith.in_order"
"""Annotation of the loop over those rows."""


def default_chunk(rows: int, cores: int) -> int:
    """Choose how many rows a thread takes one after the other; 1 where they are too few to share evenly."""
    return max(count for count in CHUNKS if count == 1 or count * cores * _CHUNKS_A_CORE <= rows)


def take_in_order(sch: s_tir.Schedule, rows: Any, chunk: int) -> None:
    """Mark a loop over rows to be taken in chunks of so many."""
    sch.annotate(rows, CHUNK_MARK, chunk)


def _chunked(loop: Any) -> Any:
    """Return a marked loop over rows as one over chunks, and one over the rows of each."""
    chunk, count = int(loop.annotations[CHUNK_MARK]), int(loop.extent)
    part, row = tirx.Var("part", "int64"), tirx.Var("row", "int64")
    rows = whole(chunk) if count % chunk == 0 else tirx.min(whole(chunk), count - part * chunk)
    others = {key: value for key, value in loop.annotations.items() if key != CHUNK_MARK}
    body = replaced(loop.body, {loop.loop_var: part * chunk + row})
    in_order = tirx.For(
        row, whole(0), rows, tirx.ForKind.SERIAL, body, annotations={**others, IN_ORDER_MARK: 1}
    )
    return tirx.For(part, whole(0), whole(ceil(count / chunk)), loop.kind, in_order)


def _chunk_rows(func: Any, _mod: Any, _context: Any) -> Any:
    return with_marked(func, CHUNK_MARK, _chunked)


chunk_rows = tirx.transform.prim_func_pass(_chunk_rows, opt_level=0)
"""The pass that takes the marked loops of functions of plain loops apart."""
