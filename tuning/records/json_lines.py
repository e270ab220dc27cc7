"""Records as JSON lines: one record a line, complete, for git and other programs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from ...machine.errors import InputError
from ...machine.files import written_aside
from .migrations import SCHEMA_VERSION
from .record import Record, Status

# The field that says what the other fields of a line are, and of which version.
VERSION = "tunesmith_record"
# SQLite's integers have 64 bits.
_INTEGERS_END = 1 << 63


def write_lines(records: Iterable[Record], path: Path) -> None:
    """Write records to a file; what the file held before is replaced at the end."""
    with written_aside(path) as file:
        for record in records:
            line = {VERSION: SCHEMA_VERSION, **asdict(record), "status": str(record.status)}
            file.write(json.dumps(line) + "\n")


def record_of_line(line: str) -> Record:
    """Read a line back.

    Raises
    ------
    InputError
        The line is blank, cut off, of a newer version, or no record.
    """
    found = parsed_line(line)
    if not isinstance(found, dict) or not _is_integer(found.get(VERSION)):
        raise InputError(f"the line is no record: it has no {VERSION}")
    if (version := found.pop(VERSION)) > SCHEMA_VERSION:
        raise InputError(f"it is of version {version}, newer than {SCHEMA_VERSION}: upgrade tunesmith")
    return record_of_fields(found)


def parsed_line(line: str) -> Any:
    """Return a line's JSON value; raise InputError where it is blank, cut off or otherwise no JSON."""
    if not line.strip():
        raise InputError("the line is blank")
    try:
        return json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the line is cut off or no JSON: {error}") from None


def record_of_fields(found: dict[str, Any]) -> Record:
    """Make a record of a mapping of its fields, as JSON has them.

    Raises
    ------
    InputError
        A field is missing, unknown, or of a wrong kind.
    """
    known = {f.name: f for f in fields(Record)}
    missing = [name for name, f in known.items() if f.default is MISSING and name not in found]
    unknown = [name for name in found if name not in known]
    if missing or unknown:
        names = ", ".join(missing or unknown)
        raise InputError(f"the record {'lacks' if missing else 'has unknown fields'}: {names}")
    for name, value in found.items():
        if not _KINDS[str(known[name].type)](value):
            raise InputError(f"the field {name} is no {known[name].type}: {str(value)[:40]!r}")
    seconds = {name: tuple(found.get(name, ())) for name in ("run_secs", "confirmed_secs")}
    return Record(**{**found, **seconds, "status": Status(found["status"])})


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _INTEGERS_END


def _is_number(value: Any) -> bool:
    return (isinstance(value, float) or _is_integer(value)) and math.isfinite(value)


def _is_map_of(value: Any, kinds: tuple[Callable[[Any], bool], ...]) -> bool:
    return isinstance(value, dict) and all(any(kind(v) for kind in kinds) for v in value.values())


def _is_text(value: Any) -> bool:
    """Tell whether a value is text that can be stored: JSON can write halves of characters."""
    return isinstance(value, str) and value == value.encode(errors="replace").decode()


# What JSON has for each kind of field.
_KINDS: dict[str, Callable[[Any], bool]] = {
    "str": _is_text,
    "str | None": lambda v: v is None or _is_text(v),
    "int": _is_integer,
    "bool": lambda v: isinstance(v, bool),
    "float | None": lambda v: v is None or _is_number(v),
    "Status": lambda v: v in list(map(str, Status)),
    "Mapping[str, int | str]": lambda v: _is_map_of(v, (_is_integer, _is_text)),
    "Mapping[str, int] | None": lambda v: v is None or _is_map_of(v, (_is_integer,)),
    "tuple[float, ...]": lambda v: isinstance(v, list) and all(_is_number(s) and s > 0 for s in v),
}
