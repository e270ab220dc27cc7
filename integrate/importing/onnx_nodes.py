"""Nodes for an ONNX graph, in the form that the model's version of the standard has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

# Since then the lists of integers of Split, Squeeze and Unsqueeze are inputs; they were attributes.
_LISTS_ARE_INPUTS = 13


def with_list(
    version: int,
    operator: str,
    source: str,
    results: Sequence[str],
    name: str,
    values: Any,
    **attributes: Any,
) -> list[Any]:
    """Make a node with a list of integers: an input since version 13, an attribute before."""
    if version < _LISTS_ARE_INPUTS:
        return [helper.make_node(operator, [source], results, **{name: values, **attributes})]
    constant = f"{results[0]}/{name}"
    node = helper.make_node(operator, [source, constant], results, **attributes)
    return [_constant(constant, np.array(values, np.int64)), node]


def _constant(name: str, value: np.ndarray) -> Any:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))


class Nodes:
    """A list of nodes, each with names of its own.

    Parameters
    ----------
    prefix : str
        What all names begin with.
    version : int
        Of the standard's operators.
    """

    def __init__(self, prefix: str, version: int) -> None:
        self.nodes: list[Any] = []
        self._prefix, self._version, self._count = prefix, version, 0

    def __call__(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Append a node and return the name of its output."""
        name = self._name()
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def item(self, source: str, index: int, axis: int) -> str:
        """Take one index of an axis, which is gone then."""
        return self("Gather", [source, self.constant(np.array(index, np.int64))], axis=axis)

    def expanded(self, source: str, axes: list[int]) -> str:
        """Insert axes of one element."""
        name = self._name()
        self.nodes += with_list(self._version, "Unsqueeze", source, [name], "axes", axes)
        return name

    def split(self, source: str, axis: int, sizes: list[int]) -> list[str]:
        """Cut an axis into parts."""
        names = [self._name() for _ in sizes]
        self.nodes += with_list(self._version, "Split", source, names, "split", sizes, axis=axis)
        return names

    def zeros(self, element: int, shape: list[int]) -> str:
        """Make a constant."""
        return self.constant(np.zeros(shape, helper.tensor_dtype_to_np_dtype(element)))

    def constant(self, value: np.ndarray) -> str:
        """Make a constant of an array."""
        name = self._name()
        self.nodes.append(_constant(name, value))
        return name

    def _name(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"
