"""The commands that move records: merge, prune, export, import, check."""

import dataclasses
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
import tunesmith as ts
from tunesmith.cli.db.export import FORMATS
from tunesmith.machine.target import target_text
from tunesmith.tuning.records import exchange

BEST, FAILED = "f57be17b9ed9", "e39bc670a622"


@pytest.fixture
def frozen(run):
    """A copy of the frozen database (tests/tuning/data) in the current folder."""
    data = Path(__file__).parents[1] / "tuning" / "data" / "records_v1.db"
    return shutil.copy(data, "frozen.db")


def test_the_formats_are_those_of_the_exchange():
    assert FORMATS == exchange.FORMATS


def test_databases_are_merged(run, frozen):
    copy = shutil.copy(frozen, "copy.db")
    (first, second) = run("db", "merge", frozen, copy, "--db", "all.db", "--json").rows
    assert (first["new"], first["known"], second["new"], second["known"]) == (7, 0, 0, 7)
    outcome = run("db", "merge", frozen, "--db", "all.db")
    assert outcome.status == 0 and outcome.stdout.split()[-4:] == ["frozen.db", "0", "7", "0"]


def test_what_is_left_out_is_told_and_the_status_is_1(run, frozen):
    run("db", "export", "r.jsonl", "--db", frozen)
    Path("r.jsonl").write_text("\n" + Path("r.jsonl").read_text())
    outcome = run("db", "import", "r.jsonl", "--any-target", "--db", "new.db")
    assert outcome.status == 1
    assert outcome.stderr == "r.jsonl: left out r.jsonl:1: the line is blank\n"
    (row,) = run("db", "import", "r.jsonl", "--any-target", "--db", "new.db", "--json").rows
    assert (row["known"], row["problems"]) == (7, [{"where": "r.jsonl:1", "reason": "the line is blank"}])


def test_records_go_out_and_come_in(run, frozen):
    with ts.Database(frozen) as database:
        target = database.get(BEST).target
    for path, format, count in (("r.jsonl", "jsonl", 7), ("logs", "meta-schedule", 6)):
        words = ["--format", format, "--target", target, "--db", frozen, "--json"]
        assert run("db", "export", path, *words).rows == [{"file": path, "format": format, "records": count}]
    first, second = run("db", "import", "r.jsonl", "logs", "--target", target, "--db", "n.db", "--json").rows
    assert (first["new"], second["new"]) == (7, 6)


def test_what_metaschedule_made_is_verified_where_that_is_asked_for(run, frozen):
    target = {**json.loads(target_text(ts.host_target())), "tag": "another name"}
    with ts.Database(frozen) as database:
        record = database.get("6f42597b7a8b")
    with ts.Database("here.db") as database:
        database.add(dataclasses.replace(record, target=json.dumps(target)))
    run("db", "export", "logs", "--format", "meta-schedule", "--db", "here.db")
    outcome = run("db", "import", "logs", "--verify", "--db", "new.db", "--json")
    assert outcome.rows[0]["new"] == 1
    assert outcome.stderr == "1 imported records were tried here: 1 are right and may be applied\n"
    (best,) = run("db", "best", "--db", "new.db", "--json").rows
    assert best["verified"] is True and best["space"] == "sketch"


def test_without_a_record_to_write_the_status_is_1(run, frozen):
    assert run("db", "export", "r.jsonl", "--target", "c", "--db", frozen).status == 1


def test_records_are_pruned(run, frozen):
    trial = run("db", "prune", "--keep", "2", "--dry-run", "--db", frozen, "--json")
    assert len(trial.rows) == 5 and trial.stderr == "5 records would be removed, 2 stay\n"
    outcome = run("db", "prune", "--status", "schedule_error", "--operator", "matmul", "--db", frozen)
    assert FAILED in outcome.stdout and outcome.stderr == "1 records were removed, 6 stay\n"
    assert run("db", "prune", BEST[:4], "--db", frozen, "--json").rows[0]["id"] == BEST
    assert run("db", "prune", "--older-than", "0", "--db", frozen).stderr.endswith(", 1 stay\n")


def test_a_sound_database_is_said_to_be_so(run, frozen):
    outcome = run("db", "check", "--deep", "--db", frozen)
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, "", "frozen.db: nothing is wrong\n")
    assert run("db", "check", "--db", frozen, "--json").stdout == ""


def test_damage_is_told_and_the_status_is_1(run, frozen):
    run("db", "ls", "--db", frozen)
    with sqlite3.connect(frozen) as connection:
        connection.execute("UPDATE records SET status = 'okk' WHERE id = ?", (BEST,))
    connection.close()
    outcome = run("db", "check", "--db", frozen)
    assert outcome.status == 1 and f"record {BEST}" in outcome.stdout and "'okk'" in outcome.stdout


@pytest.mark.parametrize("command", [["ls"], ["best"], ["show", BEST], ["explain", BEST]])
def test_a_module_in_a_database_is_not_loaded(refused, frozen, command):
    ts.Database(frozen).close()
    with sqlite3.connect(frozen) as connection:
        connection.execute("UPDATE workloads SET ir = replace(ir, 'tirx.PrimFunc', 'ffi.Module')")
    connection.close()
    assert "it holds a ffi.Module, which is no part of a loop nest" in refused("db", *command, "--db", frozen)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["merge"], "missing argument 'FILE...'"),
        (["merge", "none.db"], "there is no file none.db"),
        (["merge", "frozen.db", "--db", "frozen.db"], "frozen.db is the database that the others are merged"),
        (["prune"], "say what to remove: records, or --keep, --status, --operator or --older-than"),
        (["prune", "f57b", "--keep", "1"], "give records to remove, or options that choose them, not both"),
        (["prune", "--keep", "0"], "0 is not in the range x>=1"),
        (["prune", "zzz", "--db", "frozen.db"], "no record has an id that begins with 'zzz'"),
        (["export"], "missing argument 'FILE'"),
        (["export", "frozen.db", "--db", "frozen.db"], "frozen.db is there already; give another path"),
        (["export", "no/r.jsonl", "--db", "frozen.db"], "cannot write no/r.jsonl: No such file"),
        (["export", "r.jsonl", "--format", "json"], "'json' is not one of 'jsonl', 'meta-schedule'"),
        (["import", "none.jsonl"], "there is no file none.jsonl"),
        (["import", "frozen.db", "--target", "c", "--any-target"], "give one of them"),
        (["check"], "there is no database tunesmith.db"),
    ],
)
def test_wrong_calls_are_one_line(refused, frozen, words, message):
    assert message in refused("db", *words)
    assert [path.name for path in Path().iterdir()] == ["frozen.db"]


@pytest.mark.parametrize("command", ["explain", "merge", "prune", "export", "import", "check"])
def test_the_help_has_an_example(run, command):
    assert f"tunesmith db {command} " in run("db", command, "--help").stdout
