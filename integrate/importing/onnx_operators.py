"""What TVM's ONNX importer has a converter for: it looks at names alone, and a name may have two meanings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map

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


def is_importable(node: Any) -> bool:
    """Tell whether TVM's importer has a converter for a node's operator."""
    if node.domain == _MICROSOFT:
        return node.op_type in _OF_MICROSOFT
    known = node.op_type in _get_convert_map() or node.op_type in _BUILT_IN
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
