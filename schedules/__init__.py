"""HOW it is computed: schedules, their knobs and spaces, and which one is the default."""

from __future__ import annotations

from typing import Any

from ..machine.errors import unknown_name
from .cpu.attention import ATTENTION
from .cpu.conv2d import CONV2D
from .cpu.few_rows import FEW_ROWS
from .cpu.general import GENERAL
from .cpu.matmul import MATMUL
from .cpu.quantized import QUANTIZED
from .cpu.rows import ROWS
from .cpu.transpose import TRANSPOSE
from .cpu.window import WINDOW
from .rule import ScheduleRule

# In order of preference: the first that applies is the default. The last applies to everything.
RULES: tuple[ScheduleRule, ...] = (
    QUANTIZED,
    FEW_ROWS,
    MATMUL,
    CONV2D,
    ATTENTION,
    WINDOW,
    ROWS,
    TRANSPOSE,
    GENERAL,
)


def schedule_rules() -> dict[str, ScheduleRule]:
    """Return every rule by name, in order of preference."""
    return {rule.name: rule for rule in RULES}


def rule(name: str) -> ScheduleRule:
    """Return the rule of a name.

    Raises
    ------
    InputError
        There is none.
    """
    rules = schedule_rules()
    if name not in rules:
        raise unknown_name("schedule", name, rules)
    return rules[name]


def rules_for(func: Any, target: Any) -> list[ScheduleRule]:
    """Return the rules that apply to a PrimFunc, best first."""
    return [rule for rule in RULES if rule.space(func, target) is not None]


def apply_default(func: Any, target: Any) -> tuple[Any, ScheduleRule]:
    """Schedule a PrimFunc by the first rule that applies, with its default knobs.

    Returns
    -------
    schedule : tvm.s_tir.Schedule
        The scheduled PrimFunc is ``schedule.mod["main"]``.
    rule : ScheduleRule
        The rule that was used.
    """
    attempts = ((rule.scheduled(func, target), rule) for rule in RULES)
    return next((schedule, rule) for schedule, rule in attempts if schedule is not None)
