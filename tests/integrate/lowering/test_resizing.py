from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tunesmith.integrate.lowering.constants import FoldConstants
from tunesmith.integrate.lowering.layouts import ChannelsLast, SettleLayouts
from tunesmith.integrate.lowering.resizing import LEGALIZATIONS
from tvm import relax
from tvm.ir.transform import Sequential
from tvm.relax import op

from .plain import check_equal, module, normal, ops, outputs

LOWERED = Sequential([ChannelsLast(), SettleLayouts(), FoldConstants()])
IMAGE = (1, 4, 6, 7)


def _resized(x: Any, size: tuple[int, int], method: str, mode: str, rounding: str = "floor") -> Any:
    options = {"method": method, "coordinate_transformation_mode": mode, "rounding_method": rounding}
    return op.image.resize2d(x, size, **options)


def test_it_is_resized_with_channels_last_between_convolutions() -> None:
    def compute(x: Any) -> Any:
        y = _resized(op.nn.conv2d(x, normal(8, 4, 3, 3)), (8, 10), "linear", "half_pixel")
        return op.nn.conv2d(y, normal(2, 8, 1, 1))

    mod = module(compute, IMAGE)
    lowered = LOWERED(mod)
    assert ops(lowered) == ["permute_dims", "nn.conv2d", "image.resize2d", "nn.conv2d", "permute_dims"]
    check_equal(mod, lowered)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("size", [(12, 14), (9, 20), (3, 5), (1, 1)])
@pytest.mark.parametrize(
    ("method", "mode", "rounding"),
    [
        *(("linear", mode, "") for mode in ("half_pixel", "pytorch_half_pixel", "align_corners")),
        ("linear", "asymmetric", ""),
        ("nearest_neighbor", "asymmetric", "floor"),
        ("nearest_neighbor", "half_pixel", "round_prefer_floor"),
        ("nearest_neighbor", "half_pixel", "round_prefer_ceil"),
        ("nearest_neighbor", "asymmetric", ""),
        ("nearest_neighbor", "align_corners", "ceil"),
        ("cubic", "half_pixel", ""),
    ],
)
def test_it_is_what_tvm_makes_of_it(method: str, mode: str, rounding: str, size: Any, layout: str) -> None:
    def compute(mode: str) -> Any:
        more = {"coordinate_transformation_mode": mode, "rounding_method": rounding, "layout": layout}
        return module(lambda x: op.image.resize2d(x, size, method=method, **more), IMAGE)

    ours = relax.transform.LegalizeOps(LEGALIZATIONS)(compute(mode))
    assert ("floor(" not in ours.script()) == (method != "cubic"), "indices are whole numbers"
    # Where corners are aligned and there is one output, TVM divides by zero; it is the first pixel.
    alike = "asymmetric" if (mode, size) == ("align_corners", (1, 1)) else mode
    (got,), (want,) = outputs(ours), outputs(relax.transform.LegalizeOps()(compute(alike)))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_integers_are_left_to_tvm() -> None:
    mod = module(lambda x: _resized(op.astype(x, "uint8"), (12, 14), "linear", "half_pixel"), IMAGE)
    assert (
        relax.transform.LegalizeOps(LEGALIZATIONS)(mod).script()
        == relax.transform.LegalizeOps()(mod).script()
    )
