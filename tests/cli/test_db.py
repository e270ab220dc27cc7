import sqlite3
from pathlib import Path

import pytest
import tunesmith as ts
from tunesmith.cli.db.rows import STATUSES
from tunesmith.tuning.records.record import Status


def test_the_statuses_are_those_of_records():
    assert list(STATUSES) == [str(status) for status in Status]


def test_every_record_is_listed(run, tuned):
    rows = run("db", "ls", "--db", tuned[0], "--json").rows
    with ts.Database(tuned[0], create=False) as database:
        assert [row["id"] for row in rows] == [record.id for record in database.records()]
    assert all(row["median_s"] > 0 and row["gflops"] > 0 and row["status"] == "ok" for row in rows)
    assert "workload_ir" not in rows[0]


def test_the_list_can_be_narrowed(run, tuned):
    assert run("db", "ls", "--db", tuned[0], "--status", "crashed", "--json").rows == []
    assert run("db", "ls", "--db", tuned[0], "--operator", "relu", "--json").rows == []
    assert len(run("db", "ls", "--db", tuned[0], "--operator", "matmul", "--json").rows) == 2


def test_the_best_record_is_the_one_that_is_applied(run, tuned):
    (row,) = run("db", "best", "--db", tuned[0], "--json").rows
    assert row["id"] == tuned[1].rows[0]["record"]
    assert row["trials"] == 2 and row["machine"] == "this one" and 0 < row["roofline_fraction"]


def test_without_a_best_record_the_status_is_1(run, tuned):
    assert run("db", "best", "--db", tuned[0], "--operator", "relu").status == 1


def test_a_record_is_shown_by_the_beginning_of_its_id(run, tuned):
    record = tuned[1].rows[0]["record"]
    table = run("db", "show", record[:8], "--db", tuned[0]).stdout
    assert record in table and "workload_ir" not in table
    (row,) = run("db", "show", record, "--db", tuned[0], "--json").rows
    assert row["id"] == record and row["verified"] is True and row["workload_ir"]


@pytest.mark.parametrize(("form", "sign"), [("tir", "T.prim_func"), ("trace", "sch.get_sblock")])
def test_a_records_schedule_is_made_again(run, tuned, form, sign):
    record = tuned[1].rows[0]["record"]
    assert sign in run("db", "show", record, "--db", tuned[0], "--as", form).stdout


def test_a_record_is_explained(run, tuned):
    record = tuned[1].rows[0]["record"]
    text = run("db", "explain", record[:8], "--db", tuned[0]).stdout
    for title in ("its loops", "the loops that ran", "knobs", "the schedule, step by step", "run", "result"):
        assert f"\n{title}:\n" in text
    assert text.count("# Find a block by its name.") == 1 and "reduced over v_k" in text
    (row,) = run("db", "explain", record, "--db", tuned[0], "--json").rows
    assert row["record"] == record and row["steps"][0]["words"] == "Find a block by its name."


def test_the_default_database_lies_in_the_current_folder(run, tuned):
    Path("tunesmith.db").write_bytes(tuned[0].read_bytes())
    assert len(run("db", "ls", "--json").rows) == 2


def test_bad_databases_are_one_line_and_left_as_they_are(refused, tuned):
    Path("notes.txt").write_text("hello")
    newer = Path("newer.db")
    newer.write_bytes(tuned[0].read_bytes())
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for command in (["ls"], ["best"], ["show", "1"], ["explain", "1"]):
        assert "there is no database tunesmith.db" in refused("db", *command)
        assert "notes.txt is not a tunesmith database" in refused("db", *command, "--db", "notes.txt")
        assert "written by a newer tunesmith (database version 99" in refused("db", *command, "--db", newer)
    assert Path("notes.txt").read_text() == "hello"


def test_an_unknown_record_is_one_line(refused, tuned):
    assert "no record has an id that begins with 'zzz'" in refused("db", "show", "zzz", "--db", tuned[0])


def test_an_unknown_status_is_one_line(refused):
    assert "'okk' is not one of 'ok'" in refused("db", "ls", "--status", "okk")
