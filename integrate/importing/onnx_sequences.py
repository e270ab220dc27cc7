"""Sequences of tensors in ONNX graphs: their lengths are known, so each operator becomes one on tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import helper, numpy_helper

from .onnx_file import static_type
from .onnx_nodes import with_list


class Sequences:
    """The names of the tensors in each sequence of a graph.

    Parameters
    ----------
    types, constants : mapping
        What is known of the graph's values; both grow as its nodes are visited.
    version : int
        Of the standard's operators in the model.
    """

    def __init__(self, types: Mapping[str, Any], constants: Mapping[str, Any], version: int) -> None:
        self._types, self._constants, self._version = types, constants, version
        self._items: dict[str, list[str]] = {}

    def resolved(self, node: Any) -> list[Any] | None:
        """Return the nodes on tensors that take the place of one on sequences; None if it is no such node."""
        resolve = getattr(self, f"_{node.op_type}", None)
        found: list[Any] | None = resolve(node) if resolve is not None else None
        return found

    def _SequenceConstruct(self, node: Any) -> list[Any]:
        return self._made(node, list(node.input))

    def _SequenceEmpty(self, node: Any) -> list[Any]:
        return self._made(node, [])

    def _SequenceInsert(self, node: Any) -> list[Any] | None:
        items = self._items.get(node.input[0])
        position = self._position(node, 2, len(items)) if items is not None else None
        if items is None or position is None:
            return None
        return self._made(node, [*items[:position], node.input[1], *items[position:]])

    def _SequenceErase(self, node: Any) -> list[Any] | None:
        items = self._items.get(node.input[0])
        position = self._position(node, 1, -1) if items is not None else None
        if items is None or position is None:
            return None
        return self._made(node, [name for i, name in enumerate(items) if i != position % len(items)])

    def _SequenceAt(self, node: Any) -> list[Any] | None:
        items, position = self._items.get(node.input[0]), self._position(node, 1, None)
        if items is None or position is None:
            return None
        return [helper.make_node("Identity", [items[position]], [node.output[0]])]

    def _SequenceLength(self, node: Any) -> list[Any] | None:
        if node.input[0] not in self._items:
            return None
        length = len(self._items[node.input[0]])
        return [helper.make_node("Constant", [], [node.output[0]], value_int=length)]

    def _ConcatFromSequence(self, node: Any) -> list[Any] | None:
        items = self._items.get(node.input[0])
        attributes = {a.name: a.i for a in node.attribute}
        if items is None:
            return None
        axis, nodes = attributes["axis"], []
        if attributes.get("new_axis", 0):
            parts = [f"{node.output[0]}/{i}" for i in range(len(items))]
            for item, part in zip(items, parts, strict=True):
                nodes += with_list(self._version, "Unsqueeze", item, [part], "axes", [axis])
            items = parts
        return [*nodes, helper.make_node("Concat", items, [node.output[0]], axis=axis)]

    def _SplitToSequence(self, node: Any) -> list[Any] | None:
        attributes = {a.name: a.i for a in node.attribute}
        axis, source = attributes.get("axis", 0), static_type(self._types.get(node.input[0]))
        given = any(node.input[1:])
        if source is None or (given and node.input[1] not in self._constants):
            return None
        sizes = self._sizes(node, source[1][axis])
        parts = [f"{node.output[0]}/{i}" for i in range(len(sizes))]
        keep = given or attributes.get("keepdims", 1)
        split = parts if keep else [f"{name}/kept" for name in parts]
        nodes = with_list(self._version, "Split", node.input[0], split, "split", sizes, axis=axis)
        for kept, part in zip(split, parts, strict=True) if not keep else ():
            nodes += with_list(self._version, "Squeeze", kept, [part], "axes", [axis])
        return [*self._made(node, parts), *nodes]

    def _sizes(self, node: Any, extent: int) -> list[int]:
        if not any(node.input[1:]):
            return [1] * extent
        given = numpy_helper.to_array(self._constants[node.input[1]])
        if given.ndim:
            return [int(size) for size in given]
        most = int(given)
        return [min(most, extent - start) for start in range(0, extent, most)]

    def _made(self, node: Any, items: list[str]) -> list[Any]:
        """Note what a sequence consists of; nothing is computed for it."""
        self._items[node.output[0]] = items
        return []

    def _position(self, node: Any, at: int, default: int | None) -> int | None:
        name = node.input[at] if at < len(node.input) else ""
        if not name:
            return default
        return int(numpy_helper.to_array(self._constants[name])) if name in self._constants else None
