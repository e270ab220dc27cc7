import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TIME_KEYS = "package, repeat, number, mean_s, median_s, max_s, min_s, std_s, threads".split(", ")


@pytest.fixture
def inputs():
    rng = np.random.default_rng(2)
    return {"A": rng.random((8, 4), np.float32), "B": rng.random((4, 16), np.float32)}


def test_outputs_are_written(run, package, inputs):
    np.savez("x.npz", **inputs)
    outcome = run("run", package[0], "--inputs", "x.npz", "--outputs", "result", "--json")
    assert outcome.status == 0
    with np.load("result") as arrays:
        np.testing.assert_allclose(arrays["output_0"], inputs["A"] @ inputs["B"], rtol=1e-5)
        assert outcome.rows[0]["max"] == arrays["output_0"].max()


@pytest.mark.parametrize(("fill", "expected"), [("zeros", 0), ("ones", 4)])
def test_inputs_are_filled(run, package, fill, expected):
    (row,) = run("run", package[0], "--fill-mode", fill, "--json").rows
    assert row["min"] == row["max"] == expected


def test_random_inputs_are_the_same_every_time(run, package):
    assert run("run", package[0]).stdout == run("run", package[0]).stdout


def test_the_time_row_has_the_keys_of_the_design(run, package):
    (row,) = run("run", package[0], "--print-time", "--repeat", 3, "--number", 2, "--json").rows
    assert list(row) == TIME_KEYS
    assert row["repeat"] == 3 and row["number"] == 2
    assert row["min_s"] <= row["median_s"] <= row["max_s"]


def test_the_time_table_says_how_many_runs(run, package):
    table = run("run", package[0], "--print-time", "--repeat", 3, "--number", 2).stdout
    assert all(name in table for name in ("mean ms", "median ms", "max ms", "min ms", "std ms"))
    assert "3 x 2, warm" in table


def test_the_largest_values_are_printed(run, package, inputs):
    np.savez("x.npz", **inputs)
    product = inputs["A"] @ inputs["B"]
    rows = run("run", package[0], "--inputs", "x.npz", "--print-top", 3, "--json").rows
    assert [tuple(row["index"]) for row in rows] == [
        tuple(np.unravel_index(i, product.shape)) for i in np.argsort(-product.ravel())[:3]
    ]


def test_the_profile_names_the_functions(run, package):
    rows = run("run", package[0], "--profile", "--repeat", 2, "--json").rows
    assert "matmul" in {row["function"] for row in rows}
    assert sum(row["share"] for row in rows) == pytest.approx(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"A": np.zeros((8, 5), np.float32)},
            "must be float32 of shape (8, 4): found float32 of shape (8, 5)",
        ),
        ({"A": np.zeros((8, 4), np.float64)}, "input A must be float32 of shape (8, 4): found float64"),
        ({"C": np.zeros(1)}, "unknown input 'C'"),
        ({"A": None}, "A missing"),
        ({"A": np.array([object()])}, "x.npz is no .npz file of arrays"),
    ],
)
def test_wrong_arrays_are_one_line(refused, package, inputs, change, message):
    given = {name: array for name, array in {**inputs, **change}.items() if array is not None}
    np.savez("x.npz", **given)
    assert message in refused("run", package[0], "--inputs", "x.npz", "--outputs", "y.npz")
    assert not Path("y.npz").exists()


def test_other_bad_input_is_one_line(refused, package):
    Path("text").write_text("hello")
    np.save("one.npy", np.zeros(3))
    assert refused("run", "none.tsm") == "no such package: none.tsm"
    assert refused("run", "text").startswith("not a tunesmith package")
    assert refused("run", package[0], "--inputs", "none.npz") == "no such file of inputs: none.npz"
    Path("text.npz").write_text("hello")
    assert refused("run", package[0], "--inputs", "text.npz").startswith("text.npz is no .npz file")
    assert refused("run", package[0], "--inputs", "A=one.npy").endswith("B missing")
    Path("text.npy").write_text("hello")
    assert refused("run", package[0], "--inputs", "A=text.npy").startswith("text.npy is no .npy file")
    assert "repeat at least 1" in refused("run", package[0], "--print-time", "--repeat", "0")


def test_an_output_that_cannot_be_written_is_found_first(refused):
    assert "cannot write none/y.npz" in refused("run", "none.tsm", "--outputs", "none/y.npz")


def test_inputs_are_given_one_by_one(run, refused, package, inputs):
    for name, array in inputs.items():
        np.save(f"{name}.npy", array)
    outcome = run("run", package[0], "-i", "A=A.npy", "-i", "B=B.npy", "-o", "y.npz")
    assert outcome.status == 0, outcome.stderr
    with np.load("y.npz") as arrays:
        np.testing.assert_allclose(arrays["output_0"], inputs["A"] @ inputs["B"], rtol=1e-5)
    assert "input A is given twice" in refused("run", package[0], "-i", "A=A.npy", "-i", "A=B.npy")
    assert "unknown input 'C'" in refused("run", package[0], "-i", "C=A.npy")
    assert "say which input A.npy is for: NAME=A.npy, of A, B" in refused("run", package[0], "-i", "A.npy")
    assert "no such file of inputs: none.npy" in refused("run", package[0], "-i", "A=none.npy")
    assert "B missing" in refused("run", package[0], "-i", "A=A.npy")


def test_the_largest_values_are_named(run, refused, package, inputs):
    np.savez("x.npz", **inputs)
    Path("labels.txt").write_text("\n".join(f"class {i}" for i in range(16)) + "\n")
    words = ["run", package[0], "-i", "x.npz", "--print-top", 3, "--labels"]
    rows = run(*words, "labels.txt", "--json").rows
    assert [row["label"] for row in rows] == [f"class {row['index'][-1]}" for row in rows]
    assert "class" in run(*words, "labels.txt").stdout
    Path("short.txt").write_text("one\ntwo\n")
    assert "--labels has 2 lines; the last dimension of the outputs is 16" in refused(*words, "short.txt")
    assert "cannot read the labels none.txt" in refused(*words, "none.txt")


def test_an_image_is_an_input(refused, package):
    Path("cat.jpg").write_text("hello")
    assert "input A takes no image" in refused("run", package[0], "-i", "A=cat.jpg")
    assert "a normalization is one of" in refused("run", package[0], "-i", "A=cat.jpg", "--normalize", "x")


def test_running_imports_no_compiler(package):
    code = (
        "import sys\n"
        "from tunesmith.cli.main import main\n"
        "main(['run', sys.argv[1], '--print-time', '--repeat', '1'], standalone_mode=False)\n"
        "print([n for n in ('tvm', 'torch', 'onnx', 'scipy') if n in sys.modules])\n"
    )
    words = [sys.executable, "-c", code, str(package[0])]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
