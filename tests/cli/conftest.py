import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import tunesmith as ts
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper
from tunesmith.cli.main import main

SHAPE = "m=8,n=16,k=4"


class Outcome:
    """What a command printed and how it ended."""

    def __init__(self, result):
        self.status = result.exit_code
        self.stdout, self.stderr = result.stdout, result.stderr

    @property
    def rows(self):
        return [json.loads(line) for line in self.stdout.splitlines()]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        return Outcome(CliRunner().invoke(main, [str(word) for word in words]))

    return call


@pytest.fixture
def refused(run):
    """Run a command that must be refused in one line; return the line."""

    def call(*words):
        outcome = run(*words)
        assert outcome.status == 2, outcome.stderr
        assert outcome.stdout == ""
        lines = outcome.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("error: "), outcome.stderr
        return lines[0].removeprefix("error: ")

    return call


@pytest.fixture(scope="session")
def tuned(tmp_path_factory):
    """A database with two trials of a small matmul, tuned by the command itself."""
    path = tmp_path_factory.mktemp("tuned") / "tuned.db"
    words = ["tune", "matmul", "--shape", SHAPE, "--trials", "2", "--strategy", "random"]
    outcome = Outcome(CliRunner().invoke(main, [*words, "--min-repeat-ms", "1", "--db", str(path), "--json"]))
    assert outcome.status == 0, outcome.stderr
    return path, outcome


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """A package of a small matmul, compiled by the command itself."""
    path = tmp_path_factory.mktemp("package") / "matmul.tsm"
    outcome = Outcome(
        CliRunner().invoke(main, ["compile", "matmul", "--shape", SHAPE, "-o", str(path), "--json"])
    )
    assert outcome.status == 0, outcome.stderr
    return path, outcome


@pytest.fixture
def matmul():
    return ts.workload("matmul", m=8, n=16, k=4)


@pytest.fixture
def user_file(tmp_path):
    """A file with a right operator, and one whose reference disagrees with its definition."""
    path = Path(tmp_path, "mine.py")
    path.write_text(
        """
import numpy as np
from tvm import te
from tunesmith import Operator
from tunesmith.kernels.operator import Dim, Example

def define(n, dtype):
    x = te.placeholder((n,), dtype, name="x")
    return [x, te.compute((n,), lambda i: x[i] + x[i], name="double")]

def operator(name, factor):
    return Operator(name=name, dims=(Dim("n"),), define=define, flops=lambda n: n,
        reference=lambda x, n: (factor * x.astype(np.float64)).astype(x.dtype),
        examples=(Example({"n": 5}, "odd"),))

DOUBLE, TREBLE = operator("double", 2), operator("treble", 3)
"""
    )
    return path


@pytest.fixture
def write_model(tmp_path):
    """Write an ONNX model of one operator on one input x; return its path."""

    def write(operator, shape):
        node = helper.make_node(operator, ["x"], ["y"])
        types = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", None))
        ]
        graph = helper.make_graph([node], "graph", types[:1], types[1:])
        path = tmp_path / "one.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
        return path

    return write


@pytest.fixture(scope="session")
def onnx_file(tmp_path_factory):
    """A model of two matrix multiplications with a relu between them."""
    rng = np.random.default_rng(0)
    weights = {"w1": rng.random((8, 32), np.float32), "w2": rng.random((32, 4), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path = tmp_path_factory.mktemp("model") / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path
