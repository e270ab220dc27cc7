from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.integrate.summary import summarize

from .conftest import stack


def test_counts_parameters_functions_and_operations(tmp_path: Path) -> None:
    summary = summarize(ts.load_model(stack(tmp_path / "stack.onnx", depth=3)))
    assert (summary.parameters, summary.parameter_bytes) == (3 * 64, 3 * 64 * 4)
    # A matmul of (4, 8) with (8, 8) and a tanh, three times.
    assert summary.flops == 3 * (4 * 8 * 8 * 2 + 4 * 8)
    (function,) = summary.functions
    assert (function.calls, function.task, function.share) == (3, 0, 1.0)
    assert (function.arguments, function.weights, function.result) == ("[4,8] [8,8]", "[8,8]", "[4,8]")


def test_what_computes_nothing_is_no_task(net: Any) -> None:
    summary = summarize(net)
    tasks = {f.function: f.task for f in summary.functions}
    assert {name for name, task in tasks.items() if task is None} == {
        f.function for f in summary.functions if not f.flops
    }
    found = ts.extract_workloads(net)
    assert all(name in found[task].functions for name, task in tasks.items() if task is not None)
    assert sum(f.share for f in summary.functions) == pytest.approx(1)


def test_tables_hold_everything(net: Any) -> None:
    summary = summarize(net)
    text = str(summary)
    assert text.startswith("net: ")
    assert all(f.function in text for f in summary.functions)
    assert "input   x         float32  [1,3,12,12]" in text


def test_printing_a_model_says_what_goes_in_and_out(net: Any) -> None:
    first, *ends = str(net).splitlines()
    assert first == f"net: {net.parameters.elements:,} parameters (0.0 MB)"
    assert ends == ["  in  x: float32 [1, 3, 12, 12]", "  out output_0: float32 [1, 10]"]


def test_a_weight_that_is_used_twice_counts_once_and_numbers_do_not_count(tmp_path: Path) -> None:
    from onnx import helper

    from .conftest import write_onnx

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("Mul", ["b", "two"], ["y"]),
    ]
    weights = {"w": np.ones((2, 2), np.float32), "two": np.float32(2)}
    path = write_onnx(tmp_path / "m.onnx", nodes, {"x": [2, 2]}, {"y": [2, 2]}, weights)  # type: ignore[arg-type]
    assert ts.load_model(path).parameters == (4, 16)
