"""Which of a model's functions to tune: by number, by name, by the operations of a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from ...machine.errors import InputError
from ..extraction import ModelWorkload

ALL = "all"
"""What stands for every task."""

_RANGE = re.compile(r"(\d+)?\s*-\s*(\d+)?|(\d+)")
# Relax puts it before the names of the operators that it fused.
_FUSED = "fused_"


def selected(
    found: Sequence[ModelWorkload], tasks: str = ALL, functions: str | None = None, min_flops: float = 0.0
) -> list[ModelWorkload]:
    """Return the functions of a model that every filter lets through.

    Parameters
    ----------
    found : sequence of ModelWorkload
        As `extract_workloads` returns them.
    tasks : str
        ``all``, or their numbers: ``0``, ``0,2``, ``3-5``, ``-3`` (up to 3) or ``4-`` (from 4).
    functions : str, optional
        Patterns of names such as ``conv2d*,matmul*``; ``fused_`` before a name may be left out.
    min_flops : float
        The least operations of one call.

    Raises
    ------
    InputError
        A filter has another form, or nothing is left.
    """
    if not found:
        raise InputError("the model has no function that can be tuned: none computes on tensors alone")
    if not min_flops >= 0:
        raise InputError(f"min_flops is a number of operations, 0 or more: min_flops={min_flops:g}")
    numbers = set(numbered(tasks, len(found)))
    patterns = None if functions is None else [p.strip() for p in functions.split(",") if p.strip()]
    chosen = [
        each
        for each in found
        if each.task in numbers
        and (patterns is None or any(_named(each, pattern) for pattern in patterns))
        and each.workload.flops >= min_flops
    ]
    if chosen:
        return chosen
    asked = {"tasks": "" if tasks == ALL else tasks, "functions": functions or ""}
    asked["min_flops"] = f"{min_flops:g}" if min_flops else ""
    given = ", ".join(f"{name}={value}" for name, value in asked.items() if value)
    raise InputError(f"none of the model's {len(found)} functions fits {given}; see --tasks list")


def numbered(expression: str, count: int) -> list[int]:
    """Read ``all``, ``0``, ``0,2``, ``3-5``, ``-3`` (up to 3) or ``4-`` (from 4), counted from 0.

    Raises
    ------
    InputError
        The expression has another form, or names a task that is not there.
    """
    if expression.strip() == ALL:
        return list(range(count))
    found: set[int] = set()
    for part in expression.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or part.strip() == "-":
            raise InputError(f"tasks takes list, all, or numbers such as 0,2 or 3-5 or 4-: {expression!r}")
        first, last, one = match.groups()
        low = int(one or first or 0)
        high = int(one or last or count - 1)
        if high >= count or low > high:
            raise InputError(f"tasks must lie within 0-{count - 1}: {part.strip()!r}; see --tasks list")
        found.update(range(low, high + 1))
    return sorted(found)


def _named(each: ModelWorkload, pattern: str) -> bool:
    """Tell whether a pattern fits one of a workload's names."""
    names = {form for name in each.functions for form in (name, name.removeprefix(_FUSED))}
    return any(fnmatchcase(name, pattern) for name in names)
