"""Step 3 of 3: tune and swap. Take a function out of a model, put one's own in its place, tune it, ship it.

    python examples/03_tune_and_swap.py

`my_ops.py` has the operator of step 1 with the schedule of step 2 in one file. The model here, an ONNX file,
computes the same inside. Nothing is swapped that does not: the last part shows a refusal.

What needs no own operator the command line does:

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

OPERATOR = f"{Path(__file__).with_name('my_ops.py')}:swish_matmul"


def write_model(path: Path, batch: int, width: int) -> None:
    """Write swish(x W1) W2: 10 scores for each row of x."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (width, 4 * width), "w2": (4 * width, 10)}
    weights = {name: rng.standard_normal(shape, dtype=np.float32) / 16 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["hidden"]),
        helper.make_node("Sigmoid", ["hidden"], ["gate"]),
        helper.make_node("Mul", ["hidden", "gate"], ["active"]),
        helper.make_node("MatMul", ["active", "w2"], ["y"]),
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
        for found in ts.extract_workloads(model):
            print(f"{found.workload.name}: {found.workload.flops / 1e6:.2f} MFLOP, {found.share:.0%} of all")

        # Take the heaviest out by its name; put the own operator of the same shape in its place.
        name = ts.extract_workloads(model)[0].functions[0]
        swapped = ts.replace(model, name, ts.workload(OPERATOR, m=batch, n=4 * width, k=width))
        result = ts.tune(ts.take(swapped, name), trials=trials, database=database)
        print(f"tuned in the space of its own schedule: {dict(result.best.knobs)}")

        before, after = ts.compile_model(model), ts.compile_model(swapped, database=database)
        for choice in after.choices:
            print(f"{choice.function}: {choice.origin} ({choice.schedule}), {choice.reason}")
        assert (after.choices[0].origin, after.choices[0].schedule) == ("record", "swish_tiles")

        x = np.random.default_rng(1).standard_normal((batch, width), dtype=np.float32)
        want, got = before.run({"x": x})["output_0"], after.run({"x": x})["output_0"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

        path = after.export(Path(folder, "two_layers.tsm"))
        loaded = ts.load_package(path).run({"x": x})["output_0"]
        print(f"the package gives the same: {np.array_equal(loaded, got)}")

        # A function on NumPy arrays would do as well: here one that forgets the swish.
        try:
            ts.replace(model, name, lambda a, b, out: np.matmul(a, b, out=out))
        except ts.InputError as refusal:
            print(f"refused: {refusal}")


if __name__ == "__main__":
    main()
