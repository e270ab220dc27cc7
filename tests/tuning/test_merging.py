import dataclasses
import shutil
import sqlite3

import pytest
import tunesmith as ts
from tunesmith.tuning.records.merging import merge

BEST = "f57be17b9ed9"


@pytest.fixture
def into(tmp_path):
    with ts.Database(tmp_path / "into.db") as database:
        yield database


def add(path, source, *changes):
    """Make a database with records of another one, changed."""
    with ts.Database(source) as database:
        record = database.get(BEST)
    with ts.Database(path) as database:
        for change in changes:
            database.add(dataclasses.replace(record, **change))
    return path


def test_records_are_added_once(into, frozen):
    copy = shutil.copy(frozen, frozen.parent / "copy.db")
    first, second = merge([frozen, copy], into)
    assert (first.source, first.new, first.known, first.problems) == (str(frozen), 7, 0, ())
    assert (second.new, second.known) == (0, 7)
    with ts.Database(frozen) as source:
        assert into.records() == source.records()


def test_a_candidate_of_another_id_is_known_and_one_of_another_machine_is_kept(into, frozen):
    other = add(
        frozen.parent / "other.db",
        frozen,
        {"id": "again"},
        {"id": "there", "machine_fingerprint": "another"},
        {"id": "foreign", "target": "another target"},
    )
    merge([frozen], into)
    (merged,) = merge([other], into)
    assert (merged.new, merged.known) == (2, 1)
    assert [r.id for r in into.records()[-2:]] == ["there", "foreign"]


@pytest.mark.parametrize(("created", "wins"), [("2027", True), ("2001", False)])
def test_the_newer_confirmation_counts(into, frozen, created, wins):
    other = add(
        frozen.parent / "other.db",
        frozen,
        {"id": "again", "confirmed_secs": (5.0,)},
        {"id": "new", "key": "new", "created": created, "confirmed_secs": (1.0,), "run_secs": (1.0,)},
        {"id": "slow", "key": "slow", "confirmed_secs": ()},
    )
    merge([frozen], into)
    before = into.get(BEST).confirmed_secs
    merge([other], into)
    assert into.get("new").confirmed_secs == ((1.0,) if wins else ())
    assert into.get(BEST).confirmed_secs == ((5.0,) if wins else before)


def test_a_confirmation_comes_along_where_there_was_none(into, frozen):
    with ts.Database(frozen) as source:
        confirmed = source.get(BEST)
    into.add(dataclasses.replace(confirmed, confirmed_secs=()))
    merge([frozen], into)
    assert into.get(BEST).confirmed_secs == confirmed.confirmed_secs


def test_a_program_that_is_not_what_its_hash_says_is_left_out(into, frozen):
    ts.Database(frozen).close()
    with sqlite3.connect(frozen) as connection:
        connection.execute("UPDATE records SET workload_hash = 'other' WHERE space = 'sketch'")
        connection.execute("INSERT INTO workloads SELECT 'other', ir FROM workloads")
        connection.execute("UPDATE records SET workload_hash = 'evil' WHERE space = 'broken'")
        connection.execute("INSERT INTO workloads VALUES ('evil', ?)", ('{"type": "ffi.Module"}',))
    (merged,) = merge([frozen], into)
    assert merged.new == 4
    reasons = {problem.where: problem.reason for problem in merged.problems}
    assert reasons["workload other"].startswith("its program has the hash c17b")
    assert reasons["workload evil"].startswith("it holds a ffi.Module")
    assert into.workload_hashes() == {"c17b2439103d14df"}


def test_what_is_no_database_is_found_before_anything_is_added(into, frozen, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    for wrong, message in (
        ("notes.txt", "is not a tunesmith database"),
        ("none.db", "there is no database"),
        ("into.db", "is the database that the others are merged into; leave it out"),
    ):
        with pytest.raises(ts.InputError, match=message):
            merge([frozen, tmp_path / wrong], into)
    assert into.records() == []
