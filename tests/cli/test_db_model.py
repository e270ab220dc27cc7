import dataclasses

import pytest
import tunesmith as ts
from tunesmith.tuning.learning import cost_model
from tunesmith.tuning.records.record import Record, Status

POINTS = [{"rows": r, "columns": c} for r in (1, 2, 4, 8) for c in (1, 2, 4, 8)]
FIRST = Record(
    id="", created="", operator="op", shape={"m": 8}, dtype="float32", workload_hash="h", workload_ir="{}",
    target="t", machine_fingerprint="", space="s", strategy="", seed=0, knobs=None, trace=None,
    status=Status.OK, verified=True, max_error=None, run_secs=(1.0,), build_s=None, message="",
    tvm_version="", tunesmith_version="",
)  # fmt: skip


@pytest.fixture
def database(tmp_path):
    """One space with trials enough for a report, and one with a single trial."""
    with ts.Database(tmp_path / "tuned.db") as database:
        for i, point in enumerate(POINTS):
            secs = (1.0 + abs(point["rows"] * point["columns"] - 16) / 16,)
            database.add(dataclasses.replace(FIRST, id=f"a{i}", knobs=point, key=str(i), run_secs=secs))
        database.add(dataclasses.replace(FIRST, id="b", space="other", knobs={"a": 1}, key="b"))
    return database.path


def test_the_model_of_a_space_is_reported(run, database):
    (row,) = run("db", "model", "--space", "s", "--db", database, "--json").rows
    assert (row["operator"], row["trials"], row["transfer_correlation"]) == ("op", 16, None)
    assert row["rank_correlation"] > 0.5 and len(row["predictions"]) == 16
    table = run("db", "model", "--space", "s", "--db", database, "--predictions").stdout
    assert "rows * columns" in table and "rows=8,columns=2" in table and "100.0%" in table


def test_a_space_with_too_few_trials_is_left_out_beside_others(run, refused, database):
    outcome = run("db", "model", "--db", database, "--json")
    assert len(outcome.rows) == 1 and "op, other: left out: a report on a cost model needs" in outcome.stderr
    assert "needs at least 10 trials" in refused("db", "model", "--space", "other", "--db", database)


def test_without_trials_of_knobs_the_status_is_1(run, database):
    assert run("db", "model", "--operator", "relu", "--db", database).status == 1


def test_a_model_is_saved(run, refused, database, tmp_path):
    path = tmp_path / "model.json"
    words = ["db", "model", "--db", database, "--loss", "rank", "--save", path]
    assert "there are 2; choose with --operator and --space" in refused(*words) and not path.exists()
    assert run(*words, "--space", "s").status == 0
    origin = cost_model.load(path).origin
    assert (origin.operator, origin.target, origin.space, origin.loss) == ("op", "t", "s", "rank")


def test_trials_of_sketches_are_trials_too(refused, database):
    with ts.Database(database) as opened:
        opened.add(dataclasses.replace(FIRST, id="c", space="sketch", trace="[[],[]]"))
    words = ["db", "model", "--db", database, "--space", "sketch"]
    assert "no loss 'rank': it learns by regression" in refused(*words, "--loss", "rank")
