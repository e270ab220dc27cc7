"""Recurrent layers of ONNX, step by step: TVM's importer has none, and the number of steps is known.

The products of all inputs with the weights are one matrix multiplication before the steps. Where sequences
have lengths of their own, a state stays as it is beyond the end of its sequence, and its output is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper

from .onnx_file import static_type
from .onnx_nodes import Nodes

# Each step adds a dozen nodes; longer sequences take minutes to compile.
_MOST_STEPS = 512
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_DIRECTIONS = {b"forward": (False,), b"reverse": (True,), b"bidirectional": (False, True)}
_PER_STEP, _FEATURES = 0, -1


def unrolled(node: Any, types: dict[str, Any], version: int) -> list[Any] | None:
    """Return the steps of an LSTM, GRU or RNN of the usual activations; None for another node.

    Parameters
    ----------
    node : onnx.NodeProto
        The layer.
    types : dict
        The types of the values known so far.
    version : int
        Of the standard's operators in the model.
    """
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type not in _GATES or not _is_usual(node, attributes):
        return None
    source, recurrence = (static_type(types.get(name)) for name in (node.input[0], node.input[2]))
    by_batch = attributes.get("layout", 0)
    if source is None or recurrence is None or source[1][1 if by_batch else 0] > _MOST_STEPS:
        return None
    return _Unrolling(node, attributes, source, recurrence[1][2], version).nodes


def _is_usual(node: Any, attributes: dict[str, Any]) -> bool:
    """Tell whether a layer has the default activations, no peepholes and no clipping."""
    directions = len(_DIRECTIONS[attributes.get("direction", b"forward")])
    usual = [a.encode() for a in _ACTIVATIONS[node.op_type]] * directions
    inputs = [*node.input, *[""] * 8]
    odd = attributes.get("clip") or attributes.get("input_forget") or inputs[7]
    return not odd and list(attributes.get("activations", usual)) == usual


class _Unrolling:
    """Writes the nodes of one layer."""

    def __init__(self, node: Any, attributes: dict[str, Any], source: Any, hidden: int, version: int) -> None:
        self._add = Nodes(f"{next(filter(None, node.output))}/", version)
        self._kind, self._attributes, self._hidden = node.op_type, attributes, hidden
        self._by_batch = bool(attributes.get("layout", 0))
        self._element, extents = source
        self._steps, self._batch = (extents[1], extents[0]) if self._by_batch else extents[:2]
        self._inputs = [*node.input, *[""] * 8]
        self._write(node.output)

    @property
    def nodes(self) -> list[Any]:
        return self._add.nodes

    def _write(self, outputs: Sequence[str]) -> None:
        directions = _DIRECTIONS[self._attributes.get("direction", b"forward")]
        found = [self._direction(i, backwards) for i, backwards in enumerate(directions)]
        sequence = self._add("Concat", [f[0] for f in found], axis=1)
        states = [self._add("Concat", [f[i] for f in found], axis=0) for i in (1, 2) if found[0][i]]
        if self._by_batch:
            sequence = self._add("Transpose", [sequence], perm=[2, 0, 1, 3])
            states = [self._add("Transpose", [state], perm=[1, 0, 2]) for state in states]
        for name, value in zip(outputs, [sequence, *states], strict=False):
            if name:
                self.nodes.append(helper.make_node("Identity", [value], [name]))

    def _direction(self, i: int, backwards: bool) -> tuple[str, str, str]:
        """Run one direction: all states (steps, 1, batch, hidden), the last state, the last cell."""
        x, w, r, b = self._inputs[:4]
        x = self._add("Transpose", [x], perm=[1, 0, 2]) if self._by_batch else x
        w, r = (self._add("Transpose", [self._part(name, i)], perm=[1, 0]) for name in (w, r))
        both = _GATES[self._kind] * self._hidden
        bias = self._add.split(self._part(b, i), 0, [both, both]) if b else ["", ""]
        products = self._add("MatMul", [x, w])
        if b:
            products = self._add("Add", [products, bias[0]])
        state = self._initial(5, i)
        cell = self._initial(6, i) if self._kind == "LSTM" else ""
        states, zero = [""] * self._steps, self._add.zeros(self._element, [1])
        for t in reversed(range(self._steps)) if backwards else range(self._steps):
            before, within = (state, cell), self._within(t)
            state, cell = self._step(self._add.item(products, t, _PER_STEP), state, cell, r, bias[1])
            output = state
            if within:
                output = self._add("Where", [within, state, zero])
                pairs = zip((state, cell), before, strict=True)
                state, cell = (self._add("Where", [within, *pair]) if pair[0] else "" for pair in pairs)
            states[t] = self._add.expanded(output, [0, 1])
        final = [self._add.expanded(name, [0]) if name else "" for name in (state, cell)]
        return self._add("Concat", states, axis=0), final[0], final[1]

    def _within(self, t: int) -> str:
        """Return which sequences a step is in, (batch, 1), where they have lengths."""
        lengths = self._inputs[4]
        step = self._add.constant(np.array(t, np.int32)) if lengths else ""
        return lengths and self._add.expanded(self._add("Greater", [lengths, step]), [1])

    def _part(self, name: str, i: int) -> str:
        return self._add.item(name, i, 0)

    def _initial(self, position: int, i: int) -> str:
        """Return the initial state of a direction: (batch, hidden)."""
        name = self._inputs[position]
        if not name:
            return self._add.zeros(self._element, [self._batch, self._hidden])
        return self._add.item(name, i, 1 if self._by_batch else 0)

    def _step(self, x: str, state: str, cell: str, r: str, bias: str) -> tuple[str, str]:
        add, sizes = self._add, [self._hidden] * _GATES[self._kind]
        product = add("MatMul", [state, r])
        product = add("Add", [product, bias]) if bias else product
        if self._kind == "GRU":
            return self._gru(add.split(x, _FEATURES, sizes), product, state, r, bias), ""
        summed = add("Add", [x, product])
        if self._kind == "RNN":
            return add("Tanh", [summed]), ""
        i, o, f, c = add.split(summed, _FEATURES, sizes)
        kept = add("Mul", [add("Sigmoid", [f]), cell])
        cell = add("Add", [kept, add("Mul", [add("Sigmoid", [i]), add("Tanh", [c])])])
        return add("Mul", [add("Sigmoid", [o]), add("Tanh", [cell])]), cell

    def _gru(self, x: list[str], product: str, state: str, r: str, bias: str) -> str:
        add, sizes = self._add, [self._hidden] * 3
        z, reset, new = add.split(product, _FEATURES, sizes)
        z, reset = (add("Sigmoid", [add("Add", pair)]) for pair in ([x[0], z], [x[1], reset]))
        if self._attributes.get("linear_before_reset", 0):
            new = add("Mul", [reset, new])
        else:
            weights = add.split(r, 1, sizes)[2]
            new = add("MatMul", [add("Mul", [reset, state]), weights])
            new = add("Add", [new, add.split(bias, 0, sizes)[2]]) if bias else new
        new = add("Tanh", [add("Add", [x[2], new])])
        # (1 - z) new + z state
        return add("Add", [new, add("Mul", [z, add("Sub", [state, new])])])
