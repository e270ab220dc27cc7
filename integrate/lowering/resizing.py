"""Images of a model in another size: channels last where their neighbours are, places in whole numbers."""

from __future__ import annotations

from typing import Any

from tvm.relax import op

from ...kernels.arithmetic import sum_dtype
from ...kernels.resampling import Places, Resampling
from .convolutions import channels_first, channels_first_of_last, channels_last
from .rewriting import Rewriter, Rule, extents, with_attrs
from .transpositions import transposed

_RESIZE = "relax.image.resize2d"
_FLOATS = ("float32", "float16", "bfloat16", "float64")
_LAYOUTS, _MODES = ("NHWC", "NCHW"), ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
_ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def _resize(rewriter: Rewriter, call: Any) -> Any:
    """Resize channels-last what is channels-last."""
    found, rank = transposed(rewriter, call.args[0]), len(extents(call))
    if found is None or found[1] != channels_first_of_last(rank) or call.attrs.layout != channels_first(rank):
        return None
    result = with_attrs(call, [found[0], call.args[1]], layout=channels_last(rank))
    return op.permute_dims(rewriter.emit(result), found[1])


def _legalized(builder: Any, call: Any) -> Any:
    """Return a call of the definition of `kernels.resize`, or what TVM makes of the other ways to resize."""
    resized, attrs, dtype = _resampling(call), call.attrs, call.ty.dtype.dtype
    if resized is None or call.args[0].ty.dtype != call.ty.dtype:
        return call.op.get_attr("FLegalize")(builder, call)
    if attrs.method == "linear" and str(dtype) in _FLOATS:
        return builder.call_te(resized.bilinear, call.args[0], primfunc_name_hint="resize2d")
    default = "round" if attrs.coordinate_transformation_mode == "align_corners" else "floor"
    rounding = str(attrs.rounding_method or default)
    if attrs.method == "nearest_neighbor" and rounding in _ROUNDINGS:
        return builder.call_te(resized.nearest, call.args[0], rounding, primfunc_name_hint="resize2d")
    return call.op.get_attr("FLegalize")(builder, call)


def _resampling(call: Any) -> Resampling | None:
    """Return what resizes, None where places are not counted as ONNX's usual modes do."""
    layout, mode = str(call.attrs.layout), str(call.attrs.coordinate_transformation_mode)
    if layout not in _LAYOUTS or mode not in _MODES:
        return None
    at = [layout.index(axis) for axis in "HW"]
    before, after = ([extents(x)[i] for i in at] for x in (call.args[0], call))
    rows, columns = (Places.of(mode, *sizes) for sizes in zip(before, after, strict=True))
    return Resampling(rows, columns, layout, sum_dtype(str(call.ty.dtype.dtype)))


RESIZING: dict[str, Rule] = {_RESIZE: _resize}
"""The rule that resizes with channels last."""

LEGALIZATIONS: dict[str, Any] = {_RESIZE: _legalized}
"""What function is made of the operator of which TVM makes another, for its pass ``LegalizeOps``."""
