from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tunesmith as ts
from tunesmith.integrate.lowering.choice import Choice
from tunesmith.integrate.lowering.functions import prim_func_calls
from tunesmith.integrate.lowering.report import report

from ..conftest import record_of, stack


def test_predicted_times_are_the_roofline_of_all_calls() -> None:
    choice = Choice("f", "default", "matmul", "", flops=10**9, bytes_moved=10, dtype="float32", calls=3)
    (row,) = report([choice])
    assert row["seconds"] == pytest.approx(3 * ts.roofline_seconds(10**9, 10, "float32"))
    assert (row["timing"], row["share"], row["calls"]) == ("predicted", 1.0, 3)


def test_measured_times_come_from_records_and_the_longest_is_first() -> None:
    measured = Choice("g", "record", "matmul", "", 10, 10, "float32", record="r", recorded_s=1e-3, calls=2)
    rows = report([Choice("f", "default", "rows", "", 10, 10, "float32"), measured])
    assert [(row["function"], row["timing"]) for row in rows] == [("g", "measured"), ("f", "predicted")]
    assert rows[0]["seconds"] == 2e-3
    assert sum(row["share"] for row in rows) == pytest.approx(1)


def test_a_report_of_nothing_is_empty() -> None:
    assert report([]) == []
    assert report([Choice("f", "default", "general", "")])[0]["share"] == 0


def test_every_call_of_a_model_is_in_the_report(net: Any, tmp_path: Path) -> None:
    model = ts.load_model(stack(tmp_path / "m.onnx", 3))
    found = ts.extract_workloads(model)[0]
    with ts.Database(tmp_path / "t.db") as database:
        database.add(record_of(found.workload, run_secs=(4e-3,)))
        rows = report(ts.compile_model(model, database=database).choices)
    assert [(row["calls"], row["seconds"], row["timing"]) for row in rows] == [(3, 12e-3, "measured")]
    assert rows[0]["workload"] == found.workload.hash
    calls = list(prim_func_calls(net.prepared(ts.host_target())))
    assert sum(row["calls"] for row in report(ts.compile_model(net).choices)) == len(calls)
