from dataclasses import replace

import pytest
from tunesmith.integrate.running import model_study
from tunesmith.integrate.running.model_study import ModelRow, mean_ratio, study_model


@pytest.fixture(scope="module")
def row(net_path):
    pytest.importorskip("onnxruntime")
    told = []
    found = study_model(net_path, rounds=2, say=told.append)
    assert told == ["net: load and compile", "net: 2 rounds in turns with ONNX Runtime"]
    return found


def test_a_row_holds_both_sides(row):
    assert row.model == "net" and row.equal and row.max_error < 1e-4
    assert row.low <= row.ratio <= row.high
    assert row.ratio == pytest.approx(row.median_s / row.library_s, rel=0.9)
    assert min(row.first_s, row.library_first_s, row.compile_s) > 0
    assert row.goal.startswith("outputs equal, latency <= 1.25x, memory <= 1.1x")


@pytest.mark.parametrize(
    ("promise", "value"), [("LATENCY", 0.0), ("MEMORY", 0.0), ("COMPILE_S", 0.0), ("FIRST_S", 0.0)]
)
def test_each_promise_decides(net_path, monkeypatch, promise, value):
    pytest.importorskip("onnxruntime")
    for name in ("LATENCY", "MEMORY", "COMPILE_S", "FIRST_S"):
        monkeypatch.setattr(model_study, name, value if name == promise else 1e9)
    assert not study_model(net_path, rounds=1, say=str).met


def test_the_mean_is_geometric():
    fields = dict.fromkeys(ModelRow.__dataclass_fields__, 0)
    rows = [replace(ModelRow(**fields), ratio=ratio) for ratio in (0.5, 2.0, 8.0)]
    assert mean_ratio(rows) == pytest.approx(2.0)
