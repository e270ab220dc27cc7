"""A function's loops and blocks as short text, in the manner of Halide's print_loop_nest.

::

    matmul_local: float32[64, 64] in local
    parallel j_0 in range(2)
      for k in range(64)
        vectorized j_1 in range(32)
          matmul_update: matmul_local, A, B -> matmul_local, reduced over v_k
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from tvm import s_tir, tirx

_KINDS = {
    tirx.ForKind.SERIAL: "for",
    tirx.ForKind.PARALLEL: "parallel",
    tirx.ForKind.VECTORIZED: "vectorized",
    tirx.ForKind.UNROLLED: "unrolled",
}
_NESTED = (tirx.For, s_tir.SBlockRealize, tirx.IfThenElse, tirx.While, tirx.SeqStmt)
# Of many statements in a row so many are written at the beginning, and at the end.
_ENDS = 2
_INDENT = "  "
_TYPED_NUMBER = re.compile(r"T\.(?:int|uint|float|bool)\d*\(([^()]*)\)")


def loop_nest(func: Any) -> str:
    """Write the loops of a PrimFunc with their kinds and extents, and what each block reads and writes."""
    return "\n".join(_lines(func.body))


def _lines(node: Any) -> Iterator[str]:
    if isinstance(node, tirx.SeqStmt):
        for nested, entries in groupby(node.seq, lambda entry: isinstance(entry, _NESTED)):
            lines = [line for entry in entries for line in _lines(entry)]
            yield from lines if nested else _shortened(lines)
    elif isinstance(node, tirx.For):
        yield _loop(node)
        yield from _inside(node.body)
    elif isinstance(node, s_tir.SBlockRealize):
        yield from _block(node)
    elif isinstance(node, tirx.IfThenElse):
        yield f"if {_plain(node.condition)}"
        yield from _inside(node.then_case)
        if node.else_case is not None:
            yield "else"
            yield from _inside(node.else_case)
    elif isinstance(node, tirx.While):
        yield f"while {_plain(node.condition)}"
        yield from _inside(node.body)
    else:
        yield _plain(str(node).rstrip().split("\n")[-1])


def _shortened(lines: Sequence[str]) -> Iterator[str]:
    """Leave out the middle of many statements in a row, as those of a square that is transposed."""
    if len(lines) <= 3 * _ENDS:
        yield from lines
        return
    yield from lines[:_ENDS]
    yield f"... {len(lines) - 2 * _ENDS} more"
    yield from lines[-_ENDS:]


def _inside(node: Any) -> Iterator[str]:
    return (_INDENT + line for line in _lines(node))


def _loop(loop: Any) -> str:
    kind = _KINDS.get(loop.kind)
    if kind is None:
        kind = str(loop.thread_binding.thread_tag)
    start = "" if _plain(loop.min) == "0" else f"{_plain(loop.min)}, {_plain(loop.min)} + "
    notes = ", ".join(f"{name}={value}" for name, value in loop.annotations.items())
    return f"{kind} {loop.loop_var.name} in range({start}{_plain(loop.extent)})" + (
        f"  # {notes}" if notes else ""
    )


def _block(realize: Any) -> Iterator[str]:
    """Write a block; the one around all others adds nothing but its buffers."""
    block = realize.block
    for buffer in block.alloc_buffers:
        extents = ", ".join(_plain(extent) for extent in buffer.shape)
        yield f"{buffer.name}: {buffer.dtype}[{extents}] in {buffer.scope()}"
    if not block.iter_vars:
        yield from _lines(block.body)
        return
    if _plain(realize.predicate) != "True":
        yield f"where {_plain(realize.predicate)}"
    reads, writes = (
        ", ".join(dict.fromkeys(str(r.source.name) for r in g)) for g in (block.reads, block.writes)
    )
    reduced = [str(v.var.name) for v in block.iter_vars if v.iter_type == tirx.IterVar.CommReduce]
    note = f", reduced over {', '.join(reduced)}" if reduced else ""
    yield f"{block.name_hint}: {f'{reads} -> ' if reads else 'sets '}{writes}{note}"
    if not isinstance(block.body, tirx.BufferStore):
        yield from _inside(block.body)


def _plain(expression: Any) -> str:
    """Write an expression without the types of its numbers."""
    return _TYPED_NUMBER.sub(r"\1", str(expression))
