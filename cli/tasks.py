"""Which of a model's functions to tune: the expression of ``--tasks``."""

from __future__ import annotations

import re

from ..machine.errors import InputError

_RANGE = re.compile(r"(\d+)?\s*-\s*(\d+)?|(\d+)")


def chosen_tasks(expression: str, count: int) -> list[int]:
    """Read ``all``, ``0``, ``0,2``, ``3-5``, ``-3`` (up to 3) or ``4-`` (from 4), counted from 0.

    Raises
    ------
    InputError
        The expression has another form, or names a task that is not there.
    """
    if expression.strip() == "all":
        return list(range(count))
    found: set[int] = set()
    for part in expression.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or part.strip() == "-":
            raise InputError(f"--tasks takes list, all, or numbers such as 0,2 or 3-5 or 4-: {expression!r}")
        first, last, one = match.groups()
        low = int(one or first or 0)
        high = int(one or last or count - 1)
        if high >= count or low > high:
            raise InputError(f"--tasks must lie within 0-{count - 1}: {part.strip()!r}; see --tasks list")
        found.update(range(low, high + 1))
    return sorted(found)
