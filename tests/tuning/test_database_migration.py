import os
import shutil
import sqlite3
from pathlib import Path

import pytest
import tunesmith as ts
from tunesmith.tuning import migrations
from tunesmith.tuning.candidate import knob_key
from tunesmith.tuning.record import Status

FROZEN = Path(__file__).parent / "data" / "records_v1.db"
BEST = "f57be17b9ed9"


@pytest.fixture
def old(tmp_path):
    """A copy of the frozen file of version 1."""
    return Path(shutil.copy(FROZEN, tmp_path / "old.db"))


def tables(path):
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name")
        return found.fetchall()


def raw_rows(path, columns):
    with sqlite3.connect(path) as connection:
        return connection.execute(f"SELECT {columns} FROM records ORDER BY rowid").fetchall()


def test_an_old_file_opens_and_gives_the_same_best(old):
    with ts.Database(old) as database:
        records = database.records()
        assert [str(r.status) for r in records] == ["ok"] * 6 + ["schedule_error"]
        best = database.best(records[0].workload_hash, records[0].target)
    assert best.id == BEST and best.confirmed_secs and best.knobs["mr"] == 8
    assert best.workload_ir.startswith("{") and best.trace.startswith("[")


def test_nothing_of_an_old_file_is_lost(old):
    columns = "id, created, shape, target, knobs, trace, status, run_secs, confirmed_secs, message"
    before = raw_rows(old, columns)
    ts.Database(old).close()
    assert raw_rows(old, columns) == before


def test_new_fields_of_old_records_say_what_is_known(old):
    with ts.Database(old) as database:
        records = database.records()
    assert [r.key for r in records] == [r.knobs and knob_key(r.knobs) for r in records]
    assert {(r.binary, r.same_as, r.device, r.threads, r.calls, r.cache) for r in records} == {
        ("", "", "local", 0, 0, "warm")
    }


def test_a_candidate_that_an_old_file_holds_twice_keeps_both_records(old):
    with sqlite3.connect(old) as connection:
        connection.execute("CREATE TEMP TABLE again AS SELECT * FROM records WHERE id = ?", (BEST,))
        connection.execute("UPDATE again SET id = 'again'")
        connection.execute("INSERT INTO records SELECT * FROM again")
    with ts.Database(old) as database:
        assert database.get(BEST).key and database.get("again").key is None


def test_a_migrated_file_is_as_a_new_one(old, tmp_path):
    for path in (old, tmp_path / "new.db"):
        ts.Database(path).close()
    assert tables(old) == tables(tmp_path / "new.db")


def test_a_migration_that_fails_leaves_the_file_as_it_was(old, monkeypatch):
    def fails(connection):
        connection.execute("DROP TABLE records")
        connection.execute("SELECT * FROM nowhere")

    content = old.read_bytes()
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, fails))
    monkeypatch.setattr("tunesmith.tuning.database_file.SCHEMA_VERSION", 3)
    with pytest.raises(ts.InputError, match=r"from database version 1 to 3 and was left as it is: .*nowhere"):
        ts.Database(old)
    assert old.read_bytes() == content


def test_a_damaged_old_record_is_one_line_and_left_as_it_is(old):
    with sqlite3.connect(old) as connection:
        connection.execute("UPDATE records SET knobs = '{\"mr\":' WHERE id = ?", (BEST,))
    connection.close()
    with pytest.raises(ts.InputError, match=r"cannot be brought from database version 1 to 2 and was left"):
        ts.Database(old)
    assert sqlite3.connect(old).execute("PRAGMA user_version").fetchone() == (1,)


def test_old_and_new_records_lie_side_by_side(old):
    with ts.Database(old) as database:
        record = database.get(BEST)
        assert database.add(record.__class__(**{**vars(record), "id": "same"})).id == BEST
        database.add(record.__class__(**{**vars(record), "id": "next", "key": "{}"}))
        assert database.records()[-1].id == "next" and database.get("next").status is Status.OK


def test_a_file_that_may_only_be_read_is_read(old, monkeypatch):
    ts.Database(old).close()
    content = old.read_bytes()
    # What a read-only file is to its owner; the superuser may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with ts.Database(old, create=False) as database:
        assert database.get(BEST).id == BEST
        with pytest.raises(ts.InputError, match="cannot be written: it or its folder is read-only"):
            database.require_writable()
        with pytest.raises(ts.InputError, match="cannot be written: it or its folder is read-only"):
            database.add(database.records()[0])
    assert old.read_bytes() == content


def test_an_old_file_that_may_only_be_read_is_one_line(old, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ts.InputError, match=r"from database version 1 to 2 .*: .*read-only"):
        ts.Database(old)
    assert [p.name for p in old.parent.iterdir()] == ["old.db"]


def test_a_read_only_file_that_was_not_closed_is_refused(old, monkeypatch):
    ts.Database(old).close()
    old.with_name("old.db-wal").write_bytes(b"records of a process that was killed")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ts.InputError, match="it was not closed, and it or its folder is read-only; copy"):
        ts.Database(old)
