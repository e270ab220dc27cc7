"""Convolutions of a model, of lines, images or volumes: channels last, and no zeros between pixels.

With channels last the innermost loop of a convolution runs over channels that lie side by side in memory. One
with channels first becomes one with channels last between two transpositions.
"""

from __future__ import annotations

from typing import Any

from tvm.relax import op

from ...kernels.transposed_convolution import TransposedConvolution
from .rewriting import Rewriter, Rule, extents, with_attrs
from .transpositions import Axes

_AXES = {3: "W", 4: "HW", 5: "DHW"}
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")


def channels_first_of_last(rank: int) -> Axes:
    """Return the axes by which a tensor with channels last is transposed to one with channels first."""
    return (0, rank - 1, *range(1, rank - 1))


def channels_last(rank: int) -> str:
    """Return the layout of data with channels last: NHWC of images."""
    return f"N{_AXES[rank]}C"


def channels_first(rank: int) -> str:
    """Return the layout of data with channels first: NCHW of images."""
    return f"NC{_AXES[rank]}"


def _convolution(rewriter: Rewriter, call: Any) -> Any:
    return _with_channels_last(rewriter, call, (*range(2, len(extents(call))), 1, 0), "OI")


def _transposed_convolution(rewriter: Rewriter, call: Any) -> Any:
    if any(d != 1 for d in call.attrs.dilation):
        return None
    return _with_channels_last(rewriter, call, (*range(2, len(extents(call))), 0, 1), "IO")


def _with_channels_last(rewriter: Rewriter, call: Any, axes: Axes, kernel: str) -> Any:
    """Compute one with channels last; ``axes`` bring its weight's output channels to the end."""
    attrs, rank = call.attrs, len(extents(call))
    first, last = channels_first(rank), channels_last(rank)
    if (attrs.data_layout, attrs.kernel_layout) != (first, kernel + _AXES[rank]):
        return None
    if attrs.out_layout not in ("", first):
        return None
    back = channels_first_of_last(rank)
    data = rewriter.make(op.permute_dims(call.args[0], (0, *range(2, rank), 1)))
    weight = rewriter.make(op.permute_dims(call.args[1], axes))
    layouts = {"data_layout": last, "kernel_layout": f"{_AXES[rank]}IO", "out_layout": last}
    return op.permute_dims(rewriter.emit(with_attrs(call, [data, weight], **layouts)), back)


def _legalized(builder: Any, call: Any) -> Any:
    """Return a call of the sums of `kernels.conv2d_transpose`, or what TVM makes of other layouts."""
    attrs = call.attrs
    if attrs.data_layout != channels_last(len(extents(call))):
        return call.op.get_attr("FLegalize")(builder, call)
    axes = len(attrs.strides)
    transposed = TransposedConvolution(
        strides=[int(s) for s in attrs.strides],
        cropped=[int(p) for p in list(attrs.padding)[:axes]],
        outputs=extents(call)[1:-1],
        groups=int(attrs.groups),
        dtype=str(call.ty.dtype),
    )
    return builder.call_te(transposed.of, *call.args, primfunc_name_hint=f"conv{axes}d_transpose")


_TRANSPOSED = [f"relax.nn.{name}_transpose" for name in _CONVOLUTIONS]

CONVOLUTIONS: dict[str, Rule] = {
    **{f"relax.nn.{name}": _convolution for name in _CONVOLUTIONS},
    **dict.fromkeys(_TRANSPOSED, _transposed_convolution),
}
"""The rules that compute convolutions with channels last."""

LEGALIZATIONS: dict[str, Any] = dict.fromkeys(_TRANSPOSED, _legalized)
"""What functions are made of operators of which TVM makes others, for its pass ``LegalizeOps``."""
