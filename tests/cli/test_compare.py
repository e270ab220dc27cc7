import numpy as np
import pytest


@pytest.fixture
def words(package):
    return ["compare", package[0], package[0], "--rounds", 2, "--number", 1]


def test_both_sides_and_their_ratio_are_printed(run, words):
    outcome = run(*words)
    assert outcome.status == 0, outcome.stderr
    for text in ("median ms", "first inference ms", "peak MB", "B is ", "95 % confidence", "output_0: equal"):
        assert text in outcome.stdout


def test_json_has_it_all_in_one_row(run, words):
    rng = np.random.default_rng(0)
    np.savez("x.npz", A=rng.random((8, 4), np.float32), B=rng.random((4, 16), np.float32))
    (row,) = run(*words, "--inputs", "x.npz", "--json").rows
    assert row["ok"] and row["outputs"][0]["max_error"] == 0
    assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
    assert len(row["before"]["seconds"]) == len(row["after"]["seconds"]) == 2


def test_the_status_says_whether_b_is_as_fast_as_asked(run, words):
    outcome = run(*words, "--at-least", 1000)
    assert outcome.status == 1 and "B is not at least 1000 times as fast" in outcome.stderr
    assert run(*words, "--at-least", 0.001).status == 0


def test_outputs_that_differ_are_status_1(run, words, monkeypatch):
    from tunesmith.integrate.running import comparison
    from tunesmith.integrate.running.outputs import OutputCheck

    wrong = (OutputCheck("output_0", False, 0.5, "1 of 128 elements are wrong"),)
    monkeypatch.setattr(comparison, "compare_outputs", lambda *_: wrong)
    outcome = run(*words)
    assert outcome.status == 1 and "output_0: DIFFERENT: 1 of 128 elements are wrong" in outcome.stdout


def test_bad_input_is_one_line(refused, package, words):
    np.savez("x.npz", C=np.zeros(1))
    assert "no such package: none" in refused("compare", package[0], "none")
    assert "rounds must be at least 1" in refused(*words, "--rounds", 0)
    assert "unknown input 'C'" in refused(*words, "--inputs", "x.npz")
