from __future__ import annotations

from typing import Any

import pytest
from tunesmith.integrate.lowering.groups import SplitGroups
from tunesmith.integrate.lowering.pipeline import prepare
from tunesmith.machine.target import host_target
from tvm import relax
from tvm.relax import op

from .plain import check_equal, module, normal, ops

LAYOUTS = {
    "channels_first": ((1, 32, 9, 7), {}),
    "channels_last": ((1, 9, 7, 32), {"data_layout": "NHWC", "kernel_layout": "HWIO"}),
}


def convolution(layout: str, groups: int, outputs: int) -> Any:
    """A grouped 3x3 convolution with a bias and ReLU."""
    _, attrs = LAYOUTS[layout]
    inner = 32 // groups
    weight = normal(3, 3, inner, outputs) if attrs else normal(outputs, inner, 3, 3)
    bias = normal(1, 1, 1, outputs) if attrs else normal(1, outputs, 1, 1)

    def compute(x: Any) -> Any:
        y = op.nn.conv2d(x, weight, strides=2, padding=1, groups=groups, **attrs)
        return op.nn.relu(op.add(y, bias))

    return module(compute, LAYOUTS[layout][0])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("groups", "outputs"), [(2, 48), (4, 32)])
def test_large_groups_become_convolutions_of_their_own(layout: str, groups: int, outputs: int) -> None:
    mod = convolution(layout, groups, outputs)
    parted = SplitGroups()(mod)
    assert ops(mod).count("nn.conv2d") == 1 and ops(parted).count("nn.conv2d") == groups
    check_equal(mod, parted)
    assert isinstance(prepare(parted, host_target())["main"], relax.Function)


@pytest.mark.parametrize(("groups", "outputs"), [(1, 32), (8, 64), (16, 32), (32, 32)])
def test_one_group_many_groups_and_small_ones_are_left_alone(groups: int, outputs: int) -> None:
    parted = SplitGroups()(convolution("channels_last", groups, outputs))
    assert ops(parted).count("nn.conv2d") == 1 and "split" not in ops(parted)
