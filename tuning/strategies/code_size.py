"""How much code a sketch is: what decides how long LLVM takes for it, and how long it runs.

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

# What an instruction adds to the time of a build, and each execution of one to that of all runs.
_BUILD_S, _RUNS_S = 1e-3, 5e-9


class Code(NamedTuple):
    """A statement after unrolling.

    Parameters
    ----------
    steps : int or None
        Stores, as TVM counts them against the limit of a pragma; None where a loop is left in it.
    instructions : int
        Vector instructions that store, once through the code.
    longest : int
        The same of its longest part without a loop.
    executed : int
        The same as often as they are executed.
    """

    steps: int | None
    instructions: int
    longest: int
    executed: int

    @property
    def trial_seconds(self) -> float:
        """What it adds to the time of a trial, at a guess: building it, and all its runs."""
        return _BUILD_S * self.instructions + _RUNS_S * self.executed


def code_of(func: Any, lanes: int) -> Code:
    """Count the storing vector instructions of a scheduled function.

    Parameters
    ----------
    func : PrimFunc
        Scheduled; loops carry TVM's pragmas for unrolling.
    lanes : int
        Elements of a vector register.
    """
    return _code(func.body, 0, lanes)


def _code(node: Any, max_step: int, lanes: int) -> Code:
    """Count a statement's code; ``max_step`` is what the pragmas around it allow to unroll."""
    if isinstance(node, tirx.For):
        return _loop(node, max_step, lanes)
    if isinstance(node, tirx.SeqStmt):
        parts = [_code(part, max_step, lanes) for part in node.seq]
        loops = any(part.steps is None for part in parts)
        return Code(
            None if loops else sum(part.steps or 0 for part in parts),
            sum(part.instructions for part in parts),
            max(part.longest for part in parts) if loops else sum(part.instructions for part in parts),
            sum(part.executed for part in parts),
        )
    if isinstance(node, s_tir.SBlockRealize):
        return _code(node.block.body, int(node.block.annotations.get(_MAX_STEP, max_step)), lanes)
    if isinstance(node, tirx.IfThenElse):
        return _code(node.then_case, max_step, lanes)
    return Code(1, 1, 1, 1)


def _loop(loop: Any, max_step: int, lanes: int) -> Code:
    max_step = int(loop.annotations.get(_MAX_STEP, max_step))
    body = _code(loop.body, max_step, lanes)
    if not isinstance(loop.extent, tirx.IntImm):
        return Code(None, body.instructions, body.longest, body.executed)
    extent = int(loop.extent)
    if loop.kind == tirx.ForKind.VECTORIZED:
        times = ceil(extent / lanes)
        instructions = body.instructions * times
        return Code(body.steps, instructions, max(body.longest, instructions), body.executed * times)
    executed = body.executed * extent
    within = body.steps is not None and body.steps * extent <= max_step
    unrolled = loop.kind == tirx.ForKind.UNROLLED or (loop.kind == tirx.ForKind.SERIAL and within)
    if body.steps is None or not unrolled:
        return Code(None, body.instructions, body.longest, executed)
    instructions = body.instructions * extent
    return Code(body.steps * extent, instructions, max(body.longest, instructions), executed)
