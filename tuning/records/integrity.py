"""Whether a database is what it should be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from ...machine.errors import InputError
from .compatibility import target_key
from .database import Database
from .json_lines import record_of_fields
from .merging import Problem
from .record import Record, Status
from .vetting import Vetting

_JSON_FIELDS = ("shape", "knobs", "run_secs", "confirmed_secs")


def check(database: Database, deep: bool = False) -> list[Problem]:
    """Look for damage, and return what is wrong: where, and what.

    The file's pages and references; every field of every record; that each workload's program has its hash.

    Parameters
    ----------
    database : Database
        What is checked; nothing is changed.
    deep : bool
        Whether to replay the schedule of each record too.
    """
    try:
        problems = [Problem("file", what) for what in database.file_problems()]
    except InputError as error:
        problems = [Problem("file", str(error))]
    if problems:
        # What is read from a damaged file says nothing.
        return problems
    with Vetting() as vetting:
        unread = dict(_wrong_programs(database, vetting))
        problems += [Problem(f"workload {name}", what) for name, what in unread.items()]
        for row in database.rows():
            try:
                record = _record(row)
                if deep and record.trace is not None and record.workload_hash not in unread:
                    vetting.require_replays(database.workload_ir(record.workload_hash), record.trace)
            except InputError as error:
                problems.append(Problem(f"record {row['id']}", str(error)))
    return problems


def _wrong_programs(database: Database, vetting: Vetting) -> Iterator[tuple[str, str]]:
    for workload_hash in sorted(database.workload_hashes()):
        try:
            found = vetting.program(database.workload_ir(workload_hash)).hash
        except InputError as error:
            yield workload_hash, str(error)
        else:
            if found != workload_hash:
                yield workload_hash, f"its program has the hash {found}"


def _record(row: dict[str, Any]) -> Record:
    """Make a record of a row as it is stored, field by field."""
    if row["target_key"] != target_key(row["target"]):
        raise InputError("it is filed under another target than its own")
    found = {f.name: row[f.name] for f in fields(Record) if f.name != "workload_ir"}
    for name in _JSON_FIELDS:
        found[name] = _parsed(name, found[name])
    found["verified"] = bool(found["verified"]) if found["verified"] in (0, 1) else found["verified"]
    record = record_of_fields({**found, "workload_ir": ""})
    if record.status is Status.OK and not record.run_secs:
        raise InputError("it ended as ok, and has no times")
    return record


def _parsed(name: str, text: Any) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"the field {name} is no valid JSON: {error}") from None
