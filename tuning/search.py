"""What is searched and how: a space by its name or rule, and the strategy that fits it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import schedules
from ..kernels.operator import Workload
from ..machine.errors import InputError, unknown_name
from ..machine.target import target_text
from ..schedules.rule import ScheduleRule
from ..schedules.space import KnobSpace
from .learning.cost_model import KNOB_MODEL_SUFFIX, load
from .learning.experience import dims_of
from .records.candidate import Candidate, knob_candidate, knob_key
from .records.compilation import SKETCH
from .records.record import Record
from .strategies import (
    ALIASES,
    COST_MODELS,
    KNOB_STRATEGIES,
    MODEL_SUFFIX,
    SKETCH_STRATEGIES,
    STRATEGIES,
    WITH_COST_MODEL,
    WITH_SAVED_MODEL,
    Strategy,
)

SKETCH_ALIAS = "ansor"
"""What Ansor's users call the sketch space."""

ALL = "all"
"""What stands for the spaces of all schedules that apply to a workload."""


@dataclass(frozen=True)
class Search:
    """The space to search for one workload, and the default schedule to compare with.

    Parameters
    ----------
    name : str
        The space's name in records.
    rule : ScheduleRule or None
        The rule with open knobs; None for the sketch space.
    knobs : KnobSpace or None
        Its space on this workload.
    default_rule : ScheduleRule
        The rule of the default schedule.
    default : Candidate
        The default schedule, a candidate of ``default_rule``.
    """

    name: str
    rule: ScheduleRule | None
    knobs: KnobSpace | None
    default_rule: ScheduleRule
    default: Candidate

    def candidate(self, record: Record) -> Candidate:
        """Return the candidate that a record of this space is about."""
        if self.knobs is not None:
            return knob_candidate(record.knobs or {})
        return Candidate(record.key or record.trace or "", trace=record.trace)

    def is_default(self, record: Record) -> bool:
        """Tell whether a record is about the default schedule."""
        return record.space == self.default_rule.name and knob_key(record.knobs or {}) == self.default.key


def searches_for(workload: Workload, target: Any, space: str | ScheduleRule | None) -> list[Search]:
    """Find the spaces that a user means, that of the default schedule first.

    ``"all"`` stands for those of all schedules that apply. The last of them applies to everything and is
    good at nothing: it is left out where there is another. What else may be given, `search_for` says.
    """
    if space != ALL:
        return [search_for(workload, target, space)]
    rules = schedules.rules_for(workload.func, target)
    last = list(schedules.schedule_rules().values())[-1]
    chosen = [rule for rule in rules if rule is not last]
    return [search_for(workload, target, rule) for rule in chosen] or [search_for(workload, target, None)]


def search_for(workload: Workload, target: Any, space: str | ScheduleRule | None) -> Search:
    """Find the space that a user means.

    Parameters
    ----------
    workload : Workload
        What is tuned.
    target : Target
        What it is compiled for.
    space : str or ScheduleRule or None
        A rule or its name, ``"sketch"`` (or ``"ansor"``), or None for the default rule of the workload.

    Raises
    ------
    InputError
        There is no such space, or it does not apply to the workload.
    """
    if space in (SKETCH, SKETCH_ALIAS):
        rule, knobs = _default_rule(workload, target)
        return Search(SKETCH, None, None, rule, knob_candidate(knobs.default))
    if space is None:
        rule, knobs = _default_rule(workload, target)
    else:
        rule = space if isinstance(space, ScheduleRule) else _rule_named(space)
        found = rule.space(workload.func, target)
        if found is None:
            fitting = [*(r.name for r in schedules.rules_for(workload.func, target)), SKETCH]
            raise InputError(
                f"the space {rule.name!r} does not apply to {workload.label}; "
                f"those that do: {', '.join(fitting)}"
            )
        knobs = found
    return Search(rule.name, rule, knobs, rule, knob_candidate(knobs.default))


def _rule_named(name: str) -> ScheduleRule:
    rules = schedules.schedule_rules()
    if name not in rules:
        raise unknown_name("space", name, [*rules, SKETCH])
    return rules[name]


def _default_rule(workload: Workload, target: Any) -> tuple[ScheduleRule, KnobSpace]:
    for rule in schedules.schedule_rules().values():
        knobs = rule.preferred_space(workload.func, target)
        if knobs is not None:
            return rule, knobs
    raise InputError(
        f"no schedule applies to {workload.label}; write a ScheduleRule and give it as the space"
    )


def strategy_name(search: Search, wanted: str | None, cost_model: str | None) -> str:
    """Choose and check the strategy's name.

    Raises
    ------
    InputError
        The strategy or the cost model is unknown, the strategy cannot search this kind of space, or it has
        no cost model to choose.
    """
    fitting = list(KNOB_STRATEGIES if search.knobs is not None else SKETCH_STRATEGIES)
    name = wanted or ("xgb" if search.knobs is not None else "evolutionary")
    name = ALIASES.get(name, name)
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES)
    if name not in fitting:
        raise InputError(
            f"the strategy {name!r} cannot search the space {search.name!r}; "
            f"those that can: {', '.join(fitting)}"
        )
    if cost_model is not None and name in WITH_SAVED_MODEL and cost_model.endswith(KNOB_MODEL_SUFFIX):
        return name
    if cost_model is not None and cost_model not in COST_MODELS and not cost_model.endswith(MODEL_SUFFIX):
        raise unknown_name("cost model", cost_model, COST_MODELS)
    if cost_model is not None and name not in WITH_COST_MODEL:
        raise InputError(
            f"the strategy {name!r} has no cost model to choose: cost_model={cost_model!r}; leave it out"
        )
    return name


def make_strategy(
    search: Search, name: str, workload: Workload, target: Any, seed: int, cost_model: str | None
) -> Strategy:
    """Make the strategy of a checked name.

    Raises
    ------
    InputError
        The cost model is a file that cannot be read, or that is of another operator, target or space.
    """
    if search.knobs is not None and cost_model is not None:
        model = load(cost_model)
        model.require_fit(workload.name, target_text(target), search.name)
        return WITH_SAVED_MODEL[name](search.knobs, seed, dims_of(workload), model)
    if search.knobs is not None:
        return KNOB_STRATEGIES[name](search.knobs, seed, dims_of(workload))
    return SKETCH_STRATEGIES[name](workload.func, target, seed, cost_model or "xgb")
