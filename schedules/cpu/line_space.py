"""The knobs of forms that are vectors along lines: how wide these are, and whether threads share lines."""

from __future__ import annotations

from collections.abc import Sequence

from ..space import Constraint, Knob, KnobSpace


def line_space(fitting: Sequence[int], elements: str) -> KnobSpace:
    """Return the space of vectors of some widths, the last by default, on all threads.

    ``elements``: what a vector is of.
    """
    widths = tuple(fitting)
    return KnobSpace(
        knobs=(
            Knob("lanes", widths, f"{elements} in a vector"),
            Knob("parallel", (0, 1), "1: lines are spread over the threads"),
        ),
        constraints=(Constraint(f"lanes is one of {widths}", lambda k: k["lanes"] in widths),),
        default={"lanes": widths[-1], "parallel": 1},
    )
