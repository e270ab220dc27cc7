"""HOW it is computed: schedules, their knobs and spaces, and which one is the default."""

from __future__ import annotations

from typing import Any

from ..machine.errors import InputError, unknown_name
from ..machine.process import remember_type_checks
from .cpu.attention import ATTENTION
from .cpu.attention_matrix_unit import ATTENTION_MATRIX_UNIT
from .cpu.channel_lines import CHANNEL_LINES
from .cpu.channels_first import (
    CONV2D_CHANNELS_FIRST,
    FLAT_PIXELS,
    FLOAT32_MATRIX_UNIT_CHANNELS_FIRST,
    FLOAT32_MATRIX_UNIT_FLAT_PIXELS,
    PAIRED_FLAT_PIXELS,
    WIDENED_CHANNELS_FIRST,
    WIDENED_FLAT_PIXELS,
    WINOGRAD_CHANNELS_FIRST,
)
from .cpu.conv2d import CONV2D
from .cpu.dots import DOTS
from .cpu.few_columns import FEW_COLUMNS
from .cpu.few_rows import FEW_ROWS
from .cpu.float32_matrix_unit import FLOAT32_MATRIX_UNIT
from .cpu.general import GENERAL
from .cpu.grouped import GROUPED
from .cpu.im2col import IM2COL, IM2COL_PANELS
from .cpu.interpolated import INTERPOLATED
from .cpu.left_pixels import LEFT_PIXELS
from .cpu.lines import LINES
from .cpu.matmul import MATMUL
from .cpu.matrix_unit import MATRIX_UNIT
from .cpu.paired import PAIRED
from .cpu.parted_sums import PARTED_SUMS
from .cpu.pooled import POOLED
from .cpu.quantized import QUANTIZED
from .cpu.repeated import REPEATED
from .cpu.rows import ROWS
from .cpu.separable import SEPARABLE
from .cpu.short_rows import SHORT_ROWS
from .cpu.swapped import SWAPPED
from .cpu.swapped_matrix_unit import SWAPPED_MATRIX_UNIT
from .cpu.transpose import TRANSPOSE
from .cpu.widened import WIDENED_CONV2D, WIDENED_MATMUL
from .cpu.window import WINDOW
from .cpu.winograd import WINOGRAD
from .rule import ScheduleRule

# Every rule is written in TVM's primitives, and so is the search for the one that applies.
remember_type_checks()

# In order of preference: the first that applies is the default. The last applies to everything.
RULES: tuple[ScheduleRule, ...] = (
    SWAPPED_MATRIX_UNIT,
    MATRIX_UNIT,
    WINOGRAD,
    CHANNEL_LINES,
    WINOGRAD_CHANNELS_FIRST,
    FLOAT32_MATRIX_UNIT,
    FLOAT32_MATRIX_UNIT_FLAT_PIXELS,
    FLOAT32_MATRIX_UNIT_CHANNELS_FIRST,
    PARTED_SUMS,
    SWAPPED,
    PAIRED_FLAT_PIXELS,
    PAIRED,
    DOTS,
    FEW_COLUMNS,
    QUANTIZED,
    FEW_ROWS,
    WIDENED_MATMUL,
    MATMUL,
    WIDENED_FLAT_PIXELS,
    LEFT_PIXELS,
    FLAT_PIXELS,
    IM2COL_PANELS,
    IM2COL,
    WIDENED_CHANNELS_FIRST,
    CONV2D_CHANNELS_FIRST,
    WIDENED_CONV2D,
    CONV2D,
    GROUPED,
    ATTENTION_MATRIX_UNIT,
    ATTENTION,
    WINDOW,
    POOLED,
    SEPARABLE,
    LINES,
    SHORT_ROWS,
    ROWS,
    TRANSPOSE,
    REPEATED,
    INTERPOLATED,
    GENERAL,
)


# A user's own, those added last at the end.
_own: dict[str, ScheduleRule] = {}


def add_schedule(rule: ScheduleRule) -> ScheduleRule:
    """Add a rule of one's own: it is tried before those of tunesmith, the one added last before all others.

    Wherever it applies it is the default schedule then, and the space of a tuning. A rule of the same name
    that was added before is replaced.

    Returns
    -------
    ScheduleRule
        The rule itself.

    Raises
    ------
    InputError
        tunesmith has a rule of that name.
    """
    if rule.name in {built_in.name for built_in in RULES}:
        raise InputError(f"tunesmith has a schedule named {rule.name!r}; give yours another name")
    _own.pop(rule.name, None)
    _own[rule.name] = rule
    return rule


def schedule_rules() -> dict[str, ScheduleRule]:
    """Return every rule by name, in order of preference: a user's own before those of tunesmith."""
    return {rule.name: rule for rule in (*reversed(_own.values()), *RULES)}


def is_built_in(rule: ScheduleRule) -> bool:
    """Tell whether a rule is one of tunesmith's: known in every process, with the code of its version."""
    return any(rule is built_in for built_in in RULES)


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
    """Return the rules that apply to a PrimFunc, best first: that of the default schedule.

    Those that leave the default to others (`KnobSpace.preferred`) come last.
    """
    spaces = [(rule, rule.space(func, target)) for rule in schedule_rules().values()]
    found = [(rule, space.preferred) for rule, space in spaces if space is not None]
    return [rule for rule, _ in sorted(found, key=lambda each: not each[1])]


def apply_default(func: Any, target: Any) -> tuple[Any, ScheduleRule]:
    """Schedule a PrimFunc by the first rule that applies and is preferred, with its default knobs.

    Returns
    -------
    schedule : tvm.s_tir.Schedule
        The scheduled PrimFunc is ``schedule.mod["main"]``.
    rule : ScheduleRule
        The rule that was used.
    """
    attempts = ((rule.default(func, target), rule) for rule in schedule_rules().values())
    return next((schedule, rule) for schedule, rule in attempts if schedule is not None)
