"""Loops that need not run where a flag is set: what they compute is of no use then, or there already.

Attention has no use for maxima of little scores (`attention_bound`). Its function says so for each element,
``0 if little[h] else score[h, i, k]``, and a schedule marks the loops: the question is asked once, before
each, and it runs for the other case only. TVM's primitives cannot say that: for them each element is
computed. It is done when blocks have become plain loops (`loop_partition`).
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx
from tvm.ir import Call
from tvm_ffi import structural_equal, structural_map, structural_walk

from ..expressions import is_choice, loads_of
from ..restatement import without_mark

NEEDLESS_MARK = "tunesmith.needless_where"
"""Annotation of a loop: the name of the buffer of the flag under which nobody reads what it computes."""


def run_unless(sch: s_tir.Schedule, loop: Any, flag: str) -> None:
    """Mark a loop that need not run where an element of a buffer is set, by the buffer's name.

    What the loop would write then is not read, or is there. The function asks for the flag somewhere, in a
    choice whose condition does not change in this loop; where it does in this loop, the choice is made.
    """
    sch.annotate(loop, NEEDLESS_MARK, flag)


def _skip(func: Any, _mod: Any, _context: Any) -> Any:
    flags: dict[str, Any] = {}

    def find(call: Any) -> None:
        condition = call.args[0] if is_choice(call) else None
        if condition is not None and len(loads := loads_of(condition)) == 1:
            flags.setdefault(str(loads[0].source.name), condition)

    structural_walk(func.body, [(Call, find)])

    def skipping(loop: Any) -> Any:
        if NEEDLESS_MARK not in loop.annotations:
            return loop
        flag = flags[str(loop.annotations[NEEDLESS_MARK])]

        def chosen(call: Any) -> Any:
            return call.args[2] if is_choice(call) and structural_equal(call.args[0], flag) else call

        body = structural_map(loop.body, [(Call, chosen)])
        return tirx.IfThenElse(tirx.Not(flag), without_mark(loop, NEEDLESS_MARK, body=body), None)

    return func.with_body(structural_map(func.body, [(tirx.For, skipping)]))


skip_needless_loops = tirx.transform.prim_func_pass(_skip, opt_level=0)
"""The pass that asks before the marked loops of functions of plain loops."""
