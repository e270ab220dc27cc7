"""Take the heaviest function out of a model, tune it alone, put it back, and compare the outputs.

    python examples/03_tune_and_swap.py

With a model file the command line does it:

    tunesmith tune model.onnx --tasks list
    tunesmith tune model.onnx --tasks 0 --trials 64
    tunesmith compile model.onnx --output model.tsm
    tunesmith run model.tsm --print-time
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import tunesmith as ts
from onnx import TensorProto, helper, numpy_helper


def write_model(path: Path, batch: int, width: int) -> None:
    """Two fully connected layers, the first with ReLU: 10 scores for each row of x."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (4 * width, width), "b1": (4 * width,), "w2": (10, 4 * width), "b2": (10,)}
    weights = {name: rng.standard_normal(shape, dtype=np.float32) / 16 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["hidden"], transB=1),
        helper.make_node("Relu", ["hidden"], ["positive"]),
        helper.make_node("Gemm", ["positive", "w2", "b2"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "two_layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 10])],
        [numpy_helper.from_array(weight, name) for name, weight in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def main(batch: int = 64, width: int = 256, trials: int = 8) -> None:
    with TemporaryDirectory() as folder, ts.Database(Path(folder, "tuned.db")) as database:
        write_model(Path(folder, "two_layers.onnx"), batch, width)
        model = ts.load_model(Path(folder, "two_layers.onnx"))

        functions = ts.extract_workloads(model)
        for found in functions:
            print(f"{found.workload.name}: {found.workload.flops / 1e6:.2f} MFLOP, {found.share:.0%} of all")

        before = ts.compile_model(model)
        result = ts.tune(functions[0].workload, trials=trials, database=database)
        after = ts.compile_model(model, database=database)
        for choice in after.choices:
            print(f"{choice.function}: {choice.origin} ({choice.schedule}), {choice.reason}")
        assert result.best.id in after.choices[0].reason

        x = np.random.default_rng(1).standard_normal((batch, width), dtype=np.float32)
        want, got = before.run({"x": x})["output_0"], after.run({"x": x})["output_0"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        assert np.array_equal(got.argmax(1), want.argmax(1))

        path = after.export(Path(folder, "two_layers.tsm"))
        loaded = ts.load_package(path).run({"x": x})["output_0"]
        print(f"the package gives the same: {np.array_equal(loaded, got)}")


if __name__ == "__main__":
    main()
