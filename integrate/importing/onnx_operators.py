"""What TVM's ONNX importer has a converter for: it looks at names alone, and a name may have two meanings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map

from .onnx_converters import CONVERTERS
from .onnx_file import node_label

_STANDARD = ("", "ai.onnx")
_MICROSOFT = "com.microsoft"
# Converters of ONNX Runtime's own operators; Attention is another operator than the standard's.
_OF_MICROSOFT = frozenset(
    {
        "Attention",
        "BiasGelu",
        "EmbedLayerNormalization",
        "FastGelu",
        "Gelu",
        "MatMulInteger16",
        "SkipLayerNormalization",
    }
)
_ONLY_OF_MICROSOFT = _OF_MICROSOFT - {"Gelu"}
# Handled by the importer without a converter.
_BUILT_IN = frozenset({"If"})

DATA_DEPENDENT = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators whose results are as long as the data make them."""

SHAPE_INPUTS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "OneHot": (1, 2),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **{f"Reduce{kind}": (1,) for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod")},
    **{f"Reduce{kind}": (1,) for kind in ("Sum", "SumSquare")},
}
"""The positions of those inputs whose values must be known, mostly for the shape of the result."""


def shape_inputs(graph: Any) -> dict[str, Any]:
    """Return the inputs of a graph whose values decide about shapes, each with a node that reads it."""
    given = _given(graph)
    found: dict[str, Any] = {}
    for node in graph.node:
        for position in SHAPE_INPUTS.get(node.op_type, ()):
            if position < len(node.input) and node.input[position] in given:
                found.setdefault(node.input[position], node)
    return found


def condition_inputs(graph: Any) -> dict[str, Any]:
    """Return the inputs of a graph that decide which branch of an ``If`` is taken, each with the ``If``."""
    given = _given(graph)
    found: dict[str, Any] = {}
    sources = {name: node.input for node in graph.node for name in node.output}
    for node in graph.node:
        pending = [node.input[0]] if node.op_type == "If" else []
        while pending:
            name = pending.pop()
            pending.extend(sources.pop(name, ()))
            if name in given:
                found.setdefault(name, node)
    return found


def _given(graph: Any) -> set[str]:
    """Return the inputs of a graph that are no constants."""
    return {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}


def is_importable(node: Any) -> bool:
    """Tell whether TVM's importer has a converter for a node's operator."""
    if node.domain == _MICROSOFT:
        return node.op_type in _OF_MICROSOFT
    known = node.op_type in CONVERTERS or node.op_type in _get_convert_map() or node.op_type in _BUILT_IN
    return known and node.domain in _STANDARD and node.op_type not in _ONLY_OF_MICROSOFT


def unsupported(nodes: Iterable[Any]) -> dict[str, str]:
    """Return the operators that cannot be imported, each with the first node that has it."""
    found: dict[str, str] = {}
    for node in nodes:
        if not is_importable(node):
            domain = "" if node.domain in _STANDARD else f"{node.domain}."
            found.setdefault(f"{domain}{node.op_type}", node_label(node))
        for attribute in node.attribute:
            found = {**unsupported(attribute.g.node), **found}
    return dict(sorted(found.items()))
