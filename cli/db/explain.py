"""``tunesmith db explain``: a record in words and code."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ..options import TvmCommand, common_options, database_option
from ..output import print_rows
from .rows import workload_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...tuning.reporting.explanation import Explanation


@click.command("explain", cls=TvmCommand, examples=["db explain 3f2a"])
@click.argument("record_id", metavar="RECORD")
@database_option
@common_options
def explain_record(record_id: str, database_path: str, as_json: bool) -> None:
    """Explain one record, by its id or the beginning of it.

    What was computed, the loops before and after, the knobs, each step of the schedule, what was built and
    run, how often, and with which result.
    """
    from ...tuning.records.database import Database
    from ...tuning.reporting.explanation import explain

    with Database(database_path, create=False) as database:
        record = database.get(record_id)
    explanation = explain(record, workload_of(record.workload_ir))
    if as_json:
        print_rows([asdict(explanation)], [], as_json=True)
    else:
        click.echo("\n".join(_text(explanation)))


def _text(explanation: Explanation) -> Iterable[str]:
    yield f"record {explanation.record}"
    yield from _section("what was computed", explanation.computed)
    yield from _section("its loops", explanation.before.splitlines())
    if explanation.after is not None:
        yield from _section("the loops that ran", explanation.after.splitlines())
    unknown = "(the rule is not known here)"
    knobs = [f"{k.name} = {k.value}  {k.meaning or unknown}" for k in explanation.knobs]
    yield from _section("knobs", knobs)
    yield from _section("the schedule, step by step", _steps(explanation))
    for title, lines in (
        ("built", explanation.built),
        ("run", explanation.ran),
        ("result", explanation.result),
        ("made", explanation.made),
    ):
        yield from _section(title, lines)


def _section(title: str, lines: Iterable[str]) -> Iterable[str]:
    found = list(lines)
    return ["", f"{title}:", *(f"  {line}" for line in found)] if found else []


def _steps(explanation: Explanation) -> Iterable[str]:
    """Write each step, with its words where they come for the first time."""
    told: set[str] = set()
    for step in explanation.steps:
        if step.words not in told:
            yield f"# {step.words}"
        told.add(step.words)
        yield step.code
