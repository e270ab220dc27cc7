from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.integrate.lowering.dump import Dump

PHASES = [
    "imported",
    "weights",
    "layouts",
    "combine",
    "fuse",
    "functions",
    "schedules",
    "packing",
    "code",
]


def test_each_phase_is_written_as_text(
    net: Any, tmp_path: Path, net_input: np.ndarray, net_output: np.ndarray
) -> None:
    package = ts.compile_model(net, dump=tmp_path / "new" / "dump")
    files = sorted((tmp_path / "new" / "dump").iterdir())
    assert [f.name for f in files] == [f"{i:02d}_{name}.py" for i, name in enumerate(PHASES, 1)]
    text = {name: f.read_text() for name, f in zip(PHASES, files, strict=True)}
    assert "R.nn.batch_norm" in text["imported"] and "R.nn.batch_norm" not in text["weights"]
    assert "NHWC" in text["layouts"] and "R.call_tir" in text["fuse"]
    assert "T.vectorized" in text["schedules"] and "_prepacked" in text["packing"]
    assert "alloc_storage" in text["code"]
    assert max(map(len, text.values())) < 500_000, "tensors are not written out"
    np.testing.assert_allclose(package.run({"x": net_input})["output_0"], net_output, rtol=1e-4, atol=1e-5)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ts.InputError, match="cannot dump to the folder"):
        Dump(tmp_path / "file" / "dump")


def test_nothing_is_left_of_a_dump_that_fails(tmp_path: Path) -> None:
    class Broken:
        def script(self) -> str:
            raise ValueError("no text")

    with pytest.raises(ValueError, match="no text"):
        Dump(tmp_path)("weights", Broken())
    assert list(tmp_path.iterdir()) == []
