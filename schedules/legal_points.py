"""The legal points of a knob space, found without making most of the combinations that are not legal.

Knobs get their values one after the other, and a rule is asked as soon as those that it looks at have theirs.
Its answer depends on nothing else and is remembered by them: a rule is asked once for each combination of the
values that it looks at, not for all that are chosen before and beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .space import Constraint, Knob

# What is known of a rule that was not asked about some values, and of one that failed on them. It may, on
# values that another one excludes, and is asked again after that one, once all knobs have values.
_NOT_ASKED, _FAILED = object(), object()


def legal_points(knobs: Sequence[Knob], constraints: Sequence[Constraint]) -> list[dict[str, int]]:
    """List the combinations of the knobs' values that keep all constraints, in the order of the values."""
    places = {knob.name: place for place, knob in enumerate(knobs, start=1)}
    answers = [_Answers(constraint, places) for constraint in constraints]
    found: list[dict[str, int]] = []

    def complete(chosen: dict[str, int], asked: dict[int, tuple[int, ...]]) -> None:
        """Add the points that begin with chosen values; rules are ``asked`` when so many are chosen."""
        is_complete = len(chosen) == len(knobs)
        for rule in asked.get(len(chosen), ()):
            answer = answers[rule].of(chosen)
            if is_complete and answer is _FAILED:
                answer = constraints[rule].holds(chosen)
            if not answer:
                return
            if answer is not True and not is_complete:
                later = places.get(answer, len(knobs))
                asked = {**asked, later: tuple(sorted((*asked.get(later, ()), rule)))}
        if is_complete:
            found.append(chosen)
            return
        knob = knobs[len(chosen)]
        for value in knob.values:
            complete({**chosen, knob.name: value}, asked)

    complete({}, {0: tuple(range(len(constraints)))})
    return found


class _NotChosenError(Exception):
    """A rule looks at a knob that has no value yet."""


class _LookedAt(Mapping[str, int]):
    """Values of the first knobs, which remembers at which of them a rule looks, and in which order."""

    def __init__(self, chosen: Mapping[str, int], knobs: Mapping[str, Any]) -> None:
        self._chosen = chosen
        self._knobs = knobs
        self.names: dict[str, None] = {}

    def __getitem__(self, name: str) -> int:
        if name not in self._chosen:
            raise _NotChosenError(name) if name in self._knobs else KeyError(name)
        self.names[name] = None
        return self._chosen[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._knobs)

    def __len__(self) -> int:
        return len(self._knobs)


class _Answers:
    """What a rule answers, by the values of the knobs that it looks at."""

    def __init__(self, constraint: Constraint, knobs: Mapping[str, Any]) -> None:
        self._holds = constraint.holds
        self._knobs = knobs
        # By the value of a knob: an answer, or the knob looked at next and what is known by its values.
        self._known: dict[Any, Any] = {}

    def of(self, chosen: dict[str, int]) -> Any:
        """Return whether the rule holds, the name of a knob that it needs and has no value, or `_FAILED`."""
        known = self._known.get(None, _NOT_ASKED)
        while isinstance(known, tuple):
            name, by_value = known
            if name not in chosen:
                return name
            known = by_value.get(chosen[name], _NOT_ASKED)
        return self._ask(chosen) if known is _NOT_ASKED else known

    def _ask(self, chosen: dict[str, int]) -> Any:
        looked_at = _LookedAt(chosen, self._knobs)
        answer: Any
        known: Any
        try:
            answer = known = bool(self._holds(looked_at))
        except _NotChosenError as missing:
            answer = missing.args[0]
            known = (answer, {})
        except Exception:
            answer = known = _FAILED
        by_value, value = self._known, None
        for name in looked_at.names:
            _, following = by_value.setdefault(value, (name, {}))
            by_value, value = following, chosen[name]
        by_value[value] = known
        return answer
