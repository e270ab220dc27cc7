"""How long the straight-line code of a sketch is: what decides how long LLVM takes for it.

LLVM's instruction schedulers take time that grows with the square of a basic block: a sketch that is unrolled
into thousands of instructions takes 2 s to compile where others take 0.1 s. Such code leaves the caches of
decoded instructions as well, and is seldom the fastest.

References
----------
apache/tvm, ``src/tirx/transform/unroll_loop.cc`` (which loops TVM unrolls).
"""

from __future__ import annotations

from math import ceil
from typing import Any, NamedTuple

from tvm import s_tir, tirx

_MAX_STEP = "pragma_auto_unroll_max_step"


class _Code(NamedTuple):
    """A statement after unrolling.

    Parameters
    ----------
    steps : int or None
        Stores, as TVM counts them against the limit of a pragma; None where a loop is left in it.
    instructions : int
        Vector instructions that store, once through the code.
    longest : int
        The same of its longest part without a loop.
    """

    steps: int | None
    instructions: int
    longest: int


def longest_block(func: Any, lanes: int) -> int:
    """Count the storing vector instructions of the longest straight-line part of a scheduled function.

    Parameters
    ----------
    func : PrimFunc
        Scheduled; loops carry TVM's pragmas for unrolling.
    lanes : int
        Elements of a vector register.
    """
    return _code(func.body, 0, lanes).longest


def _code(node: Any, max_step: int, lanes: int) -> _Code:
    """Count a statement's code; ``max_step`` is what the pragmas around it allow to unroll."""
    if isinstance(node, tirx.For):
        return _loop(node, max_step, lanes)
    if isinstance(node, tirx.SeqStmt):
        parts = [_code(part, max_step, lanes) for part in node.seq]
        loops = any(part.steps is None for part in parts)
        return _Code(
            None if loops else sum(part.steps or 0 for part in parts),
            sum(part.instructions for part in parts),
            max(part.longest for part in parts) if loops else sum(part.instructions for part in parts),
        )
    if isinstance(node, s_tir.SBlockRealize):
        return _code(node.block.body, int(node.block.annotations.get(_MAX_STEP, max_step)), lanes)
    if isinstance(node, tirx.IfThenElse):
        return _code(node.then_case, max_step, lanes)
    return _Code(1, 1, 1)


def _loop(loop: Any, max_step: int, lanes: int) -> _Code:
    max_step = int(loop.annotations.get(_MAX_STEP, max_step))
    body = _code(loop.body, max_step, lanes)
    if not isinstance(loop.extent, tirx.IntImm):
        return _Code(None, body.instructions, body.longest)
    extent = int(loop.extent)
    if loop.kind == tirx.ForKind.VECTORIZED:
        instructions = body.instructions * ceil(extent / lanes)
        return _Code(body.steps, instructions, max(body.longest, instructions))
    within = body.steps is not None and body.steps * extent <= max_step
    unrolled = loop.kind == tirx.ForKind.UNROLLED or (loop.kind == tirx.ForKind.SERIAL and within)
    if body.steps is None or not unrolled:
        return _Code(None, body.instructions, body.longest)
    instructions = body.instructions * extent
    return _Code(body.steps * extent, instructions, max(body.longest, instructions))
