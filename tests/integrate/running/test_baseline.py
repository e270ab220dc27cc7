from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.integrate.running import baseline


def test_without_onnxruntime_it_is_said(
    net_path: Path, net_input: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "find_spec", lambda name: None)
    with pytest.raises(ts.InputError, match=r"not installed: pip install 'tunesmith\[baselines\]'"):
        baseline.run_onnxruntime(net_path, {"x": net_input})


@pytest.mark.skipif(not baseline.has_onnxruntime(), reason="ONNX Runtime is not installed")
def test_onnxruntime_computes_the_same(net_path: Path, net_input: np.ndarray, net_output: np.ndarray) -> None:
    found = baseline.run_onnxruntime(net_path, {"x": net_input}, repeat=3)
    np.testing.assert_allclose(found.outputs["output_0"], net_output, rtol=1e-4, atol=1e-5)
    assert len(found.seconds) == 3 and found.median_s > 0


@pytest.mark.skipif(not baseline.has_onnxruntime(), reason="ONNX Runtime is not installed")
def test_what_onnxruntime_cannot_run_is_told_in_one_line(tmp_path: Path, net_input: Any) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    with pytest.raises(ts.InputError, match=r"ONNX Runtime cannot run .*bad\.onnx: ") as caught:
        baseline.run_onnxruntime(tmp_path / "bad.onnx", {"x": net_input})
    assert "\n" not in str(caught.value)
