"""The database: the store of records, one SQLite file.

Every trial is committed as it ends, so a process killed at any instant loses at most the trial that
was running. Several processes may write at once. Everything stored is text and numbers: loading a
record executes nothing that came with it.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..machine.errors import InputError
from .record import Record, Status

SCHEMA_VERSION = 1
# Written into the file's header ("TnSm"), so that any other SQLite file is recognized as such.
APPLICATION_ID = 0x546E536D
# How long a writer waits for another one, in milliseconds.
BUSY_TIMEOUT_MS = 30_000

_SCHEMA = """
CREATE TABLE workloads (hash TEXT PRIMARY KEY, ir TEXT NOT NULL);
CREATE TABLE records (
    id TEXT PRIMARY KEY, created TEXT NOT NULL, operator TEXT NOT NULL,
    shape TEXT NOT NULL, dtype TEXT NOT NULL, workload_hash TEXT NOT NULL REFERENCES workloads (hash),
    target TEXT NOT NULL, machine_fingerprint TEXT NOT NULL, space TEXT NOT NULL, strategy TEXT NOT NULL,
    seed INTEGER NOT NULL, knobs TEXT, trace TEXT, status TEXT NOT NULL,
    verified INTEGER NOT NULL, max_error REAL, run_secs TEXT NOT NULL, build_s REAL,
    message TEXT NOT NULL, tvm_version TEXT NOT NULL, tunesmith_version TEXT NOT NULL,
    confirmed_secs TEXT NOT NULL);
CREATE INDEX records_by_workload ON records (workload_hash, target, space);
"""
_COLUMNS = tuple(f.name for f in fields(Record) if f.name != "workload_ir")
_SELECT = f"SELECT {', '.join('r.' + c for c in _COLUMNS)} FROM records r"
# Offsets in an SQLite file's header (https://www.sqlite.org/fileformat.html).
_MAGIC = b"SQLite format 3\0"
_APPLICATION_ID_AT = slice(68, 72)


class Database:
    """The records in one SQLite file.

    Parameters
    ----------
    path : path-like
        The file.
    create : bool
        Whether to create it where it does not exist.

    Raises
    ------
    InputError
        The file is missing, cannot be opened, is no tunesmith database, or was written by a newer version.
        Such a file is left as it is.
    """

    def __init__(self, path: str | Path, create: bool = True) -> None:
        self.path = Path(path)
        self._require_database_file(create)
        with self._explained():
            # Transactions are opened and ended by hand: what is committed when shall be visible here.
            self._connection = sqlite3.connect(
                self.path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None
            )
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Database:
        """Return the database itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; every record added is in it already."""
        self._connection.close()

    def require_writable(self) -> None:
        """Raise InputError where records could not be added, before any work is done for them."""
        with self._transaction():
            pass

    def add(self, record: Record) -> None:
        """Commit one record: once this returns it is on disk.

        Raises
        ------
        InputError
            The file cannot be written: the disk is full, or another process holds it.
        """
        row = {name: _stored(getattr(record, name)) for name in _COLUMNS}
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO workloads (hash, ir) VALUES (?, ?)",
                (record.workload_hash, record.workload_ir),
            )
            values = ", ".join(f":{name}" for name in _COLUMNS)
            connection.execute(f"INSERT INTO records ({', '.join(_COLUMNS)}) VALUES ({values})", row)

    def confirm(self, workload_hash: str, target: str, seconds: Mapping[str, tuple[float, ...]]) -> None:
        """Store the comparison that ends a tuning: seconds of each finalist, by record id.

        Earlier confirmations of this workload and target are dropped: times of different hours are
        not compared with each other.
        """
        with self._transaction() as connection:
            connection.execute(
                "UPDATE records SET confirmed_secs = '[]' WHERE workload_hash = ? AND target = ?",
                (workload_hash, target),
            )
            connection.executemany(
                "UPDATE records SET confirmed_secs = ? WHERE id = ?",
                [(json.dumps(list(secs)), record_id) for record_id, secs in seconds.items()],
            )

    def records(
        self, workload_hash: str | None = None, target: str | None = None, space: str | None = None
    ) -> list[Record]:
        """Return the records, oldest first; each argument given narrows the choice."""
        wanted = {"workload_hash": workload_hash, "target": target, "space": space}
        given = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"r.{name} = :{name}" for name in given)
        return self._query(f"{'WHERE ' + where if where else ''} ORDER BY r.rowid", given)

    def best(self, workload_hash: str, target: str) -> Record | None:
        """Return the verified record to apply to a workload on a target, by `Record.rank`."""
        found = self._query(
            "WHERE r.workload_hash = :workload_hash AND r.target = :target "
            "AND r.status = 'ok' AND r.verified",
            {"workload_hash": workload_hash, "target": target},
        )
        return min((r for r in found if r.usable), key=lambda r: r.rank, default=None)

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
        with self._explained():
            row = self._connection.execute(
                "SELECT ir FROM workloads WHERE hash = ?", (workload_hash,)
            ).fetchone()
        if row is None:
            raise InputError(
                f"{self.path}: no workload has the hash {workload_hash!r}; list them with: db ls"
            )
        return str(row[0])

    def as_meta_schedule(self, target: Any) -> Any:
        """Return the verified records of one target as a MetaSchedule database."""
        from .meta_database import MetaScheduleDatabase

        return MetaScheduleDatabase(self, target)

    def _query(self, where: str, values: Mapping[str, Any]) -> list[Record]:
        with self._explained():
            rows = self._connection.execute(f"{_SELECT} {where}", values).fetchall()
        # One text for all records of a workload: it is far longer than they are.
        hashes = {row[_COLUMNS.index("workload_hash")] for row in rows}
        texts = {workload_hash: self.workload_ir(workload_hash) for workload_hash in hashes}
        return [_record(row, texts) for row in rows]

    def _require_database_file(self, create: bool) -> None:
        """Refuse a file that is something else from its header alone: SQLite might touch it."""
        if self.path.is_dir() or not self.path.parent.is_dir():
            what = "it is a folder" if self.path.is_dir() else f"the folder {self.path.parent} does not exist"
            raise InputError(f"cannot open the database {self.path}: {what}; give the path of a file")
        try:
            header = self.path.read_bytes()[:100] if self.path.exists() else b""
        except OSError as error:
            raise InputError(f"cannot read the database {self.path}: {error.strerror}") from error
        if not header and create:
            return
        if not header:
            raise InputError(
                f"there is no database {self.path}; a tuning creates it: tunesmith tune ... --db FILE"
            )
        if header[:16] != _MAGIC or int.from_bytes(header[_APPLICATION_ID_AT], "big") != APPLICATION_ID:
            raise InputError(
                f"{self.path} is not a tunesmith database; it was left as it is: give another path"
            )

    def _prepare(self) -> None:
        """Check the version, and create the tables in a new file."""
        with self._explained():
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise InputError(
                f"{self.path} was written by a newer tunesmith (database version {version}, this one reads "
                f"up to {SCHEMA_VERSION}); upgrade tunesmith: the file was left as it is"
            )
        if version == 0:
            self._create_tables()
            self._use_write_ahead_log()

    def _create_tables(self) -> None:
        with self._transaction() as connection:
            # Another process may have been faster.
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _use_write_ahead_log(self) -> None:
        """Let readers read while a writer writes; SQLite's own waiting does not cover this step."""
        deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn SQLite's errors into a line that names the file."""
        try:
            yield
        except sqlite3.Error as error:
            raise InputError(
                f"the database {self.path} cannot be used: {error}; check the file's rights, the free disk "
                "space, and whether another process holds it"
            ) from error


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
