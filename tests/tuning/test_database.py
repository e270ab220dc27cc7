import dataclasses
import sqlite3

import pytest
import tunesmith as ts
from tunesmith.tuning.records.database_file import APPLICATION_ID
from tunesmith.tuning.records.migrations import SCHEMA_VERSION
from tunesmith.tuning.records.record import Record, Status

FIRST = Record(
    id="aaa1",
    created="2026-01-01T00:00:00+00:00",
    operator="matmul",
    shape={"m": 1, "layout": "NHWC"},
    dtype="float32",
    workload_hash="w1",
    workload_ir="{}",
    target="t1",
    machine_fingerprint="here",
    space="matmul",
    strategy="grid",
    seed=3,
    knobs={"mr": 8},
    trace="[]",
    status=Status.OK,
    verified=True,
    max_error=1e-7,
    run_secs=(3.0, 1.0, 2.0),
    build_s=0.5,
    message="",
    tvm_version="0.27",
    tunesmith_version="0.1",
)


def other(**changes):
    return dataclasses.replace(FIRST, **changes)


@pytest.fixture
def database(tmp_path):
    with ts.Database(tmp_path / "t.db") as database:
        yield database


def test_record_comes_back_as_it_was(database):
    failed = other(
        id="bbb",
        knobs=None,
        trace=None,
        status=Status.CRASHED,
        verified=False,
        max_error=None,
        run_secs=(),
        build_s=None,
        message="SIGSEGV",
        key="k",
        binary="b",
        same_as="aaa1",
        device="rpc:board",
        threads=4,
        calls=7,
        cache="cold",
    )
    confirmed = other(id="ccc", confirmed_secs=(4.0, 6.0))
    for record in (FIRST, failed, confirmed):
        assert database.add(record) is record
    assert database.records() == [FIRST, failed, confirmed] and confirmed.median_s == 5.0
    assert (FIRST.median_s, failed.median_s, failed.usable) == (2.0, None, False)


def test_best_is_verified_of_this_target_and_fastest(database):
    for record in (
        FIRST,
        other(id="fast", run_secs=(1.0,)),
        other(id="wrong", run_secs=(0.1,), status=Status.WRONG_RESULT, verified=False),
        other(id="unverified", run_secs=(0.1,), verified=False),
        other(id="elsewhere", run_secs=(0.1,), target="t2"),
        other(id="else", run_secs=(0.1,), workload_hash="w2"),
    ):
        database.add(record)
    assert database.best("w1", "t1").id == "fast"
    assert database.best("w1", "t3") is None
    assert [r.id for r in database.records("w1", "t2")] == ["elsewhere"]


def test_the_best_of_each_workload_and_target_are_those_that_are_applied(database):
    spelled = '{"kind":"llvm","tag":"a"}', '{"tag":"b","kind":"llvm"}'
    for record in (
        other(id="slow", target=spelled[0]),
        other(id="failed", workload_hash="w2", status=Status.CRASHED, verified=False, run_secs=()),
        other(id="fast", target=spelled[1], run_secs=(1.0,)),
        other(id="elsewhere"),
    ):
        database.add(record)
    assert [r.id for r in database.best_of_each()] == ["fast", "elsewhere"]
    assert database.best("w1", spelled[0]).id == "fast"


def test_confirmation_decides_and_replaces_the_one_before(database):
    for name, seconds in (("slow", 2.0), ("lucky", 0.5), ("new", 0.1)):
        database.add(other(id=name, run_secs=(seconds,)))
    database.confirm("w1", "t1", {"slow": (1.0,), "lucky": (1.5,)})
    assert database.best("w1", "t1").id == "slow"
    database.confirm("w1", "t1", {"new": (3.0,)})
    assert database.best("w1", "t1").id == "new"
    assert database.get("slow").confirmed_secs == ()


def test_get_takes_the_beginning_of_an_id(database):
    database.add(FIRST)
    database.add(other(id="aab2"))
    assert database.get("aaa").id == "aaa1"
    for wanted, message in (("a", "2 records have"), ("x", "no record has"), ("", "no record has")):
        with pytest.raises(ts.InputError, match=message):
            database.get(wanted)


def test_a_candidate_has_one_record_and_the_first_stays(database):
    first = database.add(other(id="first", key="k"))
    assert first == other(id="first", key="k")
    assert database.add(other(id="second", key="k", run_secs=(0.1,))) == first
    assert database.records() == [first]


def test_a_candidate_elsewhere_is_another_and_one_without_a_key_is_not_compared(database):
    elsewhere = [
        {"workload_hash": "w2"},
        {"target": "t2"},
        {"space": "sketch"},
        {"machine_fingerprint": "there"},
        {"device": "rpc:board"},
        {"key": "other"},
        {"key": None},
        {"key": None},
    ]
    records = [other(**{"id": str(n), "key": "k", **changes}) for n, changes in enumerate([{}, *elsewhere])]
    for record in records:
        assert database.add(record) is record
    for record in records[:-2]:
        assert database.add(dataclasses.replace(record, id="again")) == record
    assert database.records() == records


def test_newer_shows_what_others_added_once(database):
    with ts.Database(database.path) as theirs:
        database.add(other(id="mine"))
        found, last = database.newer("w1", "t1", 0)
        assert [r.id for r in found] == ["mine"]
        theirs.add(other(id="theirs"))
        theirs.add(other(id="not here", target="t2"))
        found, last = database.newer("w1", "t1", last)
        assert [r.id for r in found] == ["theirs"]
        assert database.newer("w1", "t1", last) == ([], last)


def test_a_number_is_never_given_twice(database):
    database.add(other(id="removed"))
    _, last = database.newer("w1", "t1", 0)
    with sqlite3.connect(database.path) as connection:
        connection.execute("DELETE FROM records")
    connection.close()
    database.add(other(id="added"))
    assert [r.id for r in database.newer("w1", "t1", last)[0]] == ["added"]


def test_several_records_are_added_at_once_or_none(database):
    database.add(other(id="known", key="k"))
    new, again, same = other(id="new"), other(id="known", run_secs=(9.0,)), other(id="same", key="k")
    assert [r.id for r in database.add_all([new, again, same])] == ["new", "known", "known"]
    assert [r.id for r in database.records()] == ["known", "new"]
    with pytest.raises(ts.InputError, match=r"NOT NULL constraint failed: records\.message"):
        database.add_all([other(id="right"), other(id="broken", message=None)])
    assert len(database.records()) == 2


def test_removed_records_are_gone_with_their_workloads(database):
    for name, workload in (("a", "w1"), ("b", "w1"), ("c", "w2")):
        database.add(other(id=name, workload_hash=workload))
    database.remove(["b", "c", "unknown"])
    assert [r.id for r in database.records()] == ["a"]
    with pytest.raises(ts.InputError, match="no workload has the hash 'w2'"):
        database.workload_ir("w2")


def test_workload_ir_is_stored_once(database):
    database.add(FIRST)
    database.add(other(id="bbb", workload_ir="ignored: the hash is known"))
    assert database.workload_ir("w1") == "{}"
    with pytest.raises(ts.InputError, match="no workload has the hash 'w9'"):
        database.workload_ir("w9")


@pytest.mark.parametrize("content", [b"not a database", b"\x89PNG\r\n", b"SQLite format 3\0" + bytes(200)])
def test_other_file_is_refused_and_left_as_it_is(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ts.InputError, match="is not a tunesmith database; it was left as it is"):
        ts.Database(path)
    assert path.read_bytes() == content and list(tmp_path.iterdir()) == [path]


def test_other_sqlite_file_is_refused(tmp_path):
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("CREATE TABLE records (id TEXT)")
    connection.close()
    with pytest.raises(ts.InputError, match="is not a tunesmith database"):
        ts.Database(tmp_path / "other.db")


def test_newer_version_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "t.db"
    ts.Database(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(ts.InputError, match=f"newer tunesmith .database version {SCHEMA_VERSION + 1}"):
        ts.Database(path)
    assert path.read_bytes() == content


def test_missing_database_and_folder_are_named(tmp_path):
    with pytest.raises(ts.InputError, match=r"there is no database .*t\.db; a tuning creates it"):
        ts.Database(tmp_path / "t.db", create=False)
    assert not (tmp_path / "t.db").exists()
    with pytest.raises(ts.InputError, match="it is a folder"):
        ts.Database(tmp_path)


def test_file_says_what_it_is(database):
    header = database.path.read_bytes()[:100]
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
    assert int.from_bytes(header[60:64], "big") == SCHEMA_VERSION
    # Write and read version 2: a write-ahead log, so that readers read while a writer writes.
    assert header[18:20] == b"\2\2"


def test_reading_executes_nothing(database):
    # A pickle that would run a command, and an expression: both come back as the text they are.
    evil = "cos\nsystem\n(S'touch /tmp/owned'\ntR."
    database.add(other(trace=evil, message="__import__('os').abort()"))
    (record,) = database.records()
    assert record.trace == evil and record.message == "__import__('os').abort()"
