"""The ledger: what is known of a workload's candidates, whoever found it out."""

from dataclasses import replace
from itertools import count

import pytest
import tunesmith as ts
from tunesmith.machine.target import host_target, target_text
from tunesmith.tuning.ledger import Ledger
from tunesmith.tuning.records.candidate import knob_candidate, knob_key
from tunesmith.tuning.records.record import Record, Status
from tunesmith.tuning.search import search_for

INF = float("inf")
IDS = count()
HERE = "this machine"


@pytest.fixture
def database(tmp_path):
    with ts.Database(tmp_path / "t.db") as opened:
        yield opened


@pytest.fixture
def trial(small):
    """Make the record of a trial: which rows, how many seconds, what else."""

    def make(rows, seconds=1.0, **fields):
        knobs = {"rows": rows, "columns": 8}
        record = Record(
            id=f"{next(IDS):012}",
            created="2026-01-01T00:00:00+00:00",
            operator=small.name,
            shape=dict(small.shape),
            dtype=small.dtype,
            workload_hash=small.hash,
            workload_ir="{}",
            target=target_text(host_target()),
            machine_fingerprint=HERE,
            space="tiles",
            strategy="grid",
            seed=0,
            knobs=knobs,
            trace=None,
            status=Status.OK,
            verified=True,
            max_error=0.0,
            run_secs=(seconds,),
            build_s=0.1,
            message="",
            tvm_version="",
            tunesmith_version="",
            key=knob_key(knobs),
            binary=f"binary of {rows}",
        )
        return replace(record, **fields)

    return make


@pytest.fixture
def ledger(small, tiles, database):
    """Open a ledger on the database as it is when it is called."""
    search = search_for(small, host_target(), tiles)
    of = (small.hash, target_text(host_target()), HERE)
    return lambda cache="warm": Ledger(search, database, *of, cache)


FAILED = {"status": Status.CRASHED, "verified": False, "run_secs": ()}


def test_best_and_counts_follow_the_trials(ledger, trial):
    book = ledger()
    assert (book.best_s, book.best, book.tried_default) == (INF, None, False)
    for record in (trial(1, **FAILED), trial(2, 3.0), trial(4, 2.0), trial(8, 5.0), trial(16, 2.5)):
        assert book.add(record) is record
    assert book.best_after == [INF, 3.0, 2.0, 2.0, 2.0] and book.best_s == 2.0
    assert book.counts == {Status.OK: 4, Status.CRASHED: 1} and book.without_gain == 2
    assert [r.run_secs[0] for r in book.fastest(2)] == [2.0, 2.5]
    # The default of the space is rows=4.
    assert book.tried_default and book.default.knobs["rows"] == 4


def test_what_is_wrong_is_never_best(ledger, trial):
    book = ledger()
    book.add(trial(2, 1e-9, verified=False))
    book.add(trial(4, 1e-9, status=Status.WRONG_RESULT, verified=False))
    assert book.best is None and not book.fastest(3)
    # The default is known to fail: it is not tried again, and nobody can fall back on it.
    assert book.tried_default and book.default is None


def test_earlier_sessions_are_known_and_count_for_none_of_this_one(ledger, trial, database):
    database.add(trial(2, 3.0))
    book = ledger()
    assert len(book.records) == 1 and book.best_s == 3.0
    assert book.counts == {} and book.take_up() == []
    # The budget goes on from where they came to.
    assert book.best_after == [3.0]
    assert book.of_candidate(knob_candidate({"columns": 8, "rows": 2})).run_secs == (3.0,)
    assert book.of_candidate(knob_candidate({"columns": 8, "rows": 4})) is None


def test_what_others_add_is_taken_up_once(ledger, trial, database):
    book = ledger()
    book.add(trial(2, 3.0))
    theirs = database.add(trial(4, 1.0))
    assert [r.id for r in book.take_up()] == [theirs.id] and book.take_up() == []
    assert book.best_s == 1.0 and len(book.records) == 2


@pytest.mark.parametrize("seen", [True, False])
def test_candidate_that_another_process_was_faster_with_is_there_once(ledger, trial, database, seen):
    book = ledger()
    theirs = database.add(trial(2, 3.0))
    if seen:
        book.take_up()
    assert book.add(trial(2, 1.0)).id == theirs.id
    assert [r.id for r in book.records] == [theirs.id] and book.take_up() == []
    assert (book.best_s, book.best_after, book.counts) == (3.0, [3.0], {Status.OK: 1})
    # Their trial is no gain of this session's where it was known before.
    assert book.without_gain == int(seen)


def test_other_machines_do_not_compare(ledger, trial, database):
    elsewhere = {"machine_fingerprint": "another machine"}
    database.add(trial(2, 1e-6, **elsewhere))
    book = ledger()
    assert book.best is None and book.fastest(3) == [] and book.of_binary("binary of 2") is None
    book.add(trial(8, 2.0))
    assert book.best_s == 2.0 and [r.run_secs for r in book.fastest(3)] == [(2.0,)]


def test_warm_and_cold_caches_do_not_compare(ledger, trial, database):
    database.add(trial(2, 1e-6))
    cold = ledger("cold")
    assert cold.records == [] and cold.best is None and cold.of_binary("binary of 2") is None
    assert cold.of_candidate(knob_candidate({"columns": 8, "rows": 2})) is None
    mine = cold.add(trial(2, 2.0, cache="cold"))
    assert cold.best_s == 2.0 and [r.id for r in cold.records] == [mine.id]
    warm = ledger()
    assert warm.best_s == 1e-6 and len(warm.records) == 1


def test_equal_binaries_are_found_where_they_were_measured(ledger, trial):
    book = ledger()
    first = book.add(trial(2, 3.0, binary="equal"))
    book.add(trial(4, 3.0, binary="equal", same_as=first.id))
    book.add(trial(8, binary="", run_secs=(9.0,)))
    book.add(trial(16, binary="crashes", **FAILED))
    assert book.of_binary("equal").id == first.id
    # One that crashed may have been killed: it is given another chance.
    assert book.of_binary("") is None and book.of_binary("crashes") is None
    # Of equal binaries one takes part in the comparison.
    assert next(r.id for r in book.fastest(9)) == first.id and len(book.fastest(9)) == 2


def test_other_spaces_give_the_default_and_the_best_but_no_trials(small, database, trial, ledger):
    database.add(trial(4, 2.0))
    search = search_for(small, host_target(), "sketch")
    search = replace(
        search, default_rule=replace(search.default_rule, name="tiles"), default=ledger()._search.default
    )
    book = Ledger(search, database, small.hash, target_text(host_target()), HERE, "warm")
    assert book.records == [] and book.default.knobs["rows"] == 4 and book.best_s == 2.0
    assert book.tried_default and book.fastest(3) == []


def test_other_workloads_and_targets_are_not_looked_at(ledger, trial, database):
    database.add(trial(2, workload_hash="another"))
    database.add(trial(4, target='{"kind": "cuda"}'))
    assert ledger().records == []
