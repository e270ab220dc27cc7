"""What commands print to stdout: tables for people, JSON lines for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from tabulate import tabulate

Row = Mapping[str, Any]


def plain(value: Any) -> str:
    """Write a value for people: nothing for None, name=value pairs for a mapping."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={entry}" for name, entry in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def milliseconds(seconds: float | None) -> str:
    """Write seconds in milliseconds, four digits of them."""
    return "" if seconds is None else f"{seconds * 1e3:#.4g}".rstrip(".")


def seconds(value: float | None) -> str:
    """Write seconds, two digits of them."""
    return "" if value is None else f"{value:.2g}"


def megabytes(value: float | None) -> str:
    """Write bytes in megabytes."""
    return "" if value is None else f"{value / 1e6:.1f}"


def rate(value: float | None) -> str:
    """Write GFLOP/s or GB/s."""
    return "" if not value else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def percent(fraction: float | None) -> str:
    """Write a fraction in percent."""
    return "" if fraction is None else f"{fraction:.1%}"


def times(ratio: float | None) -> str:
    """Write how many times as fast."""
    return "" if ratio is None else f"{ratio:.2f}x"


def six_digits(value: float | None) -> str:
    """Write a value with six digits."""
    return "" if value is None else f"{value:.6g}"


def scientific(value: float | None) -> str:
    """Write an error."""
    return "" if value is None else f"{value:.1e}"


@dataclass(frozen=True)
class Column:
    """A column of a table: the row's key, the heading, how a value is written, where it is wrapped."""

    key: str
    heading: str
    write: Callable[[Any], str] = plain
    width: int | None = None


def print_rows(rows: Iterable[Row], columns: Sequence[Column], as_json: bool) -> None:
    """Print rows as a table of the given columns, or whole as JSON lines."""
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, default=_plain_json))
        return
    cells = [[column.write(row.get(column.key)) for column in columns] for row in rows]
    shown = [i for i, _ in enumerate(columns) if any(line[i] for line in cells)] or [0]
    numbers = {milliseconds, seconds, megabytes, rate, percent, times, six_digits, scientific}
    click.echo(
        tabulate(
            [[line[i] for i in shown] for line in cells],
            headers=[columns[i].heading for i in shown],
            colalign=["right" if columns[i].write in numbers else "left" for i in shown] if cells else None,
            maxcolwidths=[columns[i].width for i in shown] if cells else None,
            disable_numparse=True,
        )
    )


def print_notice(text: str) -> None:
    """Tell a person something beside the result, on stderr."""
    click.echo(text, err=True)


def _plain_json(value: Any) -> Any:
    """Turn NumPy's numbers and mappings into what JSON has."""
    if hasattr(value, "item"):
        return value.item()
    return dict(value) if isinstance(value, Mapping) else str(value)
