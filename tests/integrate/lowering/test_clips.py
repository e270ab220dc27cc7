from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tunesmith as ts
import tvm
from onnx import helper
from tunesmith.integrate.lowering.clips import RaiseClips
from tunesmith.integrate.lowering.constants import FoldConstants
from tunesmith.integrate.lowering.functions import prim_func_calls
from tvm import relax, topi

from ..conftest import write_onnx
from .plain import check_equal, ops


def _module(*steps: Any) -> Any:
    """Apply TE functions in a row, each a loop nest of its own, as TVM's importer does."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y: Any = x
            for function, *more in steps:
                y = builder.emit_te(function, y, *more)
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("bounds", [(0.25, 0.5), (relax.const(0.25), relax.const(0.5))])
def test_loop_nests_that_clip_become_operators(bounds: Any) -> None:
    mod = _module((topi.maximum, bounds[0]), (topi.minimum, bounds[1]))
    raised = RaiseClips()(mod)
    assert ops(raised) == ["maximum", "minimum"] and not list(prim_func_calls(raised))
    check_equal(mod, raised)


@pytest.mark.parametrize(
    "step", [(topi.maximum, relax.const(np.zeros((1, 3), "float32"))), (topi.add, 1.0), (topi.flip, 1)]
)
def test_other_loop_nests_stay(step: Any) -> None:
    mod = _module(step)
    tvm.ir.assert_structural_equal(RaiseClips()(mod), mod)


def test_a_clip_of_an_onnx_model_is_part_of_its_convolution(tmp_path: Path) -> None:
    weights = {"w": np.ones((8, 4, 1, 1), np.float32), "b": np.ones(8, np.float32)}
    weights |= {"low": np.float32(0), "high": np.float32(6)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("Clip", ["c", "low", "high"], ["y"]),
    ]
    shapes = {"x": [1, 4, 3, 3]}, {"y": [1, 8, 3, 3]}
    model = ts.load_model(write_onnx(tmp_path / "m.onnx", nodes, *shapes, weights))
    names = [name for name, _ in prim_func_calls(model.prepared(ts.host_target()))]
    assert len(names) == 3 and "conv2d" in names[1] and "minimum" in names[1]
    assert "maximum" in ops(RaiseClips()(FoldConstants()(model.mod)))
