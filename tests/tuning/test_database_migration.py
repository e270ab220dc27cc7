import ctypes
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest
import tunesmith as ts
from tunesmith.tuning.records import migrations
from tunesmith.tuning.records.candidate import knob_key
from tunesmith.tuning.records.migrations import SCHEMA_VERSION
from tunesmith.tuning.records.record import Status

BEST = "f57be17b9ed9"
UPGRADE = f"from database version 1 to {SCHEMA_VERSION}"


def tables(path):
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name")
        return found.fetchall()


def raw_rows(path, columns):
    with sqlite3.connect(path) as connection:
        return connection.execute(f"SELECT {columns} FROM records ORDER BY rowid").fetchall()


def test_an_old_file_opens_and_gives_the_same_best(frozen):
    with ts.Database(frozen) as database:
        records = database.records()
        assert [str(r.status) for r in records] == ["ok"] * 6 + ["schedule_error"]
        best = database.best(records[0].workload_hash, records[0].target)
    assert best.id == BEST and best.confirmed_secs and best.knobs["mr"] == 8
    assert best.workload_ir.startswith("{") and best.trace.startswith("[")


@pytest.mark.parametrize("version", [1, 2])
def test_nothing_of_an_old_file_is_lost(frozen_version, version):
    path = frozen_version(version)
    columns = "id, created, shape, target, knobs, trace, status, run_secs, confirmed_secs, message"
    before = raw_rows(path, columns)
    ts.Database(path).close()
    assert raw_rows(path, columns) == before


def test_records_of_version_2_keep_their_caches_and_may_get_the_other_kind(frozen_version):
    with ts.Database(frozen_version(2)) as database:
        records = database.records(space="matmul")
        assert [r.cache for r in records] == ["warm"] * 4 + ["cold"] * 2
        assert database.best(records[0].workload_hash, records[0].target).id == "070af5f90c4a"
        cold = replace(records[0], id="cold", cache="cold")
        assert database.add(cold) is cold
        # One of each kind.
        assert database.add(replace(cold, id="again")).id == "cold"
        assert database.add(replace(records[0], id="again")).id == records[0].id


def test_new_fields_of_old_records_say_what_is_known(frozen):
    with ts.Database(frozen) as database:
        records = database.records()
    assert [r.key for r in records] == [r.knobs and knob_key(r.knobs) for r in records]
    assert {(r.binary, r.same_as, r.device, r.threads, r.calls, r.cache) for r in records} == {
        ("", "", "local", 0, 0, "warm")
    }


def test_a_candidate_that_an_old_file_holds_twice_keeps_both_records(frozen):
    with sqlite3.connect(frozen) as connection:
        connection.execute("CREATE TEMP TABLE again AS SELECT * FROM records WHERE id = ?", (BEST,))
        connection.execute("UPDATE again SET id = 'again'")
        connection.execute("INSERT INTO records SELECT * FROM again")
    with ts.Database(frozen) as database:
        assert database.get(BEST).key and database.get("again").key is None


@pytest.mark.parametrize("version", [1, 2])
def test_a_migrated_file_is_as_a_new_one(frozen_version, version, tmp_path):
    old, new = frozen_version(version), tmp_path / "new.db"
    for path in (old, new):
        ts.Database(path).close()
    assert tables(old) == tables(new)


def test_a_migration_that_fails_leaves_the_file_as_it_was(frozen, monkeypatch):
    def fails(connection):
        connection.execute("DROP TABLE records")
        connection.execute("SELECT * FROM nowhere")

    content = frozen.read_bytes()
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, fails))
    monkeypatch.setattr("tunesmith.tuning.records.database_file.SCHEMA_VERSION", SCHEMA_VERSION + 1)
    with pytest.raises(ts.InputError, match=f"to {SCHEMA_VERSION + 1} and was left as it is: .*nowhere"):
        ts.Database(frozen)
    assert frozen.read_bytes() == content


def test_a_damaged_old_record_is_one_line_and_left_as_it_is(frozen):
    with sqlite3.connect(frozen) as connection:
        connection.execute("UPDATE records SET knobs = '{\"mr\":' WHERE id = ?", (BEST,))
    connection.close()
    with pytest.raises(ts.InputError, match=f"cannot be brought {UPGRADE} and was left"):
        ts.Database(frozen)
    assert sqlite3.connect(frozen).execute("PRAGMA user_version").fetchone() == (1,)


def test_old_and_new_records_lie_side_by_side(frozen):
    with ts.Database(frozen) as database:
        record = database.get(BEST)
        assert database.add(record.__class__(**{**vars(record), "id": "same"})).id == BEST
        database.add(record.__class__(**{**vars(record), "id": "next", "key": "{}"}))
        assert database.records()[-1].id == "next" and database.get("next").status is Status.OK


def test_a_file_that_may_only_be_read_is_read(frozen, monkeypatch):
    ts.Database(frozen).close()
    content = frozen.read_bytes()
    # What a read-only file is to its owner; the superuser may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with ts.Database(frozen, create=False) as database:
        assert database.get(BEST).id == BEST
        with pytest.raises(ts.InputError, match="cannot be written: it or its folder is read-only"):
            database.require_writable()
        with pytest.raises(ts.InputError, match="cannot be written: it or its folder is read-only"):
            database.add(database.records()[0])
    assert frozen.read_bytes() == content


def obey_file_modes():
    """Take from the superuser the right to write everywhere: drop CAP_DAC_OVERRIDE (capabilities(7))."""
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(24, 1, 0, 0, 0):
        os._exit(77)


def test_a_file_in_a_folder_where_nobody_may_write_is_read(frozen):
    ts.Database(frozen).close()
    folder = frozen.parent / "shared"
    folder.mkdir()
    path = frozen.rename(folder / "frozen.db")
    path.chmod(0o444)
    folder.chmod(0o555)
    opened = "from tunesmith.tuning.records.database import Database; database = Database(sys.argv[1])"
    code = f"import sys; {opened}; print(len(database.records()))"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            preexec_fn=obey_file_modes,
            capture_output=True,
            text=True,
        )
        if done.returncode == 77:
            pytest.skip("this superuser cannot give up his rights")
        assert (done.stdout, done.stderr) == ("7\n", "")
        assert list(folder.iterdir()) == [path]
    finally:
        folder.chmod(0o755)


def test_an_old_file_that_may_only_be_read_is_one_line(frozen, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ts.InputError, match=f"{UPGRADE} .*: .*read-only"):
        ts.Database(frozen)
    assert [p.name for p in frozen.parent.iterdir()] == ["frozen.db"]


def test_a_read_only_file_that_was_not_closed_is_refused(frozen, monkeypatch):
    ts.Database(frozen).close()
    frozen.with_name("frozen.db-wal").write_bytes(b"records of a process that was killed")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ts.InputError, match="it was not closed, and it or its folder is read-only; copy"):
        ts.Database(frozen)
