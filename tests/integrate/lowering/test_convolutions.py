from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tunesmith as ts
from tunesmith.integrate.lowering.application import apply_records
from tunesmith.integrate.lowering.constants import FoldConstants
from tunesmith.integrate.lowering.functions import prim_funcs
from tunesmith.integrate.lowering.layouts import ChannelsLast, SettleLayouts
from tunesmith.integrate.lowering.pipeline import prepare
from tvm.ir.transform import Sequential
from tvm.relax import op

from .plain import check_equal, module, normal, ops

LOWERED = Sequential([ChannelsLast(), SettleLayouts(), FoldConstants()])
LINE, IMAGE, VOLUME = (1, 4, 9), (2, 4, 5, 6), (1, 4, 3, 4, 5)
ENLARGED = {"strides": 2, "padding": 1}


def _line(x: Any) -> Any:
    y = op.nn.relu(op.nn.conv1d(x, normal(8, 4, 3), strides=2, padding=(1, 2)))
    return op.nn.conv1d(op.nn.max_pool1d(y, 2, 2), normal(8, 1, 3), dilation=1, groups=8, padding=1)


def _volume(x: Any) -> Any:
    y = op.nn.relu(op.nn.conv3d(x, normal(8, 4, 3, 2, 1), padding=(1, 0, 0, 1, 1, 0)))
    return op.nn.conv3d(op.nn.avg_pool3d(y, (2, 2, 2)), normal(8, 4, 1, 1, 1), groups=2)


def _enlarged(convolution: Callable[..., Any], *kernel: int, **options: Any) -> Callable[..., Any]:
    return lambda x: op.nn.relu(convolution(x, normal(*kernel), **(ENLARGED | options)))


ENLARGING = [
    (_enlarged(op.nn.conv1d_transpose, 4, 5, 4), LINE),
    (_enlarged(op.nn.conv1d_transpose, 4, 2, 3, groups=2, output_padding=1), LINE),
    (_enlarged(op.nn.conv2d_transpose, 4, 5, 4, 4), IMAGE),
    (_enlarged(op.nn.conv2d_transpose, 4, 5, 3, 2, strides=(3, 1), padding=(1, 0, 2, 1)), IMAGE),
    (_enlarged(op.nn.conv2d_transpose, 4, 5, 1, 3, strides=(1, 3), output_padding=(0, 2)), IMAGE),
    (_enlarged(op.nn.conv2d_transpose, 4, 1, 3, 3, groups=4), IMAGE),
    # These enlarge nothing; the last one crops more than its kernel reaches.
    (_enlarged(op.nn.conv1d_transpose, 4, 5, 3, strides=1), LINE),
    (_enlarged(op.nn.conv2d_transpose, 4, 2, 3, 2, strides=1, padding=(0, 1, 2, 0), groups=2), IMAGE),
    (_enlarged(op.nn.conv2d_transpose, 4, 5, 1, 3, strides=1), IMAGE),
    (_enlarged(op.nn.conv3d_transpose, 4, 3, 2, 4, 3, strides=(1, 2, 2)), VOLUME),
]


@pytest.mark.parametrize(("compute", "shape"), [(_line, LINE), (_volume, VOLUME), *ENLARGING])
def test_channels_are_last_between_transpositions_at_the_edges(compute: Any, shape: Any) -> None:
    mod = module(compute, shape)
    lowered = LOWERED(mod)
    assert ops(lowered).count("permute_dims") == 2
    check_equal(mod, lowered)


def test_those_whose_taps_are_spread_stay_as_they_are() -> None:
    mod = module(_enlarged(op.nn.conv2d_transpose, 4, 5, 3, 3, dilation=2), IMAGE)
    assert ops(LOWERED(mod)) == ops(mod)


@pytest.mark.parametrize(("compute", "shape"), ENLARGING)
def test_what_follows_is_fused_in_and_its_schedule_is_no_fallback(compute: Any, shape: Any) -> None:
    target = ts.host_target()
    prepared = prepare(module(compute, shape), target)
    (function,) = [name for name, _ in prim_funcs(prepared) if "transpose_" in name]
    assert function.endswith("_relu")
    _, choices = apply_records(prepared, target)
    (choice,) = [c for c in choices if c.function == function]
    assert choice.schedule != "general", choice
