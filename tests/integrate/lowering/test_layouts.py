from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tunesmith.integrate.lowering.constants import FoldConstants
from tunesmith.integrate.lowering.layouts import ChannelsLast, SettleLayouts
from tvm import relax
from tvm.ir.transform import Sequential
from tvm.relax import op

from .plain import check_equal, module, normal, ops

LOWERED = Sequential(
    [ChannelsLast(), SettleLayouts(), relax.transform.EliminateCommonSubexpr(), FoldConstants()]
)
IMAGE = (1, 4, 6, 6)


def _conv(x: Any, out: int = 8, size: int = 3, **attrs: Any) -> Any:
    groups = attrs.get("groups", 1)
    channels = int(x.ty.shape[1]) if isinstance(x, relax.Var) else attrs.pop("channels")
    return op.nn.conv2d(x, normal(out, channels // groups, size, size), padding=size // 2, **attrs)


def _pooled(x: Any) -> Any:
    return op.nn.max_pool2d(_conv(x), (2, 2), (2, 2))


def _residual(x: Any) -> Any:
    y = _conv(x)
    return op.nn.relu(op.add(_conv(y, channels=8), y))


def _bias_of_lower_rank(x: Any) -> Any:
    return op.maximum(op.multiply(op.add(_conv(x), normal(8, 1, 1)), relax.const(2.0)), relax.const(0.5))


def _squeeze_and_excite(x: Any) -> Any:
    y = _conv(x)
    weight = _conv(op.mean(y, [2, 3], keepdims=True), size=1, channels=8)
    return op.multiply(y, op.sigmoid(weight))


def _concatenated(x: Any) -> Any:
    return _conv(op.concat([_conv(x), _conv(x, 4, 1)], axis=1), channels=12)


def _concatenated_with_input(x: Any) -> Any:
    return op.nn.relu(op.concat([_conv(x), x], axis=1))


def _shuffled(x: Any) -> Any:
    y = op.permute_dims(op.reshape(_conv(x), (1, 2, 4, 6, 6)), [0, 2, 1, 3, 4])
    return _conv(op.reshape(y, (1, 8, 6, 6)), groups=8, channels=8)


def _split(x: Any) -> Any:
    parts = op.split(_conv(x), 2, axis=1)
    return op.multiply(relax.TupleGetItem(parts, 0), op.sigmoid(relax.TupleGetItem(parts, 1)))


def _padded(x: Any) -> Any:
    y = op.nn.pad(op.nn.relu(_conv(x)), [0, 0, 0, 0, 1, 2, 0, 1])
    return op.nn.max_pool2d(y, (3, 3))


def _local_response(x: Any) -> Any:
    y = _conv(x)
    mean = op.nn.avg_pool3d(op.expand_dims(op.multiply(y, y), 1), (3, 1, 1), padding=(1, 0, 0, 1, 0, 0))
    return op.divide(y, op.power(op.squeeze(mean, [1]), relax.const(0.75)))


def _soft(x: Any) -> Any:
    return op.nn.softmax(_conv(x), axis=1)


def _negative_axis_mean(x: Any) -> Any:
    return op.nn.relu(op.mean(_conv(x), [-1, -2]))


def _norm_over_channels(x: Any) -> Any:
    y = op.permute_dims(_conv(x), [0, 2, 3, 1])
    y = op.nn.layer_norm(y, normal(8), normal(8), axes=[-1])
    return _conv(op.permute_dims(y, [0, 3, 1, 2]), channels=8)


@pytest.mark.parametrize(
    ("compute", "transpositions"),
    [
        # One at the input, one at the output.
        (_pooled, 2),
        (_residual, 2),
        (_bias_of_lower_rank, 2),
        (_squeeze_and_excite, 2),
        (_concatenated, 2),
        (_split, 2),
        (_padded, 2),
        (_local_response, 2),
        (_soft, 2),
        (_norm_over_channels, 2),
        # The input is transposed once for both of its readers.
        (_concatenated_with_input, 2),
        # The shuffle itself moves channels; nothing moves pixels.
        (_shuffled, 3),
        # No dimension is left that could change its place.
        (_negative_axis_mean, 1),
    ],
)
def test_transpositions_are_left_at_the_edges_alone(compute: Callable[..., Any], transpositions: int) -> None:
    mod = module(compute, IMAGE)
    lowered = LOWERED(mod)
    assert ops(lowered).count("permute_dims") == transpositions
    check_equal(mod, lowered)


def test_a_flattened_image_stays_channels_last_and_the_weight_is_reordered() -> None:
    def compute(x: Any) -> Any:
        return op.matmul(op.reshape(_conv(x), (1, 8 * 36)), normal(8 * 36, 5))

    mod = module(compute, IMAGE)
    lowered = LOWERED(mod)
    assert ops(lowered) == ["permute_dims", "nn.conv2d", "reshape", "matmul"]
    check_equal(mod, lowered)


def test_one_pixel_is_flattened_without_moving() -> None:
    def compute(x: Any) -> Any:
        return op.nn.batch_flatten(op.mean(_conv(x), [2, 3], keepdims=True))

    assert ops(LOWERED(module(compute, IMAGE))) == ["permute_dims", "nn.conv2d", "mean", "reshape"]


def test_two_different_orders_meet() -> None:
    def compute(x: Any, y: Any) -> Any:
        return op.add(op.permute_dims(x, [0, 3, 1, 2]), op.permute_dims(y, [0, 2, 3, 1]))

    mod = module(compute, (1, 6, 6, 4), (1, 6, 4, 6))
    lowered = LOWERED(mod)
    assert ops(lowered).count("permute_dims") == 2
    check_equal(mod, lowered)


def test_a_model_that_is_channels_last_already_is_left_alone() -> None:
    def compute(x: Any) -> Any:
        y = op.nn.conv2d(x, normal(3, 3, 4, 8), data_layout="NHWC", kernel_layout="HWIO")
        return op.nn.relu(y)

    assert ops(LOWERED(module(compute, (1, 6, 6, 4)))) == ["nn.conv2d", "nn.relu"]


def test_rows_of_heads_are_put_together_by_one_transposition() -> None:
    def compute(x: Any) -> Any:
        return op.reshape(op.permute_dims(x, [0, 2, 1, 3]), (1, 6, 12))

    lowered = LOWERED(module(compute, (1, 3, 6, 4)))
    assert ops(lowered) == ["permute_dims", "reshape"]
