"""The database: the store of records, one SQLite file.

Every trial is committed as it ends, so a process killed at any instant loses at most the trial that
was running. Several processes may write at once. Everything stored is text and numbers: loading a
record executes nothing that came with it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from ...machine.errors import InputError
from .compatibility import target_key
from .database_file import WAIT_S, DatabaseFile
from .record import Record, Status

_COLUMNS = tuple(f.name for f in fields(Record) if f.name != "workload_ir")
_SELECT = f"SELECT {', '.join('r.' + c for c in _COLUMNS)} FROM records r"
_STORED = (*_COLUMNS, "target_key")
# What no two records with a key have in common.
_CANDIDATE = ("workload_hash", "target_key", "space", "machine_fingerprint", "device", "cache", "key")
_INSERT = (
    f"INSERT INTO records ({', '.join(_STORED)}) VALUES ({', '.join(':' + c for c in _STORED)}) "
    "ON CONFLICT DO NOTHING"
)


class Database:
    """The records in one SQLite file.

    Parameters
    ----------
    path : path-like
        The file.
    create : bool
        Whether to create it where it does not exist.
    wait_s : float
        Seconds to wait for another process that writes.

    Raises
    ------
    InputError
        The file is missing, cannot be opened, is no tunesmith database, or was written by a newer version.
        Such a file is left as it is.
    """

    def __init__(self, path: str | Path, create: bool = True, wait_s: float = WAIT_S) -> None:
        self._file = DatabaseFile(path, create, wait_s)
        self.path = self._file.path

    def __enter__(self) -> Database:
        """Return the database itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; every record added is in it already."""
        self._file.close()

    def require_writable(self) -> None:
        """Raise InputError where records could not be added, before any work is done for them."""
        with self._file.transaction():
            pass

    def add(self, record: Record) -> Record:
        """Commit one record: once this returns, no end of any process can take it away.

        Returns
        -------
        Record
            The record itself; or, where another process has added one of the same candidate in the meantime
            (equal workload, target, space, machine, device, caches and key), that one: it stays.

        Raises
        ------
        InputError
            The file cannot be written: the disk is full, or another process holds it.
        """
        return self.add_all([record])[0]

    def add_all(self, records: Sequence[Record]) -> list[Record]:
        """Commit several records at once, all or none; return what the database holds of each.

        That is an older record where one has the same id, or is about the same candidate.
        """
        with self._file.transaction() as connection:
            return [self._add(connection, record) for record in records]

    def _add(self, connection: sqlite3.Connection, record: Record) -> Record:
        row = {name: _stored(getattr(record, name)) for name in _COLUMNS}
        row["target_key"] = target_key(record.target)
        connection.execute(
            "INSERT OR IGNORE INTO workloads (hash, ir) VALUES (?, ?)",
            (record.workload_hash, record.workload_ir),
        )
        if connection.execute(_INSERT, row).rowcount:
            return record
        known = f"WHERE r.id = :id OR {_all_equal(_CANDIDATE)} ORDER BY r.number"
        return self._query(known, {name: row[name] for name in ("id", *_CANDIDATE)})[0]

    def remove(self, ids: Iterable[str]) -> None:
        """Remove records, and the workloads that no record is about any more.

        The file becomes smaller, unless another process is writing or the disk has no room for a copy.
        """
        with self._file.transaction() as connection:
            connection.executemany("DELETE FROM records WHERE id = ?", [(each,) for each in ids])
            connection.execute("DELETE FROM workloads WHERE hash NOT IN (SELECT workload_hash FROM records)")
        with suppress(InputError):
            self._file.rows("VACUUM")

    def confirm(self, workload_hash: str, target: str, seconds: Mapping[str, tuple[float, ...]]) -> None:
        """Store the comparison that ends a tuning: seconds of each finalist, by record id.

        Earlier confirmations of this workload and target are dropped: times of different hours are
        not compared with each other.
        """
        with self._file.transaction() as connection:
            connection.execute(
                "UPDATE records SET confirmed_secs = '[]' WHERE workload_hash = ? AND target_key = ?",
                (workload_hash, target_key(target)),
            )
            connection.executemany(
                "UPDATE records SET confirmed_secs = ? WHERE id = ?",
                [(json.dumps(list(secs)), record_id) for record_id, secs in seconds.items()],
            )

    def records(
        self, workload_hash: str | None = None, target: str | None = None, space: str | None = None
    ) -> list[Record]:
        """Return the records, oldest first; each argument given narrows the choice.

        A target stands for all that are compatible with it (see `target_key`).
        """
        return self._chosen(workload_hash=workload_hash, target_key=_key(target), space=space)

    def newer(self, workload_hash: str, target: str, after: int) -> tuple[list[Record], int]:
        """Return what was added, by any process, after the record of a number; and the newest number.

        Numbers rise in the order of adding and are never given twice: start with 0, and go on with the
        number returned.
        """
        # The number first: what is added in between is returned again next time, and never left out.
        newest = self._file.rows("SELECT coalesce(max(number), 0) FROM records")[0][0]
        values = {"workload_hash": workload_hash, "target_key": target_key(target)}
        where = f"WHERE {_all_equal(values)} AND r.number > :after AND r.number <= :newest ORDER BY r.number"
        found = self._query(where, {**values, "after": after, "newest": newest})
        return found, max(after, newest)

    def best(self, workload_hash: str, target: str) -> Record | None:
        """Return the verified record to apply to a workload on a target, by `Record.rank`."""
        found = self._chosen(workload_hash=workload_hash, target_key=target_key(target), status="ok")
        return min((r for r in found if r.usable), key=lambda r: r.rank, default=None)

    def best_of_each(self) -> list[Record]:
        """Return the best record of each workload and target, in the order of their first verified ones."""
        chosen: dict[tuple[str, str], Record] = {}
        for record in self._chosen(status="ok"):
            place = (record.workload_hash, target_key(record.target))
            if record.usable and (place not in chosen or record.rank < chosen[place].rank):
                chosen[place] = record
        return list(chosen.values())

    def get(self, record_id: str) -> Record:
        """Return one record by its id, or by the beginning of its id where that names one only.

        Raises
        ------
        InputError
            No record, or more than one, has such an id.
        """
        found = (
            self._query("WHERE substr(r.id, 1, length(:id)) = :id", {"id": record_id}) if record_id else []
        )
        if len(found) != 1:
            what = "no record has" if not found else f"{len(found)} records have"
            raise InputError(
                f"{self.path}: {what} an id that begins with {record_id!r}; list them with: db ls"
            )
        return found[0]

    def workload_ir(self, workload_hash: str) -> str:
        """Return a workload's PrimFunc as TVM's JSON text.

        Raises
        ------
        InputError
            The database has no such workload.
        """
        rows = self._file.rows("SELECT ir FROM workloads WHERE hash = ?", (workload_hash,))
        if not rows:
            raise InputError(
                f"{self.path}: no workload has the hash {workload_hash!r}; list them with: db ls"
            )
        return str(rows[0][0])

    def workload_hashes(self) -> set[str]:
        """Return the hashes of the workloads that it has."""
        return {str(row[0]) for row in self._file.rows("SELECT hash FROM workloads")}

    def rows(self) -> list[dict[str, Any]]:
        """Return the records as they are stored, oldest first, even those that are damaged."""
        found = self._file.rows(f"SELECT {', '.join(_STORED)} FROM records ORDER BY number")
        return [dict(zip(_STORED, row, strict=True)) for row in found]

    def file_problems(self) -> list[str]:
        """Return what SQLite finds wrong with the file."""
        damage = [str(row[0]) for row in self._file.rows("PRAGMA integrity_check") if row[0] != "ok"]
        dangling = self._file.rows("PRAGMA foreign_key_check")
        return [*damage, *(f"row {row[1]} of {row[0]} refers to no row of {row[2]}" for row in dangling)]

    def as_meta_schedule(self, target: Any) -> Any:
        """Return the verified records of one target as a MetaSchedule database."""
        from .meta_database import MetaScheduleDatabase

        return MetaScheduleDatabase(self, target)

    def _chosen(self, **wanted: str | None) -> list[Record]:
        """Return the records whose columns have the values given, oldest first; None leaves one open."""
        given = {name: value for name, value in wanted.items() if value is not None}
        return self._query(f"{f'WHERE {_all_equal(given)}' if given else ''} ORDER BY r.number", given)

    def _query(self, where: str, values: Mapping[str, Any]) -> list[Record]:
        rows = self._file.rows(f"{_SELECT} {where}", values)
        # One text for all records of a workload: it is far longer than they are.
        hashes = {row[_COLUMNS.index("workload_hash")] for row in rows}
        texts = {workload_hash: self.workload_ir(workload_hash) for workload_hash in hashes}
        return [self._record(row, texts) for row in rows]

    def _record(self, row: tuple[Any, ...], workload_texts: Mapping[str, str]) -> Record:
        try:
            return _record(row, workload_texts)
        except (ValueError, TypeError) as error:
            where = f"{self.path}: the record {row[0]} is damaged: {error}"
            raise InputError(f"{where}; look for more of it with: db check") from error


def _key(target: str | None) -> str | None:
    return None if target is None else target_key(target)


def _all_equal(names: Iterable[str]) -> str:
    return " AND ".join(f"r.{name} = :{name}" for name in names)


def _stored(value: Any) -> Any:
    """Turn a record's field into what SQLite stores."""
    if isinstance(value, Status):
        return value.value
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    return json.dumps(list(value)) if isinstance(value, tuple) else value


def _record(row: tuple[Any, ...], workload_texts: Mapping[str, str]) -> Record:
    values = dict(zip(_COLUMNS, row, strict=True))
    values["workload_ir"] = workload_texts[values["workload_hash"]]
    for name in ("shape", "knobs"):
        values[name] = None if values[name] is None else json.loads(values[name])
    for name in ("run_secs", "confirmed_secs"):
        values[name] = tuple(json.loads(values[name]))
    values["status"] = Status(values["status"])
    values["verified"] = bool(values["verified"])
    return Record(**values)
