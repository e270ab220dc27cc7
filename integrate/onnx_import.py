"""ONNX files: read, checked and imported, with errors that name what stands in the way."""

from __future__ import annotations

import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import onnx
import tvm
from tvm.relax.frontend.onnx import from_onnx

from ..machine.errors import InputError
from .shapes import Dims, Shapes

_UNSUPPORTED = "not supported for frontend ONNX: "


def read_onnx(path: Path) -> Any:
    """Read an ONNX file.

    Raises
    ------
    InputError
        There is no such file, or it is no ONNX model.
    """
    if not path.is_file():
        raise InputError(f"no such model file: {path}")
    try:
        proto = onnx.load(path)
    except Exception as error:  # each parser that onnx picks by the file's name fails in its own way
        raise InputError(f"not an ONNX model: {path}: {_first_line(error)}") from error
    if not proto.graph.node or not proto.opset_import:
        raise InputError(f"not an ONNX model: {path} holds no graph with operators")
    return proto


def declared_inputs(proto: Any) -> Dims:
    """Return the inputs that a caller must give, with their shapes; weights are left out."""
    weights = {tensor.name for tensor in proto.graph.initializer}
    given = (value for value in proto.graph.input if value.name not in weights)
    return {value.name: _dims(value) for value in given}


def _dims(value: Any) -> tuple[int | str, ...]:
    if not value.type.tensor_type.HasField("shape"):
        raise InputError(f"input {value.name!r} has no shape in this ONNX model; export it with its rank")
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims)


def import_onnx(proto: Any, shapes: Shapes) -> Any:
    """Import a model with its weights as constants and its inputs of the given shapes.

    Raises
    ------
    InputError
        The model has an operator that TVM's importer does not support, named with all others.
    """
    noise = StringIO()  # the importer prints the operator that fails, and warns of each name it changes
    try:
        with warnings.catch_warnings(), redirect_stdout(noise):
            warnings.simplefilter("ignore")
            return from_onnx(_without_sums(proto), shape_dict={n: list(s) for n, s in shapes.items()})
    except tvm.error.OpNotImplemented as error:
        raise InputError(_explanation(str(error), proto)) from error
    except Exception as error:  # an importer's converters fail in ways of their own
        where = noise.getvalue().partition(", with inputs")[0].strip()
        raise InputError(
            f"TVM cannot import this ONNX model: {where or 'import'}: {_first_line(error)}"
        ) from error


def _explanation(message: str, proto: Any) -> str:
    """Name each unsupported operator with the first node that has it."""
    _, found, listed = message.partition(_UNSUPPORTED)
    if not found:
        return f"TVM cannot import this ONNX model: {message}"
    names = sorted(listed.split(", "))
    nodes = {n.op_type: n.name or n.output[0] for n in reversed(proto.graph.node)}
    where = ", ".join(f"{name} (node {nodes.get(name, '?')!r})" for name in names)
    return f"unsupported ONNX operator{'s' * (len(names) > 1)}: {where}; replace it before the export"


def _without_sums(proto: Any) -> Any:
    """Write each Sum as a chain of Add.

    TVM imports Sum as a stack of its inputs and a reduction over them, which nothing can be fused with.
    """
    if not any(node.op_type == "Sum" for node in proto.graph.node):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    nodes = [new for node in copy.graph.node for new in (_adds(node) if node.op_type == "Sum" else [node])]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def _adds(node: Any) -> list[Any]:
    inputs, result = list(node.input), node.output[0]
    if len(inputs) == 1:
        return [onnx.helper.make_node("Identity", inputs, [result])]
    names = [f"{result}/sum{i}" for i in range(len(inputs) - 2)] + [result]
    left = [inputs[0], *names[:-1]]
    pairs = zip(left, inputs[1:], names, strict=True)
    return [onnx.helper.make_node("Add", [a, b], [name]) for a, b, name in pairs]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
