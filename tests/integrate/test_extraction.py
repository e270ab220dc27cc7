from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tunesmith as ts
from tunesmith.tuning.processes.worker_group import WorkerGroup

from .conftest import stack


def test_equal_functions_are_one_workload(tmp_path: Path) -> None:
    (only,) = ts.extract_workloads(ts.load_model(stack(tmp_path / "m.onnx", 3)))
    assert only.calls == 3
    assert only.share == 1.0
    assert only.workload.flops == 2 * 4 * 8 * 8 + 4 * 8
    assert only.workload.weights == (1,)
    assert [a.shape for a in only.workload.args] == [(4, 8), (8, 8), (4, 8)]


def test_the_heaviest_come_first_and_shares_add_up(net: Any) -> None:
    found = ts.extract_workloads(net)
    shares = [w.share for w in found]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    assert "conv2d" in found[0].functions[0]
    assert found[0].workload.flops == 2 * 12 * 12 * 16 * 16 * 9 + 3 * 12 * 12 * 16


def test_a_workload_is_a_main_that_is_its_own_reference(net: Any) -> None:
    for found in ts.extract_workloads(net):
        assert found.workload.func.attrs["global_symbol"] == "main"
        assert found.workload.reference is None


def test_functions_that_compute_nothing_are_left_out(net: Any) -> None:
    assert not any("transpose" in name for w in ts.extract_workloads(net) for name in w.functions)


def test_one_function_by_name(net: Any) -> None:
    heaviest = ts.extract_workloads(net)[0]
    assert ts.take(net, heaviest.functions[0]).hash == heaviest.workload.hash
    with pytest.raises(
        ts.InputError, match=r"unknown function of net 'fused_conv2d_ad'; did you mean fused_conv2d"
    ):
        ts.take(net, "fused_conv2d_ad")


def test_hashes_are_the_same_in_another_process(net: Any, net_path: Path) -> None:
    here = [w.workload.hash for w in ts.extract_workloads(net)]
    code = (
        "import tunesmith as ts\n"
        f"there = [w.workload.hash for w in ts.extract_workloads(ts.load_model({str(net_path)!r}))]\n"
        f"assert there == {here}"
    )
    with WorkerGroup(1) as group:
        group.workers[0].call(exec, code, 120)
