"""What may happen to a database while it is written: other writers, kill -9, a full disk, a lock."""

import random
import sqlite3
import subprocess
import sys
import threading

import pytest
import tunesmith as ts
from tunesmith.tuning.records.database_file import WAIT_S

KILLS = 20
# Adds records until it has added `count`, and says so after each. `shared` keys are the same in all writers.
WRITER = """
import dataclasses, resource, signal, sys
from tunesmith.tuning.records import migrations
from tunesmith.tuning.records.database import Database

path, name, count, shared, limit = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
if limit:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
with Database(path) as database:
    first = database.records()[0]
    for i in range(count):
        key = f"shared-{i}" if shared else f"{name}-{i}"
        record = dataclasses.replace(first, id=f"{name}-{i}", key=key, confirmed_secs=())
        print(database.add(record).id, flush=True)
"""
# Opens a database whose migration is cut short after the first statements of its last step.
MIGRATOR = """
import os, signal, sys
from tunesmith.tuning.records import migrations
from tunesmith.tuning.records.database import Database

def dies(connection):
    migrations._version_2(connection)
    connection.execute("DELETE FROM records")
    os.kill(os.getpid(), signal.SIGKILL)

migrations.STEPS = (migrations.STEPS[0], dies)
Database(sys.argv[1])
"""


def writer(path, name, count, shared=0, limit=0, code=WRITER):
    command = [sys.executable, "-c", code, str(path), name, *map(str, (count, shared, limit))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ids(path):
    """Return the ids in a database that was left as it is, after a look at the whole of it."""
    with ts.Database(path, create=False) as database:
        assert database.file_problems() == []
        found = [record.id for record in database.records()]
    assert len(found) == len(set(found))
    return found


def test_four_writers_lose_nothing_and_write_nothing_twice(frozen):
    writers = [writer(frozen, str(n), 50) for n in range(4)]
    reported = [w.communicate()[0].split() for w in writers]
    assert [len(each) for each in reported] == [50] * 4
    assert sorted(ids(frozen)[7:]) == sorted(name for each in reported for name in each)


def test_four_writers_of_the_same_candidates_agree_on_their_records(frozen):
    writers = [writer(frozen, str(n), 50, shared=1) for n in range(4)]
    reported = [w.communicate()[0].split() for w in writers]
    assert reported[0] == reported[1] == reported[2] == reported[3] == ids(frozen)[7:]
    assert len(reported[0]) == 50


def test_processes_that_meet_at_an_old_or_a_new_file_all_open_it(frozen, tmp_path):
    code = "import sys; from tunesmith.tuning.records.database import Database; Database(sys.argv[1]).close()"
    for path in (frozen, tmp_path / "new.db"):
        openers = [writer(path, "", 0, code=code) for _ in range(4)]
        assert [opener.wait() for opener in openers] == [0] * 4
    assert len(ids(frozen)) == 7 and ids(tmp_path / "new.db") == []


def test_kill_9_at_any_instant_loses_nothing_that_was_reported(frozen):
    reported: list[str] = []
    for n in range(KILLS):
        process = writer(frozen, str(n), 10_000)
        lines = [process.stdout.readline() for _ in range(random.randrange(1, 30))]
        process.kill()
        reported += [line.strip() for line in (*lines, *process.stdout)]
        assert process.wait() == -9
    found = ids(frozen)[7:]
    assert set(reported) <= set(found)
    # Written and not yet reported: at most the record that each kill met.
    assert len(found) <= len(reported) + KILLS


def test_kill_9_in_the_middle_of_a_migration_leaves_the_old_file(frozen):
    process = writer(frozen, "", 0, code=MIGRATOR)
    process.communicate()
    assert process.returncode == -9
    with sqlite3.connect(frozen) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()
    assert len(ids(frozen)) == 7


def test_a_full_disk_is_one_line_and_no_damage(frozen):
    ids(frozen)
    limit = frozen.stat().st_size + 50_000
    process = writer(frozen, "full", 1000, limit=limit)
    reported, errors = process.communicate()
    last = errors.strip().splitlines()[-1]
    assert (
        f"InputError: the database {frozen} cannot be used: disk I/O error; check the file's rights" in last
    )
    assert "the free disk space" in last
    assert ids(frozen)[7:] == reported.split() and len(reported.split()) > 3
    assert writer(frozen, "more", 5).communicate()[0].split() == ids(frozen)[-5:]


def test_a_file_that_may_not_grow_is_one_line_and_no_damage(frozen):
    with ts.Database(frozen) as database:
        first = database.records()[0]
        pages = database._file.rows("PRAGMA page_count")[0][0]
        database._file.rows(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(ts.InputError, match=r"^the database .* cannot be used: .*disk is full; [^\n]*$"):
            database.add_all([vary(first, id=f"r{n}", key=f"r{n}") for n in range(100)])
        assert len(database.records()) == 7
    assert len(ids(frozen)) == 7


@pytest.mark.parametrize("what", ["create", "migrate"])
def test_a_disk_that_is_full_at_once_leaves_the_file_as_it_was(frozen, tmp_path, what):
    path, limit = (tmp_path / "new.db", 1000) if what == "create" else (frozen, 50_000)
    content = frozen.read_bytes()
    _, errors = writer(path, "full", 1, limit=limit).communicate()
    last = errors.strip().splitlines()[-1]
    assert f"InputError: {path} cannot be brought" in last or f"InputError: the database {path}" in last
    assert frozen.read_bytes() == content
    assert len(ids(frozen)) == 7
    if what == "create":
        ts.Database(path).close()
        assert ids(path) == []


def vary(record, **changes):
    return record.__class__(**{**vars(record), **changes})


def held(path):
    """Hold a database as a process does that never ends its transaction."""
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    return holder


def test_a_locked_file_is_one_line_and_is_read_nevertheless(frozen):
    with ts.Database(frozen, wait_s=0.05) as database:
        record = vary(database.records()[0], id="new", key="new")
        holder = held(frozen)
        for write in (
            lambda: database.add(record),
            database.require_writable,
            lambda: database.remove(["x"]),
        ):
            with pytest.raises(
                ts.InputError, match=r"^the database .* cannot be used: database is locked; [^\n]*$"
            ):
                write()
        assert len(database.records()) == 7
        holder.execute("ROLLBACK")
        assert database.add(record) == record
    assert len(ids(frozen)) == 8


def test_a_lock_at_the_migration_leaves_the_old_file(frozen):
    holder, content = held(frozen), frozen.read_bytes()
    with pytest.raises(ts.InputError, match=r"cannot be brought .* and was left as it is: .* is locked;"):
        ts.Database(frozen, wait_s=0.05)
    holder.close()
    assert frozen.read_bytes() == content and len(ids(frozen)) == 7


def test_a_writer_waits_for_another_one(frozen):
    assert WAIT_S >= 30
    with ts.Database(frozen) as database:
        record = vary(database.records()[0], id="new", key="new")
        holder = sqlite3.connect(frozen, isolation_level=None, check_same_thread=False)
        holder.execute("BEGIN EXCLUSIVE")
        release = threading.Timer(0.1, lambda: holder.execute("ROLLBACK"))
        release.start()
        assert database.add(record) == record
        release.join()


def test_a_database_needs_no_tvm():
    """Writers and readers that are many start at once."""
    code = "import sys, tunesmith.tuning.records.database; print('tvm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
