"""Squares of a copy that swaps two axes, transposed in registers where axes end within some as well.

TVM's ``tensorize`` wants squares without conditions. Here the loops of a square are marked, and become
vectors (`transposition`) when blocks have become plain loops (`loop_partition`). Where the source's lines end
within a square it reaches back, and some elements are written twice, with the same value. Where there are
fewer lines, their filling is in their place::

    for k < 16, j < 16:  # marked
        if 384 + k < 394:                                   start = min(384, 394 - 16)
            panel[384 + k, j] =                             lines = b[j, start : start + 16] if j < 5 else 0
                b[j, 384 + k] if j < 5 else 0         ->    panel[start : start + 16, :] = transposed(lines)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.sym import detect_linear_equation

from ..expressions import conjunction, index_variables, is_along, is_choice, is_one, is_zero
from ..restatement import replaced, with_marked
from ..transposition import moved, transposed

SQUARE_MARK = "tunesmith.square"
"""Annotation of the loop over the lines of the target, in which that over their elements lies."""


def mark_square(sch: s_tir.Schedule, row: Any) -> None:
    """Mark the outer one of a square's two loops; lines of the source are no shorter than a square."""
    sch.annotate(row, SQUARE_MARK, 1)


def _turn(func: Any, _mod: Any, _context: Any) -> Any:
    return with_marked(func, SQUARE_MARK, _in_registers)


turn_squares = tirx.transform.prim_func_pass(_turn, opt_level=0)
"""The pass that transposes the marked squares of functions of plain loops."""


def _in_registers(row: Any) -> Any | None:
    """Return the statements that transpose a square; None where the loops are another copy."""
    column, lanes = row.body, int(row.extent)
    if not isinstance(column, tirx.For) or int(column.extent) != lanes:
        return None
    store, conditions = column.body, []
    if isinstance(store, tirx.IfThenElse) and store.else_case is None:
        conditions, store = [*conjunction(store.condition)], store.then_case
    outside = [c for c in conditions if row.loop_var not in index_variables([c])]
    back = _reach([c for c in conditions if row.loop_var in index_variables([c])], row.loop_var, lanes)
    if back is None or not isinstance(store, tirx.BufferStore) or column.loop_var in index_variables(outside):
        return None
    condition, value, filling = store.value.args if is_choice(store.value) else (None, store.value, None)
    load = value.value if isinstance(value, tirx.Cast) else value
    if not isinstance(load, TensorLoad) or row.loop_var in index_variables([condition]):
        return None
    if condition is not None and not is_zero(filling):
        return None
    if not is_along(store.indices, column.loop_var) or not is_along(load.indices, row.loop_var):
        return None

    def at(line: int, element: int) -> dict[Any, Any]:
        return {row.loop_var: row.min - back + line, column.loop_var: column.min + element}

    steps, rows = transposed([_line(load, condition, at(0, n), lanes) for n in range(lanes)])
    targets = [[replaced(index, at(n, 0)) for index in store.indices] for n in range(lanes)]
    stored = [moved(row, str(load.source.dtype)).astype(f"{store.buffer.dtype}x{lanes}") for row in rows]
    square = tirx.SeqStmt([*steps, *map(store.buffer.vstore, targets, stored)])
    return tirx.IfThenElse(tirx.all(*outside), square, None) if outside else square


def _line(load: Any, condition: Any | None, at: Mapping[Any, Any], lanes: int) -> Any:
    """Return a line of the source, or zeros where a condition says that it is not there."""
    found = moved(load.source.vload([replaced(i, at) for i in load.indices], f"{load.source.dtype}x{lanes}"))
    if condition is None:
        return found
    zeros = tirx.Broadcast(tirx.const(0, str(found.ty.dtype).partition("x")[0]), lanes)
    return tirx.if_then_else(replaced(condition, at), found, zeros)


def _reach(conditions: Sequence[Any], variable: Any, lanes: int) -> Any | None:
    """Return how far a square reaches back, by the conditions for its rows; None of others than one bound."""
    if not conditions:
        return 0
    (condition, *others) = conditions
    if others or not isinstance(condition, tirx.LT) or variable in index_variables([condition.b]):
        return None
    parts = detect_linear_equation(condition.a, [variable])
    if not parts or not is_one(parts[0]):
        return None
    return tirx.max(parts[1] + lanes - condition.b, 0)
