"""``tunesmith list``: what there is to choose from."""

from __future__ import annotations

from typing import Any

import click

from ..machine.errors import unknown_name
from .options import TvmCommand, common_options
from .output import Column, print_rows

KINDS = ("operators", "schedules", "spaces", "strategies")

# Characters of a column before it is wrapped.
_WIDTH = 50

_COLUMNS = {
    "operators": ("dimensions", "dtypes", "examples"),
    "schedules": ("summary",),
    "spaces": ("aliases", "strategies", "summary"),
    "strategies": ("aliases", "summary"),
}


@click.command("list", cls=TvmCommand, examples=["list operators"])
@click.argument("kind", metavar="[KIND]", required=False)
@common_options
def list_command(kind: str | None, as_json: bool) -> None:
    """List the operators, schedules, spaces or strategies.

    KIND is operators, schedules, spaces or strategies; left out, all are listed. A dimension with a
    default is written NAME=DEFAULT and may be left out of --shape.
    """
    if kind not in (None, *KINDS):
        raise unknown_name("list", str(kind), KINDS)
    for number, each in enumerate(KINDS if kind is None else [kind]):
        if number and not as_json:
            click.echo()
        heading = each if kind is None else "name"
        columns = [Column("name", heading), *(Column(key, key, width=_WIDTH) for key in _COLUMNS[each])]
        print_rows(_rows(each), columns, as_json)


def _rows(kind: str) -> list[dict[str, Any]]:
    make = {"operators": _operators, "schedules": _schedules, "spaces": _spaces, "strategies": _strategies}
    return [{"kind": kind.replace("ies", "y").removesuffix("s"), **row} for row in make[kind]()]


def _operators() -> list[dict[str, Any]]:
    from ..kernels import OPERATORS

    return [
        {
            "name": name,
            "dimensions": [d.name if d.default is None else f"{d.name}={d.default}" for d in op.dims],
            "dtypes": list(op.dtypes),
            "examples": len(op.examples),
        }
        for name, op in OPERATORS.items()
    ]


def _schedules() -> list[dict[str, Any]]:
    from ..schedules import schedule_rules

    return [{"name": rule.name, "summary": rule.summary} for rule in schedule_rules().values()]


def _spaces() -> list[dict[str, Any]]:
    from ..tuning.records.compilation import SKETCH
    from ..tuning.search import SKETCH_ALIAS
    from ..tuning.strategies import KNOB_STRATEGIES, SKETCH_STRATEGIES

    knobs = [
        {
            "name": row["name"],
            "aliases": [],
            "strategies": list(KNOB_STRATEGIES),
            "summary": f"knobs of: {row['summary']}",
        }
        for row in _schedules()
    ]
    sketch = {
        "name": SKETCH,
        "aliases": [SKETCH_ALIAS],
        "strategies": list(SKETCH_STRATEGIES),
        "summary": "MetaSchedule's sketch rules",
    }
    return [*knobs, sketch]


def _strategies() -> list[dict[str, Any]]:
    from ..tuning.strategies import ALIASES, STRATEGIES

    return [
        {"name": name, "aliases": [a for a, of in ALIASES.items() if of == name], "summary": summary}
        for name, summary in STRATEGIES.items()
    ]
