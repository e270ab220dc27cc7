"""Every command on an operator of one's own with its own schedule: examples/my_ops.py."""

from pathlib import Path

import numpy as np
import pytest
import tunesmith as ts
from click.testing import CliRunner
from tunesmith import schedules
from tunesmith.cli.main import main
from tunesmith.machine.facts import facts
from tunesmith.machine.target import host_target

from .conftest import Outcome

FILE = Path(ts.__file__).parent / "examples" / "my_ops.py"
OP, SHAPE = f"{FILE}:swish_matmul", "m=8,n=32,k=16"
OWN = "swish_tiles"
QUICK = ("--min-repeat-ms", "1")


@pytest.fixture(autouse=True)
def as_in_a_new_process(monkeypatch):
    """The schedules that a file adds are for the test alone."""
    monkeypatch.setattr(schedules, "_own", {})


@pytest.fixture(scope="module")
def own_records(tmp_path_factory):
    """A database with trials of the own operator in the space of its own schedule."""
    path = tmp_path_factory.mktemp("own") / "own.db"
    words = ["tune", OP, "--shape", SHAPE, "--trials", "3", "--strategy", "random", *QUICK, "--db", str(path)]
    outcome = Outcome(CliRunner().invoke(main, [*words, "--json"]))
    assert outcome.status == 0, outcome.stderr
    return path, outcome


def test_list(run):
    operator, schedule = run("list", FILE, "--json").rows
    assert operator["name"] == OP and operator["dimensions"] == ["m", "n", "k"]
    assert schedule["name"] == OWN
    assert [row["name"] for row in run("list", OP, "--json").rows] == [OP, OWN]


def test_list_leaves_tunesmiths_own_tables_as_they_are(run):
    assert OWN not in run("list", "schedules").stdout


@pytest.mark.parametrize(
    ("form", "text"), [("tir", "T.vectorized"), ("c", "void swish_matmul("), ("asm", "ret")]
)
def test_show(run, form, text):
    shown = run("show", OP, "--shape", SHAPE, "--as", form)
    assert shown.status == 0 and text in shown.stdout
    machine = facts(host_target())
    rows, columns = machine.vector_registers // 4, 2 * machine.lanes("float32")
    assert f"schedule {OWN}: rows={rows},columns={columns}" in shown.stderr


def test_show_steps(run):
    shown = run("show", OP, "--shape", SHAPE, "--steps", "--json")
    assert shown.status == 0, shown.stderr
    assert {row["verified"] for row in shown.rows} == {True}
    assert shown.rows[-1]["primitive"] == "decompose_reduction"


def test_verify_shapes_that_fill_no_vector(run):
    proved = run("verify", OP, "--shape", SHAPE, "--shape", "m=7,n=5,k=3", "--json")
    assert proved.status == 0, proved.stdout
    assert [row["schedule"] for row in proved.rows][:1] == [OWN]
    assert sum(row["schedule"] == OWN for row in proved.rows) == 2


def test_bench_takes_it_for_the_default(run, own_records):
    words = ("--implementations", f"default,tuned,{OWN},matmul", "--rounds", "1", "--db", own_records[0])
    rows = run("bench", OP, "--shape", SHAPE, *QUICK, *words, "--json").rows
    assert [row["implementation"] for row in rows] == ["default", "tuned", OWN, "matmul"]
    assert all(row["verified"] for row in rows)
    assert OWN in rows[0]["note"] and OWN in rows[1]["note"]


def test_tune_searches_its_own_space(own_records):
    (row,) = own_records[1].rows
    assert row["trials"] == 3 and row["space"] == OWN
    with ts.Database(own_records[0], create=False) as database:
        assert {record.space for record in database.records()} == {OWN}
        assert {record.status for record in database.records()} == {"ok"}


def test_compile_and_run_its_record(run, own_records, tmp_path):
    words = ("--db", own_records[0], "--strict", "--output", tmp_path / "own.tsm")
    compiled = run("compile", OP, "--shape", SHAPE, *words, "--json")
    assert compiled.status == 0, compiled.stderr
    (choice,) = compiled.rows
    assert (choice["origin"], choice["schedule"]) == ("record", OWN)
    rng = np.random.default_rng(0)
    arrays = {"A": rng.standard_normal((8, 16), np.float32), "B": rng.standard_normal((16, 32), np.float32)}
    np.savez(tmp_path / "x.npz", **arrays)
    ran = run("run", tmp_path / "own.tsm", "--inputs", tmp_path / "x.npz", "--outputs", tmp_path / "y.npz")
    assert ran.status == 0, ran.stderr
    product = arrays["A"].astype(np.float64) @ arrays["B"]
    with np.load(tmp_path / "y.npz") as outputs:
        np.testing.assert_allclose(
            outputs["output_0"], product / (1 + np.exp(-product)), rtol=1e-5, atol=1e-6
        )


def edited(tmp_path, old, new):
    """Write the file with a mistake in it; return the operator's place."""
    text = FILE.read_text()
    assert old in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(old, new))
    return f"{path}:swish_matmul"


def test_a_wrong_reference_is_an_answer(run, tmp_path):
    wrong = edited(tmp_path, "(1 + np.exp(-P))", "(2 + np.exp(-P))")
    proved = run("verify", wrong, "--shape", SHAPE, "--schedule", OWN, "--json")
    assert proved.status == 1
    assert "elements are wrong" in proved.rows[0]["message"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "te.reduce_axis(",
            "te.reduce_axs(",
            "the definition of swish_matmul failed in mine.py, line 17: Attr",
        ),
        (
            "lambda m, n, k: 2",
            "lambda m, n: 2",
            "the count of operations of swish_matmul failed in mine.py, line",
        ),
        (
            '"local")',
            '"locl")',
            f"the schedule '{OWN}' failed in mine.py, line 33: ScheduleError: The input storage",
        ),
        (
            "(m, n), machine =",
            "(m, n, k), machine =",
            f"the space of the schedule '{OWN}' failed in mine.py, line 46: V",
        ),
        (
            '"swish_tiles"',
            '"matmul"',
            "mine.py, line 59: tunesmith has a schedule named 'matmul'; give yours another",
        ),
        ("swish_matmul = ts", "swish = ts", "unknown name in "),
    ],
)
def test_a_mistake_is_one_line(refused, tmp_path, old, new, message):
    assert message in refused("show", edited(tmp_path, old, new), "--shape", SHAPE)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("return (P /", "return (Q /", "the reference of swish_matmul failed in mine.py, line 24: NameError"),
        (
            ".astype(A.dtype)",
            ".astype(A.dtype).ravel()",
            "returns an array of shape (256,); the output swish is (8, 32)",
        ),
    ],
)
def test_a_broken_reference_is_one_line(run, tmp_path, old, new, message):
    failed = run("verify", edited(tmp_path, old, new), "--shape", SHAPE)
    assert failed.status == 2 and message in failed.stderr.splitlines()[-1]


def test_a_schedule_that_fails_in_a_worker_is_told_with_its_line(run, tmp_path):
    broken = edited(tmp_path, '"local")', '"locl")')
    proved = run("verify", broken, "--shape", SHAPE, "--schedule", OWN, "--json")
    assert proved.status == 1
    assert f"the schedule '{OWN}' failed in mine.py, line 33" in proved.rows[0]["message"]


def test_a_file_without_operators(refused, tmp_path):
    (tmp_path / "empty.py").write_text("x = 1\n")
    assert "defines no operator" in refused("list", tmp_path / "empty.py")
