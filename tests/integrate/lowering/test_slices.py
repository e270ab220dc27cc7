from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tunesmith.integrate.lowering.layouts import ChannelsLast, SettleLayouts
from tvm.ir.transform import Sequential
from tvm.relax import op

from .plain import check_equal, module, ops

MOVED = Sequential([ChannelsLast(), SettleLayouts()])


def _queries(x: Any) -> Any:
    """Cut the second of three out of a projection, as PyTorch's attention does."""
    parts = op.permute_dims(op.expand_dims(op.reshape(x, (4, 1, 3, 8)), 0), [3, 1, 2, 0, 4])
    return op.squeeze(op.strided_slice(op.squeeze(parts, [3]), [0], [1], [2]), [0])


def _pixels(x: Any) -> Any:
    return op.strided_slice(op.permute_dims(x, [0, 3, 1, 2]), [-1, 2], [-3, 0], [2**63 - 1, 5], [1, 2])


def _outer_part(x: Any) -> Any:
    return op.strided_slice(op.reshape(x, (2, 3, 2, 5)), [1], [0], [2])


def _inner_part(x: Any) -> Any:
    return op.strided_slice(op.reshape(x, (2, 3, 2, 5)), [2], [1], [2])


def _merged(x: Any) -> Any:
    return op.strided_slice(op.reshape(x, (12, 5)), [0], [1], [7])


def _strided(x: Any) -> Any:
    return op.strided_slice(op.reshape(x, (2, 3, 2, 5)), [1], [0], [3], [2])


@pytest.mark.parametrize(
    ("compute", "shape", "expected"),
    [
        (_queries, (4, 1, 24), ["strided_slice"]),
        (_pixels, (1, 6, 5, 4), ["strided_slice", "permute_dims"]),
        (_outer_part, (2, 6, 5), ["strided_slice", "reshape"]),
        # No slice of what was reshaped has just these.
        (_inner_part, (2, 6, 5), ["reshape", "strided_slice"]),
        (_merged, (2, 6, 5), ["reshape", "strided_slice"]),
        (_strided, (2, 6, 5), ["reshape", "strided_slice"]),
    ],
)
def test_slices_are_taken_first(
    compute: Callable[[Any], Any], shape: tuple[int, ...], expected: list[str]
) -> None:
    mod = module(compute, shape)
    moved = MOVED(mod)
    assert ops(moved) == expected
    check_equal(mod, moved)


def test_slices_backwards_stay_where_they_are() -> None:
    mod = module(lambda x: op.strided_slice(op.permute_dims(x, [1, 0]), [0], [4], [0], [-1]), (3, 5))
    assert ops(MOVED(mod)) == ["permute_dims", "strided_slice"]
    check_equal(mod, MOVED(mod))
