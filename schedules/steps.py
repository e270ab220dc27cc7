"""A schedule cut into the steps that change the loops, each as a line of Python that names them.

A trace says ``l8, l9 = sch.split(loop=l5, factors=[None, 8], preserve_unit_iters=True, ...)``. Here the same
step reads ``i_0, i_1 = sch.split(i, factors=[None, 8])``: loops and blocks have the names that the loop nest
shows, and what is the default anyway is left out. Look-ups are no steps.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from .algorithms import in_form
from .loop_nest import loop_nest
from .primitives import in_words
from .trace_lines import trace_lines

# Unchanged lines shown around each change.
_CONTEXT = 2
# Parameters that need no name: the primitive's own says what they are.
_SUBJECTS = ("block", "loop")


@dataclass(frozen=True)
class ScheduleStep:
    """One step of a schedule.

    Parameters
    ----------
    primitive : str
        The method of `tvm.s_tir.Schedule`.
    code : str
        The call in Python; several lines where the same primitive was called several times in a row.
    words : str
        What it does.
    schedule : Schedule
        A schedule of its own that ends with this step.
    """

    primitive: str
    code: str
    words: str
    schedule: s_tir.Schedule

    @property
    def nest(self) -> str:
        """The loop nest after this step."""
        return loop_nest(self.schedule.mod["main"])


def schedule_steps(schedule: s_tir.Schedule, func: Any) -> list[ScheduleStep]:
    """Cut a schedule into steps, each of which changes the loops.

    Calls of one primitive that follow each other are one step.

    Parameters
    ----------
    schedule : Schedule
        A schedule with its trace.
    func : PrimFunc
        The unscheduled function that it began with.
    """
    steps: list[ScheduleStep] = []
    before, without_effect = func, ""
    for primitive, code, after in _replayed(schedule.trace.simplified(False), func):
        now = after.mod["main"]
        if tvm_ffi.structural_equal(before, now):
            # Fusing one loop renames it: the next line needs that one.
            if loop_nest(before) != loop_nest(now):
                without_effect += f"{code}\n"
        else:
            step = ScheduleStep(primitive, without_effect + code, in_words(code), after)
            _append(steps, step)
            without_effect = ""
        before = now
    return steps


def _append(steps: list[ScheduleStep], step: ScheduleStep) -> None:
    """Add a step, or make it part of the one before."""
    if steps and steps[-1].primitive == step.primitive:
        last = steps.pop()
        step = replace(step, code=f"{last.code}\n{step.code}", words=last.words)
    steps.append(step)


def _replayed(trace: s_tir.Trace, func: Any) -> Iterator[tuple[str, str, s_tir.Schedule]]:
    """Yield for each instruction its primitive, its Python, and a schedule that ends with it."""
    instructions, lines = trace.insts, trace_lines(trace)
    decisions = dict(trace.decisions.items())
    names: dict[str, ast.expr] = {}
    for count, line in enumerate(lines, start=1):
        # Made anew each time: where a note is at its root, TVM changes the function itself.
        schedule = s_tir.Schedule(in_form(func, "\n".join(lines[:count])))
        done = instructions[:count]
        chosen = {each: decisions[each] for each in done if each in decisions}
        s_tir.Trace(done, chosen).apply_to_schedule(schedule, remove_postproc=False)
        statement = ast.parse(line).body[0]
        if isinstance(statement, ast.Assign):
            values = [_value(schedule, each) for each in schedule.trace.insts[-1].outputs]
            names |= zip(_targets(statement), values, strict=True)
        yield _called(line), _code(_Readable(names).visit(statement)), schedule


def _called(line: str) -> str:
    return line.partition("sch.")[2].partition("(")[0]


def _code(statement: ast.stmt) -> str:
    text = ast.unparse(statement)
    return text if '"' in text else text.replace("'", '"')


def _targets(statement: ast.Assign) -> list[str]:
    return [node.id for node in ast.walk(statement.targets[0]) if isinstance(node, ast.Name)]


def _value(schedule: s_tir.Schedule, variable: Any) -> ast.expr:
    """Write what a variable of the trace stands for: a loop's name, a block's as text, a number."""
    found = schedule.get(variable)
    if isinstance(found, tirx.For):
        return ast.Name(str(found.loop_var.name))
    return ast.Constant(str(found.name_hint) if hasattr(found, "name_hint") else int(found))


class _Readable(ast.NodeTransformer):
    """Puts names in the place of a trace's variables, and leaves out what goes without saying."""

    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Name a loop or block; where a block is assigned, without quotes."""
        found = self._names.get(node.id, node)
        if isinstance(node.ctx, ast.Store) and isinstance(found, ast.Constant):
            return ast.Name(str(found.value))
        return found

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Leave out defaults, and the types of numbers."""
        function = node.func
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            return node
        if function.value.id == "T" and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            return node.args[0]
        node.args = [self.visit(each) for each in node.args]
        method = getattr(s_tir.Schedule, function.attr, None)
        known: Mapping[str, Any] = inspect.signature(method).parameters if method else {}
        kept = [each for each in node.keywords if not _is_default(each, known)]
        for each in kept:
            each.value = self.visit(each.value)
        if kept and kept[0].arg in _SUBJECTS:
            node.args.append(kept.pop(0).value)
        node.keywords = kept
        return node


def _is_default(given: ast.keyword, parameters: Mapping[str, Any]) -> bool:
    if given.arg is None or given.arg not in parameters:
        return False
    try:
        return bool(ast.literal_eval(given.value) == parameters[given.arg].default)
    except ValueError:
        return False


def changed_lines(before: str, after: str) -> list[str]:
    """Write what changed between two loop nests: lines gone with ``-``, new ones with ``+``.

    A line that is only indented otherwise is the same line: a loop put around others is one new line.
    """
    old, new = before.splitlines(), after.splitlines()
    matcher = SequenceMatcher(None, [o.strip() for o in old], [n.strip() for n in new], autojunk=False)
    lines: list[str] = []
    for nth, group in enumerate(matcher.get_grouped_opcodes(_CONTEXT)):
        lines += ["  ..."] if nth else []
        for kind, i0, i1, j0, j1 in group:
            lines += _marked("  ", new[j0:j1]) if kind == "equal" else _marked("- ", old[i0:i1])
            lines += [] if kind == "equal" else _marked("+ ", new[j0:j1])
    return lines


def _marked(mark: str, lines: Sequence[str]) -> list[str]:
    return [mark + line for line in lines]
