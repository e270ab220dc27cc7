import pytest

ROW = {
    "model": "net",
    "compile_s": 1.0,
    "median_s": 1e-3,
    "library_s": 2e-3,
    "ratio": 0.5,
    "low": 0.4,
    "high": 0.6,
    "first_s": 0.1,
    "library_first_s": 0.2,
    "peak_bytes": 1 << 20,
    "library_peak_bytes": 1 << 21,
    "max_error": 1e-6,
    "equal": True,
    "goal": "to be fast",
}


@pytest.mark.parametrize("met", [True, False])
def test_rows_are_printed_and_decide_the_status(run, monkeypatch, met):
    from tunesmith.integrate.running import model_study

    row = model_study.ModelRow(**ROW, met=met)
    monkeypatch.setattr(model_study, "study_model", lambda *_words, **_options: row)
    monkeypatch.setattr(model_study, "model_path", str)
    outcome = run("study", "models", "net.onnx")
    assert outcome.status == (0 if met else 1)
    assert ("not shown on net: to be fast" in outcome.stderr) is not met
    assert "geometric mean of the ratios: 0.50" in outcome.stderr
    assert run("study", "models", "net.onnx", "--json").rows[0] == {**ROW, "met": met}


def test_an_unknown_model_is_one_line(refused):
    assert "no such model file: nothing.onnx" in refused("study", "models", "nothing.onnx")
