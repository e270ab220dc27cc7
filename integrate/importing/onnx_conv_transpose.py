"""Transposed convolutions of ONNX that give the shape of their output: TVM's importer takes padding alone."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import helper

_REPLACED = ("output_shape", "auto_pad", "pads", "output_padding")


def with_padding(node: Any, source: Any, weight: Any) -> list[Any] | None:
    """Return a ConvTranspose with the padding that gives its ``output_shape``; None for one without.

    As the standard has it: what is cropped is shared by both ends, one more at the first unless ``auto_pad``
    is SAME_UPPER; what is missing is added at the last.

    Parameters
    ----------
    node : onnx.NodeProto
        The ConvTranspose.
    source, weight : (element type, extents) or None
        Of its inputs, where they are known.
    """
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if "output_shape" not in attributes or source is None or weight is None:
        return None
    pixels, kernel = source[1][2:], weight[1][2:]
    ones, wanted = [1] * len(pixels), attributes["output_shape"][-len(pixels) :]
    strides, dilations = (attributes.get(name, ones) for name in ("strides", "dilations"))
    more = attributes.get("output_padding", [0] * len(pixels))
    cropped = [
        s * (n - 1) + m + d * (k - 1) + 1 - out
        for s, n, m, d, k, out in zip(strides, pixels, more, dilations, kernel, wanted, strict=True)
    ]
    less = [max(0, c) // 2 for c in cropped]
    rest = [max(0, c) - half for c, half in zip(cropped, less, strict=True)]
    begins, ends = (less, rest) if attributes.get("auto_pad") == b"SAME_UPPER" else (rest, less)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(a for a in node.attribute if a.name not in _REPLACED)
    missing = [m + max(0, -c) for m, c in zip(more, cropped, strict=True)]
    padding = {"pads": [*begins, *ends], "output_padding": missing}
    copy.attribute.extend(helper.make_attribute(name, value) for name, value in padding.items())
    return [copy]
