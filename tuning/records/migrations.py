"""The database's schema, version by version: what brings a file of any version to the newest one.

A new file takes every step too, so that new and migrated files cannot differ. A step is never changed once
released: a change of the schema is a step more, and a frozen file of the old version in the tests.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable

from .candidate import knob_key
from .compatibility import target_key


def _version_1(connection: sqlite3.Connection) -> None:
    """Make workloads, each stored once, and records."""
    connection.execute("CREATE TABLE workloads (hash TEXT PRIMARY KEY, ir TEXT NOT NULL)")
    connection.execute("""
        CREATE TABLE records (
            id TEXT PRIMARY KEY, created TEXT NOT NULL, operator TEXT NOT NULL,
            shape TEXT NOT NULL, dtype TEXT NOT NULL, workload_hash TEXT NOT NULL REFERENCES workloads (hash),
            target TEXT NOT NULL, machine_fingerprint TEXT NOT NULL, space TEXT NOT NULL,
            strategy TEXT NOT NULL, seed INTEGER NOT NULL, knobs TEXT, trace TEXT, status TEXT NOT NULL,
            verified INTEGER NOT NULL, max_error REAL, run_secs TEXT NOT NULL, build_s REAL,
            message TEXT NOT NULL, tvm_version TEXT NOT NULL, tunesmith_version TEXT NOT NULL,
            confirmed_secs TEXT NOT NULL)""")


def _version_2(connection: sqlite3.Connection) -> None:
    """Add how a record was measured, numbers in the order of writing, and one record a candidate."""
    connection.execute("ALTER TABLE records RENAME TO records_1")
    # AUTOINCREMENT: no number is given twice, whatever is removed; "newer than" relies on it.
    connection.execute("""
        CREATE TABLE records (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE, created TEXT NOT NULL, operator TEXT NOT NULL,
            shape TEXT NOT NULL, dtype TEXT NOT NULL, workload_hash TEXT NOT NULL REFERENCES workloads (hash),
            target TEXT NOT NULL, target_key TEXT NOT NULL, machine_fingerprint TEXT NOT NULL,
            device TEXT NOT NULL, space TEXT NOT NULL, strategy TEXT NOT NULL, seed INTEGER NOT NULL,
            key TEXT, knobs TEXT, trace TEXT, status TEXT NOT NULL, verified INTEGER NOT NULL, max_error REAL,
            run_secs TEXT NOT NULL, confirmed_secs TEXT NOT NULL, calls INTEGER NOT NULL, cache TEXT NOT NULL,
            threads INTEGER NOT NULL, build_s REAL, binary TEXT NOT NULL, same_as TEXT NOT NULL,
            message TEXT NOT NULL, tvm_version TEXT NOT NULL, tunesmith_version TEXT NOT NULL)""")
    kept = """id, created, operator, shape, dtype, workload_hash, target, machine_fingerprint, space,
        strategy, seed, knobs, trace, status, verified, max_error, run_secs, confirmed_secs, build_s, message,
        tvm_version, tunesmith_version"""
    connection.execute(f"""
        INSERT INTO records ({kept}, target_key, device, calls, cache, threads, binary, same_as)
        SELECT {kept}, '', 'local', 0, 'warm', 0, '', '' FROM records_1 ORDER BY rowid""")
    connection.execute("DROP TABLE records_1")
    for (target,) in connection.execute("SELECT DISTINCT target FROM records").fetchall():
        connection.execute("UPDATE records SET target_key = ? WHERE target = ?", (target_key(target), target))
    connection.execute("""
        CREATE UNIQUE INDEX one_record_a_candidate ON records
            (workload_hash, target_key, space, machine_fingerprint, device, key) WHERE key IS NOT NULL""")
    connection.execute("CREATE INDEX records_by_workload ON records (workload_hash, target_key, space)")
    knobs = connection.execute(
        "SELECT number, knobs FROM records WHERE knobs IS NOT NULL ORDER BY number"
    ).fetchall()
    # Of a candidate that was measured more than once the first record stands for it; none is dropped.
    connection.executemany(
        "UPDATE OR IGNORE records SET key = ? WHERE number = ?",
        [(knob_key(json.loads(text)), number) for number, text in knobs],
    )


def _version_3(connection: sqlite3.Connection) -> None:
    """Let a candidate have a record for warm caches and one for cold ones: their times do not compare."""
    connection.execute("DROP INDEX one_record_a_candidate")
    connection.execute("""
        CREATE UNIQUE INDEX one_record_a_candidate ON records
            (workload_hash, target_key, space, machine_fingerprint, device, cache, key)
            WHERE key IS NOT NULL""")


STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = (_version_1, _version_2, _version_3)
"""The step at index n brings a file of version n to version n + 1, inside a transaction of the caller's."""

SCHEMA_VERSION = len(STEPS)


def migrate(connection: sqlite3.Connection) -> None:
    """Take the steps that a file lacks, within the transaction that is open."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, step in enumerate(STEPS[version:], version + 1):
        step(connection)
        connection.execute(f"PRAGMA user_version = {number}")
