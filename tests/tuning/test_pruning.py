import dataclasses
from datetime import datetime, timedelta, timezone

import pytest
import tunesmith as ts
from tunesmith.tuning.records.pruning import prune

CONFIRMED, FASTEST, FAILED = "f57be17b9ed9", "6f42597b7a8b", "e39bc670a622"


@pytest.fixture
def database(frozen):
    """Open the frozen database: its records by time are CONFIRMED, FASTEST and four others; one FAILED."""
    with ts.Database(frozen) as database:
        yield database


def ids(records):
    return {record.id for record in records}


def by_time(database):
    return [r.id for r in sorted(database.records(), key=lambda r: r.rank)]


def test_the_best_of_a_workload_and_target_stay(database):
    order, everything = by_time(database), database.records()
    assert order[:2] == [CONFIRMED, FASTEST] and order[-1] == FAILED
    removed = prune(database, keep=2)
    assert ids(removed) == set(order[2:]) and ids(database.records()) == set(order[:2])
    assert prune(database, keep=2) == []
    assert database.best(everything[0].workload_hash, everything[0].target).id == CONFIRMED


def test_each_target_keeps_its_own(database):
    database.add(dataclasses.replace(database.get(FASTEST), id="there", target="another"))
    prune(database)
    assert ids(database.records()) == {CONFIRMED, "there"}


def test_confirmed_ones_stay_unless_they_are_named(database):
    best = database.get(CONFIRMED)
    database.confirm(best.workload_hash, best.target, {CONFIRMED: (2.0,), FASTEST: (1.0,)})
    prune(database, keep=1)
    assert ids(database.records()) == {CONFIRMED, FASTEST}
    assert ids(prune(database, records=[CONFIRMED[:4], CONFIRMED])) == {CONFIRMED}
    assert ids(database.records()) == {FASTEST}


def test_what_is_removed_can_be_narrowed(database):
    assert ids(prune(database, statuses=["schedule_error", "crashed"], dry_run=True)) == {FAILED}
    assert prune(database, operator="relu") == []
    assert len(prune(database, operator="matmul", dry_run=True)) == 6
    assert len(prune(database, operator="matmul", statuses=["ok"], dry_run=True)) == 5


def test_old_ones_can_be_removed(database):
    for name, days in (("old", 9), ("young", 7)):
        created = (datetime.now(timezone.utc) - timedelta(days=days)).isoformat(timespec="milliseconds")
        changes = {"id": name, "key": name, "created": created, "workload_hash": name, "verified": False}
        database.add(dataclasses.replace(database.get(FAILED), **changes))
    removed = ids(prune(database, older_than_days=8, dry_run=True))
    assert "old" in removed and "young" not in removed


def test_a_dry_run_removes_nothing(database):
    assert len(prune(database, dry_run=True)) == 6
    assert len(database.records()) == 7


def test_a_removed_candidate_may_be_added_again(database):
    record = database.get("2f831f901b74")
    prune(database)
    assert database.add(record) is record


def test_wrong_calls_are_refused(database):
    with pytest.raises(ts.InputError, match="keep must be at least 1: keep=0"):
        prune(database, keep=0)
    with pytest.raises(ts.InputError, match="no record has an id that begins with 'zzz'"):
        prune(database, records=[CONFIRMED, "zzz"])
    assert len(database.records()) == 7
