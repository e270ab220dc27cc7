"""Shape arithmetic inside ONNX graphs: with the input shapes bound, it is computed before the import.

Exported models compute shapes as they run: ``Shape``, ``Gather``, ``Concat``, ``Reshape``. TVM wants those
shapes as constants. One walk over the graph infers the type of every value, evaluates the nodes whose
inputs are known, and leaves the rest with their shapes known.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from .onnx_file import node_label, schema_of, static_type, version_of
from .onnx_rewriting import Known, rewritten
from .onnx_sequences import Sequences
from .shapes import Shapes

# A mask of 1024 x 1024 positions is folded; what is larger is cheaper to compute than to store.
_MOST_ELEMENTS = 1 << 20
# Shapes, axes, pads and scales are short; of longer constants inference never asks the values.
_LONGEST_SHAPE_DATA = 1 << 12
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
)


def specialize(proto: Any, shapes: Shapes) -> dict[str, Any]:
    """Bind the input shapes of a model and compute what then depends on shapes and constants alone.

    The model is changed in place: its weights may be too large to be copied.

    Parameters
    ----------
    proto : onnx.ModelProto
        The model; nodes that compute constants go, and so does what no output depends on.
    shapes : mapping
        The shape of each input.

    Returns
    -------
    dict
        The type of each value, as far as it can be inferred.
    """
    if proto.functions:
        proto.CopyFrom(onnx.inliner.inline_local_functions(proto))
    folder = _Folder(proto, shapes)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for node in proto.graph.node:
            folder.visit(node)
    nodes = _needed(folder.nodes, {value.name for value in proto.graph.output})
    used = {name for node in nodes for name in _read_names(node)} | {v.name for v in proto.graph.output}
    inputs = [value for value in proto.graph.input if value.name in shapes]
    _replace(proto.graph.node, nodes)
    _replace(proto.graph.input, inputs)
    _replace_weights(proto.graph.initializer, [t for name, t in folder.constants.items() if name in used])
    del proto.graph.value_info[:]
    return folder.types


class _Folder:
    """Walks nodes in order and keeps the types and the constants known so far."""

    def __init__(self, proto: Any, shapes: Shapes) -> None:
        self.opsets = list(proto.opset_import)
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.types = {
            value.name: helper.make_tensor_type_proto(value.type.tensor_type.elem_type, shapes[value.name])
            for value in proto.graph.input
            if value.name in shapes
        }
        self._known = Known(self.types, self.constants, self.opsets, proto.ir_version)
        self._sequences = Sequences(self.types, self.constants, version_of(proto.opset_import))
        for tensor in proto.graph.initializer:
            self._keep(tensor)

    def visit(self, node: Any) -> None:
        """Fold a node, put simpler ones in its place, or keep it."""
        branch = self._taken_branch(node)
        if branch is not None:
            self._inline(branch, node.output)
            return
        self._infer(node)
        values = self._evaluated(node)
        if values is not None:
            for name, value in zip(node.output, values, strict=False):
                self._keep(numpy_helper.from_array(value, name))
            return
        simpler = self._sequences.resolved(node)
        if simpler is None:
            simpler = rewritten(node, self._known)
        if simpler is None:
            self.nodes.append(node)
            return
        for part in simpler:
            self.visit(part)

    def _keep(self, tensor: Any) -> None:
        self.constants[tensor.name] = tensor
        self.types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)

    def _taken_branch(self, node: Any) -> Any:
        """Return the branch of an If whose condition is known."""
        if node.op_type != "If" or node.input[0] not in self.constants:
            return None
        taken = (
            "then_branch" if numpy_helper.to_array(self.constants[node.input[0]]).item() else "else_branch"
        )
        return next(a.g for a in node.attribute if a.name == taken)

    def _inline(self, branch: Any, outputs: Sequence[str]) -> None:
        """Visit a branch's nodes in the place of the If; names are unique across a graph and its parts."""
        for tensor in branch.initializer:
            self._keep(tensor)
        for node in branch.node:
            self.visit(node)
        for value, output in zip(branch.output, outputs, strict=True):
            self.visit(helper.make_node("Identity", [value.name], [output]))

    def _infer(self, node: Any) -> None:
        """Note the types of a node's outputs; those of a node that inference does not know stay unknown."""
        schema = schema_of(node, self.opsets)
        if schema is None or any(name and name not in self.types for name in _read_names(node)):
            return
        known = {name: self.types[name] for name in _read_names(node) if name}
        data = {n: self.constants[n] for n in node.input if self._size(n, _LONGEST_SHAPE_DATA) is not None}
        try:
            found = shape_inference.infer_node_outputs(
                schema, node, known, data, opset_imports=self.opsets, ir_version=self._known.ir_version
            )
        except Exception:  # what inference refuses, the importer may know: it has the last word
            return
        self.types.update(found)

    def _size(self, name: str, most: int = _MOST_ELEMENTS) -> int | None:
        """Return the number of elements of a constant, or None if it is none or has too many."""
        if name not in self.constants:
            return None
        elements = prod(self.constants[name].dims)
        return elements if elements <= most else None

    def _evaluated(self, node: Any) -> list[np.ndarray] | None:
        """Compute a node's outputs if its inputs are known, it is deterministic, and they are not large."""
        if node.op_type in ("Shape", "Size"):
            return self._shape_value(node)
        if node.op_type in _CONTROL_FLOW or node.op_type in _RANDOM or node.domain not in ("", "ai.onnx"):
            return None
        types = [static_type(self.types.get(name)) for name in node.output if name]
        if types and all(known is not None and 0 in known[1] for known in types):
            return [_empty(known) for known in types if known is not None]
        if any(name and self._size(name) is None and not self._is_empty(name) for name in node.input):
            return None
        if any(known is None or prod(known[1]) > _MOST_ELEMENTS for known in types):
            return None
        return _run(node, {name: self._array(name) for name in node.input if name}, self.opsets)

    def _is_empty(self, name: str) -> bool:
        """Tell whether a value has no elements: then all of it is known."""
        known = static_type(self.types.get(name))
        return known is not None and 0 in known[1]

    def _array(self, name: str) -> np.ndarray:
        if name in self.constants:
            return np.asarray(numpy_helper.to_array(self.constants[name]))
        known = static_type(self.types[name])
        assert known is not None, name
        return _empty(known)

    def _shape_value(self, node: Any) -> list[np.ndarray] | None:
        known = static_type(self.types.get(node.input[0]))
        if known is None:
            return None
        if node.op_type == "Size":
            return [np.array(prod(known[1]), np.int64)]
        bounds = {a.name: a.i for a in node.attribute}
        return [np.array(known[1][bounds.get("start", 0) : bounds.get("end")], np.int64)]


def _empty(known: tuple[int, tuple[int, ...]]) -> np.ndarray:
    return np.empty(known[1], helper.tensor_dtype_to_np_dtype(known[0]))


def _run(node: Any, inputs: dict[str, np.ndarray], opsets: list[Any]) -> list[np.ndarray] | None:
    """Evaluate one node with onnx's reference implementation; None where that has none that works."""
    graph = helper.make_graph(
        [node],
        "node",
        [onnx.ValueInfoProto(name=name) for name in inputs],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
    )
    try:
        values = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets)).run(None, inputs)
    except Exception:  # left to the importer
        return None
    arrays = [np.asarray(value) for value in values]
    return arrays if len(arrays) == len(node.output) and all(a.dtype != object for a in arrays) else None


def _read_names(node: Any) -> Iterable[str]:
    """Yield what a node reads, and what the graphs inside it read from outside."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            inside = {o for n in graph.node for o in n.output} | {t.name for t in graph.initializer}
            inside |= {value.name for value in graph.input}
            read = {name for n in graph.node for name in _read_names(n)} | {v.name for v in graph.output}
            yield from sorted(read - inside)


def _needed(nodes: list[Any], wanted: set[str]) -> list[Any]:
    """Leave out the nodes that no output depends on, and name those that have no name."""
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(_read_names(node))
    for node in kept:
        node.name = node_label(node)
    return kept[::-1]


def _replace(field: Any, messages: list[Any]) -> None:
    """Put other messages into a repeated field."""
    del field[:]
    field.extend(messages)


def _replace_weights(field: Any, constants: list[Any]) -> None:
    """Keep the weights that are used, without a copy, and add the constants that are new."""
    kept = {tensor.name for tensor in constants}
    for i in reversed(range(len(field))):
        if field[i].name in kept:
            kept.remove(field[i].name)
        else:
            del field[i]
    field.extend(tensor for tensor in constants if tensor.name in kept)
