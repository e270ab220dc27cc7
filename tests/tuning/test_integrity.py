import sqlite3

import pytest
import tunesmith as ts
from tunesmith.tuning.records.integrity import check

BEST = "f57be17b9ed9"
HASH = "c17b2439103d14df"


@pytest.fixture
def damaged(frozen):
    """Change the frozen database by SQL; return what `check` finds."""

    def call(*statements, deep=False):
        ts.Database(frozen).close()
        with sqlite3.connect(frozen) as connection:
            for statement in statements:
                connection.execute(statement.format(best=f"id = '{BEST}'"))
        connection.close()
        with ts.Database(frozen, create=False) as database:
            return [(problem.where, problem.reason) for problem in check(database, deep)]

    return call


def test_a_sound_database_has_no_problem(damaged):
    assert damaged(deep=True) == []


DAMAGE = {
    "status = 'okk'": "the field status is no Status: 'okk'",
    "run_secs = '[1.0,'": "the field run_secs is no valid JSON",
    "run_secs = '[]'": "it ended as ok, and has no times",
    "run_secs = '[-1]'": "the field run_secs is no tuple",
    "knobs = '[]'": "the field knobs is no Mapping",
    "shape = 'x'": "the field shape is no valid JSON",
    "verified = 7": "the field verified is no bool",
    "seed = 'x'": "the field seed is no int",
    "target = '{{}}'": "it is filed under another target than its own",
    "message = x'ff'": "the field message is no str",
}


def test_damaged_fields_are_found(damaged):
    statements = ["CREATE TEMP TABLE one AS SELECT * FROM records WHERE {best}"]
    for n, change in enumerate(DAMAGE):
        statements += [
            f"UPDATE one SET number = {100 + n}, id = 'r{n}', key = NULL",
            "INSERT INTO records SELECT * FROM one",
            f"UPDATE records SET {change} WHERE id = 'r{n}'",
        ]
    found = damaged(*statements)
    assert [where for where, _ in found] == [f"record r{n}" for n in range(len(DAMAGE))]
    for (_, reason), expected in zip(found, DAMAGE.values(), strict=True):
        assert reason.startswith(expected)


def test_a_program_that_is_not_what_its_hash_says_is_found(damaged):
    ((where, found),) = damaged("UPDATE workloads SET ir = replace(ir, '\"data\":16', '\"data\":17')")
    assert where == f"workload {HASH}" and found.startswith("its program has the hash ")
    ((where, found),) = damaged("UPDATE workloads SET ir = '{{'")
    assert where == f"workload {HASH}" and found.startswith("it is no valid JSON")


def test_a_record_of_no_workload_is_found(damaged):
    ((where, found),) = damaged("UPDATE records SET workload_hash = 'none' WHERE {best}")
    assert where == "file" and "of records refers to no row of workloads" in found


def test_a_schedule_that_does_not_fit_is_found_where_that_is_asked_for(damaged):
    change = "UPDATE records SET trace = replace(trace, 'matmul', 'nothing') WHERE {best}"
    assert damaged(change) == []
    ((where, found),) = damaged(deep=True)
    assert where == f"record {BEST}" and found.startswith("the trace does not fit this function")


def test_damaged_pages_are_found(frozen):
    ts.Database(frozen).close()
    content = bytearray(frozen.read_bytes())
    # The last page holds no table's beginning: the file still opens.
    content[-3000:] = bytes(3000)
    frozen.write_bytes(content)
    with ts.Database(frozen, create=False) as database:
        found = check(database)
    assert found and {problem.where for problem in found} == {"file"}


def test_a_damaged_record_is_one_line_for_who_reads_it(damaged, frozen):
    damaged("UPDATE records SET status = 'okk' WHERE {best}")
    with (
        ts.Database(frozen) as database,
        pytest.raises(ts.InputError, match=f"record {BEST} is damaged: 'okk'"),
    ):
        database.records()
