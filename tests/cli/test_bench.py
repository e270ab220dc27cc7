import pytest
from tunesmith.tuning.benchmark import bench as bench_module

SHAPE = "m=8,n=16,k=4"

KEYS = (
    "operator, shape, dtype, target, implementation, median_s, p20_s, p80_s, gflops, gbps, "
    "noise, roofline_fraction, verified, threads, cache"
).split(", ")


def test_rows_have_the_keys_of_the_design(run, tuned):
    words = ["--implementations", "default,tuned,numpy", "--db", tuned[0]]
    timing = ["--rounds", "2", "--min-repeat-ms", "0.1"]
    outcome = run("bench", "matmul", "--shape", SHAPE, *words, *timing, "--json")
    assert outcome.status == 0, outcome.stderr
    assert [row["implementation"] for row in outcome.rows] == ["default", "tuned", "numpy"]
    assert all(row["cache"] == "warm" for row in outcome.rows)
    assert all(set(KEYS) <= set(row) and row["verified"] for row in outcome.rows)


def test_timing_options_are_passed_on(run):
    words = ["--implementations", "default", "--rounds", "1", "--cold-cache"]
    outcome = run("bench", "matmul", "--shape", SHAPE, *words, "--json")
    assert [(row["cache"], row["noise"]) for row in outcome.rows] == [("cold", None)]


def test_a_wrong_kernel_ends_with_status_1(run, user_file):
    outcome = run("bench", f"{user_file}:TREBLE", "--implementations", "default")
    assert outcome.status == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_what_was_measured_until_ctrl_c_is_printed(run, monkeypatch, as_json):
    def first_then_interrupted(*args):
        yield [{"operator": "matmul", "implementation": "default", "median_s": 0.5, "verified": True}]
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_module, "bench_each", first_then_interrupted)
    outcome = run("bench", "matmul", "--implementations", "default", *["--json"] * as_json)
    assert outcome.status == 130
    assert outcome.stdout.count("matmul") == 1
    assert "interrupted" in outcome.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["matmul", "--implementations", "defalt"], "unknown implementation 'defalt'; did you mean default?"),
        (["matmul", "--implementations", ","], "name at least one implementation"),
        (["matmul", "--implementations", "tuned"], "there is no tunesmith.db here; give --db FILE"),
        (["matmul", "--implementations", "tuned", "--db", "none.db"], "there is no database none.db"),
        (["matmul", "--rounds", "0"], "rounds must be at least 1: rounds=0"),
        (["matmul", "--target", "raspberry-pi/4b-aarch64"], "cannot run on this machine"),
    ],
)
def test_bad_input_is_one_line(refused, words, message):
    assert message in refused("bench", *words, "--shape", SHAPE)
