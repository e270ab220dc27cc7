"""``tunesmith list``: what there is to choose from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..machine.errors import unknown_name
from .options import TvmCommand, common_options
from .output import Column, print_rows

if TYPE_CHECKING:
    from ..kernels.operator import Operator

KINDS = ("operators", "schedules", "spaces", "strategies")

# Characters of a column before it is wrapped.
_WIDTH = 50

_COLUMNS = {
    "operators": ("dimensions", "dtypes", "examples"),
    "schedules": ("summary",),
    "spaces": ("aliases", "strategies", "summary"),
    "strategies": ("aliases", "summary"),
}


@click.command("list", cls=TvmCommand, examples=["list operators", "list my_ops.py"])
@click.argument("kind", metavar="[KIND]", required=False)
@common_options
def list_command(kind: str | None, as_json: bool) -> None:
    """List the operators, schedules, spaces or strategies.

    KIND is operators, schedules, spaces or strategies; left out, all are listed. A FILE.py of your own lists
    its operators and the schedules that it adds. A dimension with a default is written NAME=DEFAULT and may
    be left out of --shape.
    """
    if kind is not None and ".py" in kind:
        _list_file(kind, as_json)
        return
    if kind not in (None, *KINDS):
        raise unknown_name("list", str(kind), KINDS)
    make = {"operators": _operators, "schedules": _schedules, "spaces": _spaces, "strategies": _strategies}
    _print_tables({each: make[each]() for each in (KINDS if kind is None else [kind])}, as_json)


def _list_file(place: str, as_json: bool) -> None:
    """List what a user's file has: FILE.py, or one operator of it as FILE.py:NAME."""
    from ..kernels.user_file import load_operator, operators_in
    from ..schedules import RULES

    file, _, name = place.partition(".py:")
    found = {name: load_operator(place)} if name else operators_in(place)
    operators = {f"{file.removesuffix('.py')}.py:{variable}": op for variable, op in found.items()}
    own = [row for row in _schedules() if row["name"] not in {rule.name for rule in RULES}]
    _print_tables({"operators": _operators(operators), **({"schedules": own} if own else {})}, as_json)


def _print_tables(tables: dict[str, list[dict[str, Any]]], as_json: bool) -> None:
    """Print a table for each kind."""
    for number, (kind, found) in enumerate(tables.items()):
        if number and not as_json:
            click.echo()
        heading = kind if len(tables) > 1 else "name"
        columns = [Column("name", heading), *(Column(key, key, width=_WIDTH) for key in _COLUMNS[kind])]
        singular = kind.replace("ies", "y").removesuffix("s")
        print_rows([{"kind": singular, **row} for row in found], columns, as_json)


def _operators(operators: Mapping[str, Operator] | None = None) -> list[dict[str, Any]]:
    from ..kernels import OPERATORS

    return [
        {
            "name": name,
            "dimensions": [d.name if d.default is None else f"{d.name}={d.default}" for d in op.dims],
            "dtypes": list(op.dtypes),
            "examples": len(op.examples),
        }
        for name, op in (operators or OPERATORS).items()
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
