"""Grouped convolutions in models: they are scheduled as such, and their weights packed beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.integrate.lowering.application import apply_records
from tunesmith.integrate.lowering.packing import pack_weights
from tvm.relax import op

from .plain import module, normal, outputs

LAYOUTS = {
    "channels_first": ((1, 32, 9, 7), {}),
    "channels_last": ((1, 9, 7, 32), {"data_layout": "NHWC", "kernel_layout": "HWIO"}),
}


def convolution(layout: str, groups: int, columns: int) -> Any:
    """A grouped 3x3 convolution with a bias and ReLU."""
    shape, attrs = LAYOUTS[layout]
    inner = 32 // groups
    weight = normal(3, 3, inner, columns) if attrs else normal(columns, inner, 3, 3)
    bias = normal(1, 1, 1, columns) if attrs else normal(1, columns, 1, 1)

    def compute(x: Any) -> Any:
        y = op.nn.conv2d(x, weight, strides=2, padding=1, groups=groups, **attrs)
        return op.nn.relu(op.add(y, bias))

    return module(compute, shape)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("groups", "columns"), [(2, 48), (16, 32)])
def test_a_grouped_convolution_is_scheduled_and_right(layout: str, groups: int, columns: int) -> None:
    mod = convolution(layout, groups, columns)
    package = ts.compile_model(ts.load_model(mod))
    assert [c.schedule for c in package.choices if c.flops] == ["grouped"]
    x = np.random.default_rng(1).standard_normal(LAYOUTS[layout][0]).astype(np.float32)
    (want,) = outputs(mod)
    np.testing.assert_allclose(package.run({"x0": x})["output_0"], want, rtol=1e-4, atol=1e-5)


def test_its_weight_is_laid_out_when_the_model_is_compiled() -> None:
    target = ts.host_target()
    prepared = ts.load_model(convolution("channels_first", 16, 32)).prepared(target)
    scheduled, _ = apply_records(prepared, target)
    packed = pack_weights(scheduled)
    assert "grouped_weight" in scheduled.script() and 'sblock("grouped_weight")' not in packed.script()
