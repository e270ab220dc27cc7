from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tunesmith as ts
import tvm
from onnx import TensorProto, helper, numpy_helper
from tunesmith.machine.target import target_text
from tunesmith.tuning.records.record import Record, Status

INPUT = (1, 3, 12, 12)


def write_onnx(
    path: Path,
    nodes: list[Any],
    inputs: dict[str, list[int | str]],
    outputs: dict[str, list[int | str]],
    weights: dict[str, np.ndarray] | None = None,
) -> Path:
    """Write an ONNX file of opset 13."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(w, n) for n, w in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


def conv_net(path: Path) -> Path:
    """conv-bn-relu twice, a residual sum with a 1x1 convolution, pooling, a fully connected layer."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)

    weights: dict[str, np.ndarray] = {"w1": normal(16, 3, 3, 3), "w2": normal(16, 16, 3, 3)}
    weights |= {"w3": normal(16, 3, 1, 1), "b3": normal(16), "fc": normal(10, 16), "fb": normal(10)}
    for i in (1, 2):
        weights |= {f"s{i}": 1 + 0.1 * normal(16), f"t{i}": normal(16), f"m{i}": normal(16)}
        weights[f"v{i}"] = rng.uniform(0.5, 1.5, 16).astype(np.float32)
    node, pads = helper.make_node, [1, 1, 1, 1]
    nodes = [
        node("Conv", ["x", "w1"], ["c1"], pads=pads),
        node("BatchNormalization", ["c1", "s1", "t1", "m1", "v1"], ["n1"]),
        node("Relu", ["n1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"], pads=pads),
        node("BatchNormalization", ["c2", "s2", "t2", "m2", "v2"], ["n2"]),
        node("Conv", ["x", "w3", "b3"], ["c3"]),
        node("Sum", ["n2", "c3"], ["sum"]),
        node("Relu", ["sum"], ["r2"]),
        node("GlobalAveragePool", ["r2"], ["pool"]),
        node("Flatten", ["pool"], ["flat"]),
        node("Gemm", ["flat", "fc", "fb"], ["y"], transB=1),
    ]
    return write_onnx(path, nodes, {"x": list(INPUT)}, {"y": [1, 10]}, weights)


def stack(path: Path, depth: int) -> Path:
    """Equal layers, each with weights of its own."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal((8, 8), np.float32) for i in range(depth)}
    nodes: list[Any] = []
    for i in range(depth):
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Tanh", [f"m{i}"], [f"x{i + 1}"]))
    return write_onnx(path, nodes, {"x0": [4, 8]}, {f"x{depth}": [4, 8]}, weights)


def conv_net_output(path: Path, x: np.ndarray) -> np.ndarray:
    """Compute the output of `conv_net` in NumPy."""
    w = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in onnx.load(path).graph.initializer}

    def normalized(y: np.ndarray, i: int) -> np.ndarray:
        scale = w[f"s{i}"] / np.sqrt(w[f"v{i}"] + 1e-5)
        return y * scale[:, None, None] + (w[f"t{i}"] - w[f"m{i}"] * scale)[:, None, None]

    first = np.maximum(normalized(_conv(x, w["w1"]), 1), 0)
    second = normalized(_conv(first, w["w2"]), 2) + _conv(x, w["w3"]) + w["b3"][:, None, None]
    return np.maximum(second, 0).mean((2, 3)) @ w["fc"].T + w["fb"]


def _conv(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Convolve with as much padding as keeps the size."""
    edge = weight.shape[2] // 2
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight)


@pytest.fixture(scope="session")
def net_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return conv_net(tmp_path_factory.mktemp("models") / "net.onnx")


@pytest.fixture(scope="session")
def net(net_path: Path) -> Any:
    return ts.load_model(net_path)


@pytest.fixture(scope="session")
def net_input() -> np.ndarray:
    return np.random.default_rng(1).standard_normal(INPUT).astype(np.float32)


@pytest.fixture(scope="session")
def net_output(net_path: Path, net_input: np.ndarray) -> np.ndarray:
    return conv_net_output(net_path, net_input)


@pytest.fixture(scope="session")
def net_package(net: Any) -> Any:
    return ts.compile_model(net)


def record_of(workload: Any, **changes: Any) -> Record:
    """Make a verified record with the knobs of the default schedule, or with what is given instead."""
    target = ts.host_target()
    rule = next(r for r in ts.schedule_rules().values() if r.space(workload.func, target) is not None)
    fields: dict[str, Any] = {
        "id": f"test-{workload.name}",
        "created": datetime.now(timezone.utc).isoformat(),
        "operator": workload.name,
        "shape": dict(workload.shape),
        "dtype": workload.dtype,
        "workload_hash": workload.hash,
        "workload_ir": tvm.ir.save_json(workload.func),
        "target": target_text(target),
        "machine_fingerprint": "test",
        "space": rule.name,
        "strategy": "test",
        "seed": 0,
        "knobs": dict(rule.space(workload.func, target).default),
        "trace": None,
        "status": Status.OK,
        "verified": True,
        "max_error": 0.0,
        "run_secs": (1e-3,),
        "build_s": 0.1,
        "message": "",
        "tvm_version": tvm.__version__,
        "tunesmith_version": ts.__version__,
    }
    return Record(**{**fields, **changes})
