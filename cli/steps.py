"""What ``tunesmith show --steps`` prints: a schedule step by step, with the time and gain of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .output import Column, milliseconds, print_rows

if TYPE_CHECKING:
    from ..tuning.steps import TimedStep

# Where the noise is smaller, two digits of a gain can be believed.
_NOISY = 0.05


def gain(ratio: float | None) -> str:
    """Write how many times as fast, with two significant digits: steps are measured to a few percent."""
    if ratio is None:
        return ""
    rounded = float(f"{ratio:.2g}")
    return f"{rounded:.0f}x" if rounded >= 10 else f"{rounded:.1f}x" if rounded >= 1 else f"{rounded:.2f}x"


_COLUMNS = [
    Column("step", "step"),
    Column("primitive", "primitive"),
    Column("median_s", "median ms", milliseconds),
    Column("noise", "noise", lambda noise: "" if noise is None else f"{noise:.0%}"),
    Column("gain", "gain", gain),
    Column("gain_in_all", "in all", gain),
    Column("status", "verdict", lambda status: "right" if status == "ok" else str(status)),
]


def print_steps(steps: Sequence[TimedStep], about: Mapping[str, Any], as_json: bool) -> None:
    """Print the unscheduled loops, what each step does to them, the loops that result, and a table.

    Parameters
    ----------
    steps : sequence of TimedStep
        The unscheduled function and the steps.
    about : mapping
        What every JSON row begins with: operator, shape and so on.
    as_json : bool
        Print one object a step instead.
    """
    if as_json:
        print_rows([{**about, **asdict(step)} for step in steps], [], as_json=True)
        return
    told: set[str] = set()
    for step in steps:
        click.echo("\n".join((*_text(step, told), "")))
    if len(steps) > 1:
        click.echo(f"after all steps:\n{_indented(steps[-1].loop_nest)}\n")
    print_rows([{**asdict(s), "primitive": s.primitive or "(none)"} for s in steps], _COLUMNS, as_json=False)


def _text(step: TimedStep, told: set[str]) -> Iterator[str]:
    """Write a step; its words where they come for the first time."""
    if not step.step:
        yield f"unscheduled: {_outcome(step)}"
        yield _indented(step.loop_nest)
        return
    first, *others = step.code.splitlines()
    yield f"{step.step}. {first}"
    yield from (f"{' ' * len(f'{step.step}. ')}{line}" for line in others)
    if step.words not in told:
        told.add(step.words)
        yield f"   # {step.words}"
    yield f"   {_outcome(step)}"
    yield _indented("\n".join(step.changes))


def _outcome(step: TimedStep) -> str:
    """Write the time and the gains, or why there are none."""
    if step.median_s is None:
        return f"{step.status}: {step.message}"
    noise = f" (noise {step.noise:.0%})" if (step.noise or 0) >= _NOISY else ""
    parts = [f"{milliseconds(step.median_s)} ms{noise}"]
    if step.gain is not None:
        parts.append(f"{gain(step.gain)} the step before")
    if step.gain_in_all is not None:
        parts.append(f"{gain(step.gain_in_all)} unscheduled")
    return ", ".join(parts)


def _indented(text: str) -> str:
    return "\n".join(f"     {line}" for line in text.splitlines())
