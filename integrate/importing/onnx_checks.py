"""What keeps an ONNX model from being imported, or an import from being right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
from onnx import helper

from .errors import (
    ConversionError,
    DataDependentShapeError,
    UnsupportedOperatorError,
    UnsupportedTypeError,
)
from .onnx_file import node_label, static_type
from .onnx_operators import DATA_DEPENDENT, condition_inputs, shape_inputs, unsupported

# TVM packs some of these, rounds others wrongly, and has no arrays of the rest.
_UNSUPPORTED_TYPES = ("FLOAT8", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2", "COMPLEX", "STRING")

_GIVE_IT = "give it with input_values (--input-values NAME:VALUE)"

TypeOf = Callable[[str], "tuple[str, tuple[int, ...]] | None"]
"""Returns dtype and shape of what a value became, or None if that is not known."""


def require_supported(graph: Any, types: dict[str, Any]) -> None:
    """Check that all operators and types are supported, and that no shape depends on data.

    Parameters
    ----------
    graph : onnx.GraphProto
        With its input shapes bound and constants folded.
    types : dict
        The type of each value, as far as it is known.

    Raises
    ------
    UnsupportedOperatorError, UnsupportedTypeError, DataDependentShapeError
        The first that does not hold; operators are all named.
    """
    missing = unsupported(graph.node)
    if missing:
        where = ", ".join(f"{name} (node {node!r})" for name, node in missing.items())
        raise UnsupportedOperatorError(
            f"unsupported ONNX operator{'s' * (len(missing) > 1)}: {where}; replace it before the export"
            f"{_branch_hint(graph)}"
        )
    for node in graph.node:
        _require_right(node)
        _require_known_shape(node, types)
        _require_types(node, types)
    for name, node in shape_inputs(graph).items():
        if any(static_type(types.get(output)) is None for output in node.output):
            raise DataDependentShapeError(
                f"the shape of what {_described(node)} gives depends on the value of input {name!r}: "
                f"{_GIVE_IT}"
            )


def _require_right(node: Any) -> None:
    """Check that a node is none of those that TVM computes otherwise than the standard."""
    # Lowering takes all batch normalizations for inference, and draws no random numbers.
    if any(a.name == "training_mode" and a.i for a in node.attribute) or node.op_type == "Dropout":
        raise UnsupportedOperatorError(f"{_described(node)} is in training mode: export it for inference")
    # It interpolates before it takes the maximum.
    if node.op_type == "RoiAlign" and any(a.name == "mode" and a.s == b"max" for a in node.attribute):
        raise UnsupportedOperatorError(f"{_described(node)}: TVM computes mode 'max' otherwise; use 'avg'")


def _require_known_shape(node: Any, types: dict[str, Any]) -> None:
    if node.op_type in DATA_DEPENDENT and any(static_type(types.get(o)) is None for o in node.output if o):
        raise DataDependentShapeError(
            f"the shape of what {_described(node)} gives depends on the data, and tunesmith compiles for "
            "shapes: end the model before it"
        )


def _require_types(node: Any, types: dict[str, Any]) -> None:
    for name in (*node.input, *node.output):
        if name in types:
            _require_type(onnx.TensorProto.DataType.Name(types[name].tensor_type.elem_type), name, node)


def _require_type(kind: str, name: str, node: Any) -> None:
    if kind.startswith(_UNSUPPORTED_TYPES):
        raise UnsupportedTypeError(
            f"unsupported type {kind} of {name!r} at {_described(node)}: TVM does not compute with it "
            "on CPUs as the standard says; cast before the export"
        )


def require_types(graph: Any, types: dict[str, Any], type_of: TypeOf) -> None:
    """Check that what each node became has the type and shape that the standard gives it.

    Raises
    ------
    ConversionError
        TVM's importer made something else of a node.
    """
    read = {name for node in graph.node for name in node.input} | {v.name for v in graph.output}
    for node in graph.node:
        for name in sorted(read.intersection(node.output)):
            known, found = static_type(types.get(name)), type_of(name)
            if found is not None:
                _require_type(found[0].upper(), name, node)
            if known is None or found is None:
                continue
            wanted = (str(helper.tensor_dtype_to_np_dtype(known[0])), known[1])
            if found != wanted:
                raise ConversionError(
                    f"TVM imports {_described(node)} wrongly: output {name!r} becomes {found[0]} of shape "
                    f"{found[1]}, not {wanted[0]} of shape {wanted[1]}"
                )


def _branch_hint(graph: Any) -> str:
    """Say which inputs would tell the branches that are not taken, with what is unsupported in them."""
    found = condition_inputs(graph)
    named = ", ".join(f"{_described(node)} on the value of input {name!r}" for name, node in found.items())
    return f". Which branch is taken depends at {named}: {_GIVE_IT}" if found else ""


def shape_input_hint(graph: Any) -> str:
    """Say which inputs a converter may have wanted as constants."""
    found = shape_inputs(graph)
    if not found:
        return ""
    named = ", ".join(f"{name!r} of {_described(node)}" for name, node in found.items())
    return f"; it may want the value of input {named}: {_GIVE_IT}"


def _described(node: Any) -> str:
    return f"{node.op_type} (node {node_label(node)!r})"
