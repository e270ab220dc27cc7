"""Knobs and the space they span: what a schedule leaves open for a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ..machine.errors import InputError, unknown_name
from .legal_points import legal_points

Knobs = Mapping[str, int]
"""One value for each knob of a schedule."""


@dataclass(frozen=True)
class Knob:
    """A named parameter of a schedule with its candidate values.

    Parameters
    ----------
    name : str
        The schedule function's keyword.
    values : tuple of int
        The candidates, in ascending order.
    meaning : str
        One line for people, with the unit.

    Raises
    ------
    InputError
        There are no values.
    """

    name: str
    values: tuple[int, ...]
    meaning: str

    def __post_init__(self) -> None:
        """Refuse a knob that has nothing to choose from."""
        if not self.values:
            raise InputError(f"a knob needs at least one value: Knob({self.name!r}, {self.values!r}, ...)")


@dataclass(frozen=True)
class Constraint:
    """A rule between knobs.

    Parameters
    ----------
    rule : str
        The rule as a user reads it: "mr * nr / lanes accumulators fit the registers".
    holds : callable
        ``holds(knobs)`` is true where the rule is kept. It depends on the knobs' values alone, and is asked
        once for each combination of those that it looks at (`legal_points`).
    """

    rule: str
    holds: Callable[[Knobs], bool]


@dataclass(frozen=True)
class KnobSpace:
    """The points that a search may choose from: every combination of knob values that keeps the constraints.

    Parameters
    ----------
    knobs : tuple of Knob
        The parameters left open.
    constraints : tuple of Constraint
        Rules that every point keeps.
    default : mapping
        The point chosen without a search; it lies in the space.
    alternative : mapping or None
        The default of another part of the space: what completes knobs that the default does not fit.
    preferred : bool
        Whether the default may be that of the computation. Where it may not, another rule's is likely faster:
        the points are there to be chosen by hand, or found by tuning.
    """

    knobs: tuple[Knob, ...]
    constraints: tuple[Constraint, ...]
    default: Knobs
    alternative: Knobs | None = None
    preferred: bool = True

    def in_form(self, knob: Knob, default: int) -> KnobSpace:
        """Return the same space after the knob of a form, which has no values but its candidates."""
        values = knob.values
        rule = f"{knob.name} is {values[0] if len(values) == 1 else f'one of {values}'}"
        return replace(
            self,
            knobs=(knob, *self.knobs),
            constraints=(Constraint(rule, lambda k: k[knob.name] in values), *self.constraints),
            default={knob.name: default, **self.default},
            alternative=self.alternative and {knob.name: default, **self.alternative},
        )

    @property
    def combinations(self) -> int:
        """How many combinations of values there are, legal or not."""
        return prod(len(k.values) for k in self.knobs)

    @cached_property
    def points(self) -> tuple[dict[str, int], ...]:
        """Every legal point, in the order of the knobs' values.

        Raises
        ------
        InputError
            There is none; the message says how many combinations each constraint excludes.
        """
        found = tuple(legal_points(self.knobs, self.constraints))
        if not found:
            raise InputError(
                f"no combination of the knobs' values keeps the rules. Of {self.combinations}, "
                f"{self._exclusions()}; give the knobs other values or loosen a rule"
            )
        return found

    def _exclusions(self) -> str:
        """Say how many combinations each constraint excludes by itself, the strictest first."""
        excluded = {c.rule: sum(not c.holds(p) for p in self._combinations()) for c in self.constraints}
        strictest = sorted(excluded.items(), key=lambda entry: -entry[1])
        return ", ".join(f"{rule!r} excludes {count}" for rule, count in strictest if count)

    def __len__(self) -> int:
        """Count the legal points."""
        return len(self.points)

    def _combinations(self) -> Iterator[dict[str, int]]:
        sizes = [len(k.values) for k in self.knobs]
        for index in np.ndindex(*sizes):
            yield {k.name: k.values[i] for k, i in zip(self.knobs, index, strict=True)}

    def allows(self, knobs: Knobs) -> bool:
        """Tell whether a combination of candidate values keeps the constraints."""
        return all(c.holds(knobs) for c in self.constraints)

    def check(self, knobs: Mapping[str, Any]) -> dict[str, int]:
        """Complete knobs with the default, or the alternative where only that fits them, and check them.

        Values outside the candidates are allowed as long as the constraints hold: a person may try what the
        search does not. A knob with the candidates 0 and 1 is a switch, which has no other positions.

        Raises
        ------
        InputError
            A knob is unknown, no integer of at least 0, a switch that is neither, or breaks a constraint.
        """
        known = {k.name for k in self.knobs}
        for name, value in knobs.items():
            if name not in known:
                raise unknown_name("knob", name, known)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
                raise InputError(f"a knob's value is an integer of at least 0: {name}={value!r}")
        given = {name: int(value) for name, value in knobs.items()}
        full = {**self.default, **given}
        if self.alternative and not self.allows(full) and self.allows({**self.alternative, **given}):
            full = {**self.alternative, **given}
        for constraint in self.constraints:
            if not constraint.holds(full):
                found = ", ".join(f"{k}={v}" for k, v in full.items())
                raise InputError(f"knobs must keep the rule: {constraint.rule}: {found}")
        for knob in self.knobs:
            if knob.values == (0, 1) and full[knob.name] > 1:
                raise InputError(f"the knob {knob.name} is 0 or 1: {knob.name}={full[knob.name]}")
        return full
