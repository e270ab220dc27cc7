"""A schedule with its space: one object for tunesmith, for dlight and for MetaSchedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import s_tir

from ..machine.errors import InputError, blamed
from .algorithms import THEN, begin
from .code_generation import finished, is_finished
from .space import Knobs, KnobSpace

# As a MetaSchedule space a rule offers this many of its points: each is a design space of its own there.
META_SCHEDULE_POINTS = 64


@dataclass(frozen=True)
class ScheduleRule:
    """A loop rewriting with named knobs, and the space these knobs span on a given computation.

    The same object is

    - a hand schedule: ``rule.scheduled(func, target, mr=8, nr=32)``;
    - a default schedule: ``rule.default(func, target)``;
    - a search space: ``rule.space(func, target)``;
    - a dlight rule: ``dlight.ApplyDefaultSchedule(rule)``;
    - a MetaSchedule space: ``with target: meta_schedule.tune_tir(..., space=rule)``.

    Parameters
    ----------
    name : str
        The rule's name, as in ``--schedule NAME``.
    summary : str
        One line: what it does to the loops.
    rewrite : callable
        ``rewrite(sch, **knobs)`` rewrites a schedule of one PrimFunc named ``main`` in place.
    open_space : callable
        ``open_space(func, target)`` returns the knob space, or None where the rule does not apply.
    algorithm : callable or None
        ``algorithm(knobs)`` names the one of `algorithms.ALGORITHMS` in whose form the function is rewritten;
        None, or the name None, where it is rewritten as it is.
    """

    name: str
    summary: str
    rewrite: Callable[..., None]
    open_space: Callable[[Any, Any], KnobSpace | None]
    algorithm: Callable[[Knobs], str | None] | None = None

    def space(self, func: Any, target: Any) -> KnobSpace | None:
        """Return the space of this rule on a PrimFunc, or None where the rule does not apply."""
        with blamed(f"the space of the schedule {self.name!r}", self.open_space):
            return self.open_space(func, target)

    def preferred_space(self, func: Any, target: Any) -> KnobSpace | None:
        """Return the space, or None where the rule does not apply or leaves the default to others."""
        space = self.space(func, target)
        return space if space is not None and space.preferred else None

    def default(self, func: Any, target: Any) -> Any:
        """Return the default schedule, or None where the rule does not apply or leaves it to others."""
        space = self.preferred_space(func, target)
        return None if space is None else self._rewritten(func, space.default)

    def scheduled(self, func: Any, target: Any, knobs: Knobs | None = None) -> Any:
        """Return the schedule with the given knobs; those left out have their default.

        Returns
        -------
        tvm.s_tir.Schedule or None
            None where the rule does not apply.

        Raises
        ------
        InputError
            A knob is unknown or breaks a constraint.
        """
        space = self.space(func, target)
        if space is None:
            return None
        return self._rewritten(func, space.check(knobs or {}))

    def apply(self, func: Any, target: Any, tunable: bool) -> Any:
        """Apply the default schedule, if any: dlight's interface.

        What dlight schedules is compiled by TVM as it is, so it is finished.
        """
        del tunable
        schedule = self.default(func, target)
        return None if schedule is None else s_tir.Schedule(finished(schedule.mod, target))

    def __call__(self, sch: Any) -> list[Any]:
        """Return points of the space as design spaces: MetaSchedule's interface.

        A value sampled inside the schedule would be frozen wherever Python computes with it, so each
        point is offered as a trace of its own: the default first, then points drawn with a fixed seed. Those
        that TVM does not finish (see `finished`) come after the others.

        Raises
        ------
        InputError
            No target is in scope: MetaSchedule does not tell a space what it tunes for.
        """
        func, target = sch.mod["main"], tvm.target.Target.current(allow_none=True)
        if target is None:
            raise InputError("MetaSchedule tells no schedule rule its target: call it under `with target:`")
        space = self.space(func, target)
        if space is None:
            return []
        # MetaSchedule replays a trace on the function as it is.
        points = [p for p in space.points if self._algorithm(p) is None]
        others = [p for p in points if p != space.default]
        drawn = np.random.default_rng(0).permutation(len(others))[: 2 * META_SCHEDULE_POINTS]
        first = [p for p in points if p == space.default]
        designs = [self._rewritten(func, point) for point in (*first, *(others[i] for i in drawn))]
        # It compiles by TVM alone, so what wants to be finished comes last.
        designs.sort(key=lambda design: not is_finished(design.mod))
        return designs[:META_SCHEDULE_POINTS]

    def _algorithm(self, knobs: Knobs) -> str | None:
        return None if self.algorithm is None else self.algorithm(knobs)

    def _rewritten(self, func: Any, knobs: Knobs) -> Any:
        algorithm = self._algorithm(knobs)
        sch = s_tir.Schedule(func) if algorithm is None else begin(func, algorithm)
        with blamed(f"the schedule {self.name!r}", self.rewrite):
            self.rewrite(sch, **knobs)
        return sch


def rule_in_form(
    inner: ScheduleRule,
    form: Callable[[Knobs], str],
    *,
    name: str,
    summary: str,
    rewrite: Callable[..., None],
    open_space: Callable[[ScheduleRule, Any, Any], KnobSpace | None],
) -> ScheduleRule:
    """Return a rule that puts a function into a form, and then schedules it as another rule does.

    Parameters
    ----------
    inner : ScheduleRule
        The other rule.
    form : callable
        ``form(knobs)`` names the form; that in which ``inner`` begins comes after it.
    name, summary : str
        See `ScheduleRule`.
    rewrite, open_space : callable
        Those of `ScheduleRule`, with ``inner`` before their other arguments.
    """

    def algorithm(knobs: Knobs) -> str:
        first, then = form(knobs), inner.algorithm and inner.algorithm(knobs)
        return first if then is None else f"{first}{THEN}{then}"

    return ScheduleRule(name, summary, partial(rewrite, inner), partial(open_space, inner), algorithm)
