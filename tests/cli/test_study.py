import pytest
from tunesmith.tuning.study.endurance import EnduranceRow

SHAPE = "m=8,n=16,k=4"


def test_rows_say_what_is_promised_and_whether_it_was_shown(run):
    outcome = run("study", "noise", "--shape", SHAPE, "--processes", "2", "--json")
    (row,) = outcome.rows
    assert row["operator"] == "matmul" and row["shape"] == {"m": 8, "n": 16, "k": 4, "transpose": "NN"}
    assert row["processes"] == len(row["seconds"]) == 2 and row["goal"] == "less than 3% between quartiles"
    assert outcome.status == (0 if row["met"] else 1)
    assert "process 2 of 2" in outcome.stderr


def test_a_promise_that_is_not_kept_ends_with_status_1(run, monkeypatch):
    monkeypatch.setattr("tunesmith.tuning.study.noise.GOAL", 0.0)
    outcome = run("study", "noise", "--shape", SHAPE, "--processes", "2")
    assert outcome.status == 1 and "between quartiles" in outcome.stdout
    assert "not shown on matmul m=8,n=16,k=4,transpose=NN: less than 0% between quartiles" in outcome.stderr


def test_a_record_is_measured_again(run, tuned):
    path, tuning = tuned
    record = tuning.rows[0]["record"]
    outcome = run("study", "noise", "--record", record, "--db", path, "--processes", "2", "--json")
    (row,) = outcome.rows
    assert row["schedule"] == f"record {record}"
    assert row["shape"] == {"m": 8, "n": 16, "k": 4, "transpose": "NN"}


def test_searches_that_do_not_arrive_are_more_than_the_limit(run, monkeypatch):
    monkeypatch.setattr("tunesmith.tuning.study.table.Table.confirmed_s", lambda table, fastest: 1e-12)
    words = [
        "study",
        "strategies",
        "--shape",
        SHAPE,
        "--strategies",
        "random",
        "--seeds",
        "1",
        "--limit",
        "2",
    ]
    outcome = run(*words)
    assert outcome.status == 0 and "> 2" in outcome.stdout and "not reached in 2 trials" in outcome.stderr
    assert run(*words, "--json").rows[0]["median"] is None


@pytest.mark.parametrize(("left", "status"), [((), 0), (("tmpabc",), 1)])
def test_what_a_long_run_leaves_is_named(run, monkeypatch, left, status):
    row = EnduranceRow(
        "matmul", {"m": 8}, "matmul", "random", 2, 2, "trials", 9.0, 1 << 20, 1, 1, 1, (), left
    )
    monkeypatch.setattr("tunesmith.tuning.study.endurance.study_endurance", lambda *words: row)
    outcome = run("study", "endurance")
    assert outcome.status == status and ("left: tmpabc" in outcome.stderr) is bool(left)
    assert run("study", "endurance", "--json").rows[0]["files_left"] == list(left)


def test_engine_gets_operators_and_shapes(run, monkeypatch):
    given = []
    monkeypatch.setattr(
        "tunesmith.tuning.study.engine.study_engine", lambda *words: given.append(words) or []
    )
    words = [
        "study",
        "engine",
        "--workload",
        f"matmul:{SHAPE}",
        "--workload",
        "mine.py:OP:n=3",
        "--trials",
        "5",
    ]
    assert run(*words).status == 0 and run("study", "engine").status == 0
    tasks = [("matmul", {"m": 8, "n": 16, "k": 4}), ("mine.py:OP", {"n": 3})]
    assert [words[:2] for words in given] == [(tasks, 5), (None, 64)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["engin"], "unknown command 'engin'; did you mean engine?"),
        (["engine", "--workload", SHAPE], "a workload is written OP:SHAPE, as in matmul:m=64,n=64,k=64"),
        (["engine", "--workload", f"matmull:{SHAPE}"], "unknown operator 'matmull'; did you mean matmul"),
        (["engine", "--trials", "0"], "trials must be at least 1: trials=0"),
        (["strategies", "--strategies", "xbg"], "unknown strategy 'xbg'; did you mean xgb?"),
        (["strategies", "--strategies", ","], "name at least one strategy"),
        (["strategies", "conv2d"], "which shape of conv2d? give --shape"),
        (["strategies", "--shape", SHAPE, "--strategies", "xgb+transfer"], "give them with --transfer-from"),
        (["strategies", "--db", "none/x.db"], "the folder none does not exist"),
        (["noise", "--processes", "1"], "a spread needs at least 2 processes: processes=1"),
        (["noise", "--record", "3f2a", "--shape", SHAPE], "give --record 3f2a or --shape, not both"),
        (["noise", "--record", "3f2a"], "there is no database tunesmith.db"),
        (["endurance", "--trials", "100000"], "give a larger shape or fewer trials"),
        (
            ["endurance", "--space", "matmull"],
            "unknown space 'matmull'; did you mean matmul or widened",
        ),
    ],
)
def test_bad_input_is_one_line(refused, monkeypatch, words, message):
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    assert message in refused("study", *words)


def test_a_busy_machine_is_mentioned(run, monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (7.0, 0.0, 0.0))
    monkeypatch.setattr("tunesmith.tuning.study.engine.study_engine", lambda *words: [])
    assert "this machine is busy (load 7.0)" in run("study", "engine").stderr


def test_the_onnx_suite_is_counted_written_and_judged(run, monkeypatch, tmp_path):
    from tunesmith.integrate.onnx_suite import SuiteRow

    def some(names, timeout_s, say):
        yield SuiteRow(names[0], "NodeModel", "Add", "passed")
        yield SuiteRow(names[1], "NodeModel", "Add", outcome, "it differs")

    monkeypatch.setattr(
        "tunesmith.integrate.onnx_suite.suite_tests", lambda: dict.fromkeys("abc", "NodeModel")
    )
    monkeypatch.setattr("tunesmith.integrate.onnx_suite.run_suite", some)
    for outcome, status in (("not converted", 0), ("wrong result", 1)):
        found = run("study", "onnx", "--tests", "[ab]", "--output", str(tmp_path / "page.md"))
        assert found.status == status and outcome in found.stdout
        assert "**1 of 2 tests pass.**" in (tmp_path / "page.md").read_text()
    assert '"reason": "it differs"' in run("study", "onnx", "--json").stdout
    assert run("study", "onnx", "--tests", "z").stderr.startswith("error: no test of the suite matches")
    assert "regular expression" in run("study", "onnx", "--tests", "(").stderr
