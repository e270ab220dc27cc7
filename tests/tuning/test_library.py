"""A candidate's library: weights that a model packs once are packed apart, and the whole stays right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.arrays import as_tensor
from tunesmith.schedules import apply_default
from tunesmith.schedules.transforms import PACKING_MARK
from tunesmith.tuning.measuring.library import LoadedKernel, export_kernel
from tvm import s_tir

SHAPES = {
    "linear_relu": {"m": 24, "n": 80, "k": 40},
    "matmul": {"m": 33, "n": 50, "k": 17},
    "conv2d": {"n": 1, "h": 9, "w": 9, "ci": 16, "co": 40, "kh": 3, "kw": 3, "padding": 1, "bias": 1},
}


def loaded(operator: str, path: Path, constant: bool) -> tuple[LoadedKernel, list[object], np.ndarray]:
    """Build an operator whose weight (its second argument) is constant or not; return it with arguments."""
    workload = ts.workload(operator, **SHAPES[operator])
    func = workload.func.with_attr(CONSTANT_ARGUMENTS, [1]) if constant else workload.func
    schedule, _ = apply_default(func, ts.host_target())
    export_kernel(schedule, ts.host_target(), str(path))
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, a.shape).astype(a.dtype) for a in workload.inputs]
    output = np.full(workload.output.shape, np.nan, workload.output.dtype)
    assert workload.reference is not None
    return LoadedKernel(str(path)), [*map(as_tensor, inputs), as_tensor(output)], workload.reference(*inputs)


@pytest.mark.parametrize("operator", SHAPES)
def test_a_constant_weight_is_packed_apart(operator: str, tmp_path: Path) -> None:
    kernel, tensors, want = loaded(operator, tmp_path / "kernel.so", constant=True)
    called, arguments = kernel.prepared(tensors)
    described = json.loads((tmp_path / "kernel.so.json").read_text())
    assert described["position"] == 1
    assert list(arguments[1].shape) == described["shape"] != list(tensors[1].shape)
    called(*arguments)
    np.testing.assert_allclose(tensors[-1].numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("constant", [False, True])
def test_a_call_computes_everything(constant: bool, tmp_path: Path) -> None:
    kernel, tensors, want = loaded("conv2d", tmp_path / "kernel.so", constant)
    kernel(*tensors)
    np.testing.assert_allclose(tensors[-1].numpy(), want, rtol=1e-4, atol=1e-4)


def test_without_constants_nothing_is_split_off(tmp_path: Path) -> None:
    kernel, tensors, _ = loaded("matmul", tmp_path / "kernel.so", constant=False)
    assert kernel.prepared(tensors)[1] is tensors
    assert not (tmp_path / "kernel.so.json").exists()


def test_packing_inside_other_loops_is_not_split_off(tmp_path: Path) -> None:
    workload = ts.workload("matmul", m=8, n=32, k=16)
    schedule = s_tir.Schedule(workload.func.with_attr(CONSTANT_ARGUMENTS, [1]))
    product = schedule.get_sblock("matmul")
    copy = schedule.cache_read(product, 1, "global")
    schedule.compute_at(copy, schedule.get_loops(product)[0])
    schedule.annotate(copy, PACKING_MARK, True)
    export_kernel(schedule, ts.host_target(), str(tmp_path / "kernel.so"))
    assert not (tmp_path / "kernel.so.json").exists()
    assert PACKING_MARK in schedule.get(copy).annotations, "the caller's schedule stays as it is"
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, s.shape).astype("float32") for s in workload.inputs)
    tensors = [as_tensor(a), as_tensor(b), as_tensor(np.full((8, 32), np.nan, "float32"))]
    LoadedKernel(str(tmp_path / "kernel.so"))(*tensors)
    np.testing.assert_allclose(tensors[-1].numpy(), a @ b, rtol=1e-4, atol=1e-4)
