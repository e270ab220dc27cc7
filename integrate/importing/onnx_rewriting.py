"""ONNX operators written in simpler ones, where TVM's importer lacks the operator or imports it badly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx
from onnx import compose, helper, inliner, numpy_helper

from .onnx_conv_transpose import with_padding
from .onnx_file import schema_of, static_type, version_of
from .onnx_operators import is_importable
from .onnx_quantized import quantized
from .onnx_recurrent import unrolled
from .onnx_resize import exact_resize


@dataclass(frozen=True)
class Known:
    """What is known of a graph where a node is rewritten.

    Parameters
    ----------
    types : dict
        The types of the values so far.
    constants : dict
        The tensors among them, weights included.
    opsets, ir_version
        The model's.
    """

    types: dict[str, Any]
    constants: dict[str, Any]
    opsets: list[Any]
    ir_version: int


def rewritten(node: Any, known: Known) -> list[Any] | None:
    """Return the nodes that take a node's place, or None if it stays."""
    if node.op_type == "Resize":
        return _resize(node, known)
    if node.op_type == "ConvTranspose":
        return with_padding(node, *(static_type(known.types.get(name)) for name in node.input[:2]))
    if node.op_type in ("ReduceMax", "ReduceMin"):
        return _of_booleans(node, known)
    if node.op_type == "Dropout":
        return _inference_dropout(node, known)
    if node.op_type in ("LSTM", "GRU", "RNN"):
        return unrolled(node, known.types, version_of(known.opsets))
    if node.op_type.startswith("QLinear"):
        return quantized(node)
    if not is_importable(node) or _is_badly_imported(node, known):
        return _function_body(node, known)
    return None


def _is_badly_imported(node: Any, known: Known) -> bool:
    """Tell whether TVM's importer takes a node for less than it is."""
    # Of mean and deviation it makes empty tensors.
    if node.op_type == "LayerNormalization":
        return any(node.output[1:])
    # It normalizes along the last axis alone.
    return node.op_type == "RMSNormalization" and not _is_last(node, known)


def _is_last(node: Any, known: Known) -> bool:
    axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
    rank = len(known.types[node.input[0]].tensor_type.shape.dim) if node.input[0] in known.types else 0
    return axis in (-1, rank - 1)


def _inference_dropout(node: Any, known: Known) -> list[Any] | None:
    """Write a Dropout as what it is at inference: its input, and a mask that keeps everything."""
    for name in filter(None, node.input[2:3]):
        if name not in known.constants or numpy_helper.to_array(known.constants[name]).item():
            return None
    parts = [helper.make_node("Identity", [node.input[0]], [node.output[0]])]
    if any(node.output[1:]):
        shape, mask = f"{node.output[1]}/shape", helper.make_tensor("", onnx.TensorProto.BOOL, [1], [True])
        parts.append(helper.make_node("Shape", [node.input[0]], [shape]))
        parts.append(helper.make_node("ConstantOfShape", [shape], [node.output[1]], value=mask))
    return parts


def _resize(node: Any, known: Known) -> list[Any] | None:
    source, result = (static_type(known.types.get(name)) for name in (node.input[0], node.output[0]))
    simpler = exact_resize(node, source, result, known.constants) if source and result else None
    return simpler or _without_empty_inputs(node, known)


def _of_booleans(node: Any, known: Known) -> list[Any] | None:
    """Write the maximum and minimum of booleans in small integers: TVM has none of booleans."""
    found = static_type(known.types.get(node.input[0]))
    if found is None or found[0] != onnx.TensorProto.BOOL:
        return None
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[0], copy.output[0] = f"{node.output[0]}/in", f"{node.output[0]}/out"
    into = helper.make_node("Cast", [node.input[0]], [copy.input[0]], to=onnx.TensorProto.UINT8)
    return [into, copy, helper.make_node("Cast", [copy.output[0]], [node.output[0]], to=found[0])]


def _without_empty_inputs(node: Any, known: Known) -> list[Any] | None:
    """Leave out the empty tensors that older exporters give for optional inputs."""
    empty = {name for name in node.input if name in known.constants and 0 in known.constants[name].dims}
    if not empty:
        return None
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = ["" if name in empty else name for name in node.input]
    return [copy]


def _function_body(node: Any, known: Known) -> list[Any] | None:
    """Return the nodes by which the ONNX standard itself defines an operator, if it is defined so."""
    read = {name for name in node.input if name}
    if not read <= set(known.types) or any(a.HasField("g") for a in node.attribute):
        return None
    graph = helper.make_graph(
        [_with_defaults(node, known)],
        "node",
        [helper.make_value_info(name, known.types[name]) for name in sorted(read)],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
    )
    model = helper.make_model(graph, opset_imports=known.opsets, ir_version=known.ir_version)
    try:
        body = inliner.inline_selected_functions(model, [(node.domain, node.op_type)], False, True).graph
    except Exception:  # left to the importer, which names it
        return None
    if [n.op_type for n in body.node] == [node.op_type]:
        return None
    prefix = f"{node.name or next(filter(None, node.output))}/"
    prefixed = compose.add_prefix_graph(body, prefix, rename_inputs=False, rename_outputs=False)
    return list(prefixed.node)


def _with_defaults(node: Any, known: Known) -> Any:
    """Return a node with the attributes that it leaves out: a function's body refers to them."""
    schema = schema_of(node, known.opsets)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items() if schema else ():
        if name not in given and attribute.default_value.name:
            copy.attribute.append(attribute.default_value)
    return copy
