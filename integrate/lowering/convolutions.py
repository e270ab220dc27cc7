"""Convolutions of a model, of lines, images or volumes: channels last, and no zeros between pixels.

With channels last the innermost loop of a convolution runs over channels that lie side by side in memory. One
with channels first becomes one with channels last between two transpositions.
"""

from __future__ import annotations

from typing import Any

from tvm.relax import op

from ...kernels.transposed_convolution import TransposedConvolution
from .rewriting import Rewriter, Rule, extents, op_name, with_attrs
from .transpositions import Axes

_AXES = {3: "W", 4: "HW", 5: "DHW"}
_CONVOLUTIONS = {"conv1d": op.nn.conv1d, "conv2d": op.nn.conv2d, "conv3d": op.nn.conv3d}


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
    attrs, rank = call.attrs, len(extents(call))
    enlarges = int(attrs.groups) > 1 or any(s != 1 for s in attrs.strides)
    if not enlarges and attrs.kernel_layout == f"IO{_AXES[rank]}":
        return _turned(rewriter, call)
    dilates = any(d != 1 for d in attrs.dilation)
    return None if dilates else _with_channels_last(rewriter, call, (*range(2, rank), 0, 1), "IO")


def _turned(rewriter: Rewriter, call: Any) -> Any:
    """Make a convolution of one that enlarges nothing: it has its taps in the other order."""
    attrs, (data, weight) = call.attrs, call.args
    reach = [int(d) * (k - 1) for d, k in zip(attrs.dilation, extents(weight)[2:], strict=True)]
    padding = [r - int(p) for r, p in zip([*reach, *reach], attrs.padding, strict=True)]
    if min(padding) < 0:
        return None
    for axis in range(2, len(extents(weight))):
        weight = rewriter.make(op.flip(weight, axis))
    weight = rewriter.make(op.permute_dims(weight, (1, 0, *range(2, len(extents(weight))))))
    convolution = _CONVOLUTIONS[op_name(call).split(".")[-1].split("_")[0]]
    options = {"dilation": attrs.dilation, "out_dtype": attrs.out_dtype or None}
    return rewriter.make(convolution(data, weight, padding=padding, **options))


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
