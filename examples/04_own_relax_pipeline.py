"""A Relax pipeline of one's own takes what tunesmith found with one pass.

    python examples/04_own_relax_pipeline.py

Who lowers models in their own way needs nothing else of tunesmith: `ts.extract_workloads` finds the functions
of a lowered module, `ts.tune` searches, and `ts.ApplyDatabase` stands at the pipeline's end, after FuseTIR.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tunesmith as ts
import tvm
from tunesmith.machine.arrays import as_tensor
from tvm import relax
from tvm.relax import transform

LOWER = (
    transform.LegalizeOps(),
    transform.AnnotateTIROpPattern(),
    transform.FuseOps(),
    transform.FuseTIR(),
)


def network(batch: int, width: int) -> Any:
    """Two layers and a softmax, their weights constants."""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((batch, width), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = x
            for _ in range(2):
                weight = relax.const(rng.standard_normal((width, width), dtype=np.float32) / width**0.5)
                hidden = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(hidden, weight))))
            y = builder.emit_output(builder.emit(relax.op.nn.softmax(hidden)))
        builder.emit_func_output(y)
    return builder.get()


def run(mod: Any, x: np.ndarray) -> np.ndarray:
    """Compile what the pipeline made, as without tunesmith."""
    vm = relax.VirtualMachine(tvm.compile(mod, target=ts.host_target()), tvm.cpu())
    return np.array(vm["main"](as_tensor(x)).numpy())


def main(batch: int = 64, width: int = 256, trials: int = 8) -> None:
    mod = network(batch, width)
    lowered = tvm.transform.Sequential(LOWER)(mod)
    heaviest = ts.extract_workloads(lowered)[0]
    print(f"{heaviest.workload.name}: called {heaviest.calls} times, {heaviest.share:.0%} of the operations")

    with TemporaryDirectory() as folder, ts.Database(Path(folder, "tuned.db")) as database:
        ts.tune(heaviest.workload, trials=trials, database=database)
        apply = ts.ApplyDatabase(database, ts.host_target())
        scheduled = tvm.transform.Sequential([*LOWER, apply])(mod)
    for choice in apply.choices:
        print(f"{choice.function}: {choice.origin} ({choice.schedule}), {choice.reason}")
    assert apply.choices[0].origin == "record"

    x = np.random.default_rng(1).standard_normal((batch, width), dtype=np.float32)
    np.testing.assert_allclose(run(scheduled, x), run(lowered, x), rtol=1e-4, atol=1e-6)
    print("the outputs are those of the pipeline without the pass")


if __name__ == "__main__":
    main()
