"""Traces in Python, also of what TVM itself cannot print."""

import pytest
import tunesmith as ts
from tunesmith.schedules.trace_lines import trace_lines

ODD = {"n": 1, "h": 9, "w": 9, "c": 7, "kernel": 3, "padding": 1}


def test_a_decomposed_padding_is_printed(target):
    """Pooling of channels that fill no vectors, after which the block is used by its name."""
    schedule, _ = ts.apply_default(ts.workload("max_pool2d", **ODD).func, target)
    with pytest.raises(TypeError):
        schedule.trace.as_python()  # else trace_lines is needless
    lines = trace_lines(schedule.trace)
    assert len(lines) == len(schedule.trace.insts)
    (line,) = [line for line in lines if "decompose_padding" in line]
    assert "block=" in line and "loop=" in line and line.startswith("b")


def test_others_are_printed_as_tvm_does(target):
    schedule, _ = ts.apply_default(ts.workload("matmul", m=32, n=32, k=32).func, target)
    assert trace_lines(schedule.trace) == [str(line) for line in schedule.trace.as_python()]
    assert any("sch.decompose_reduction(" in line for line in trace_lines(schedule.trace))
