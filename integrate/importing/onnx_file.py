"""ONNX files: read and asked; nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ...machine.errors import InputError, unknown_name
from .errors import NotATensorError
from .shapes import Dims, Values


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
        raise InputError(f"not an ONNX model: {path}: {first_line(error)}") from error
    if not proto.opset_import or not (proto.graph.node or proto.graph.output):
        raise InputError(f"not an ONNX model: {path} holds no graph with operators")
    return proto


def declared_inputs(proto: Any) -> Dims:
    """Return the inputs that a caller must give, with their shapes; weights are left out.

    Raises
    ------
    InputError
        An input is no tensor of known rank that holds numbers.
    """
    weights = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.output:
        if value.type.WhichOneof("value") not in (None, "tensor_type"):
            raise NotATensorError(f"output {value.name!r} is no tensor: models give tensors")
    return {value.name: _dims(value) for value in proto.graph.input if value.name not in weights}


def _dims(value: Any) -> tuple[int | str, ...]:
    kind, tensor = value.type.WhichOneof("value"), value.type.tensor_type
    if kind != "tensor_type" or tensor.elem_type == onnx.TensorProto.STRING:
        found = "strings" if kind == "tensor_type" else str(kind or "untyped").partition("_")[0]
        raise NotATensorError(f"input {value.name!r} is no tensor of numbers ({found}): models take tensors")
    if not tensor.HasField("shape"):
        raise InputError(f"input {value.name!r} has no shape in this ONNX model; export it with its rank")
    return tuple(d.dim_value if _is_known(d) else d.dim_param or "?" for d in tensor.shape.dim)


def _is_known(dim: Any) -> bool:
    """Tell whether an extent is a number; Paddle's exporter writes -1 where it is not."""
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)


def bind_values(graph: Any, values: Values) -> None:
    """Make inputs constants of the type that they are declared with.

    Raises
    ------
    InputError
        There is no such input, or a value does not fit it.
    """
    inputs = {value.name: value for value in graph.input}
    for name, value in values.items():
        if name not in inputs:
            raise unknown_name("input", name, inputs)
        graph.initializer.append(numpy_helper.from_array(_declared_as(inputs[name], np.asarray(value)), name))


def _declared_as(declared: Any, value: np.ndarray) -> np.ndarray:
    """Bring a value to its input's type, where nothing of it is lost, and compare the shapes."""
    dims, dtype = _dims(declared), onnx.helper.tensor_dtype_to_np_dtype(declared.type.tensor_type.elem_type)
    pairs = list(zip(dims, value.shape, strict=False))
    fits = len(dims) == value.ndim and all(isinstance(d, str) or d == n for d, n in pairs)
    try:
        with np.errstate(invalid="ignore"):  # an infinity becomes some integer, which differs from it
            converted = value.astype(dtype)
    except (TypeError, ValueError, OverflowError):  # it holds no numbers, or too large ones
        fits = False
    if not fits or not np.array_equal(converted, value):
        shape = ",".join(map(str, dims))
        raise InputError(f"input {declared.name!r} is {dtype}[{shape}] in this model, not {value.tolist()}")
    return converted


def version_of(opsets: Iterable[Any]) -> int:
    """Return the version of the standard operators among those that a model uses."""
    versions = [o.version for o in opsets if o.domain in ("", "ai.onnx")]
    return int(versions[0]) if versions else 1


def schema_of(node: Any, opsets: Iterable[Any]) -> Any:
    """Return the standard's definition of a node's operator in a model's version, or None if it has none."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in opsets}
    if not onnx.defs.has(node.op_type, domain) or domain not in versions:
        return None
    try:
        return onnx.defs.get_schema(node.op_type, versions[domain], domain)
    except onnx.defs.SchemaError:  # younger than the model's version
        return None


def static_type(found: Any) -> tuple[int, tuple[int, ...]] | None:
    """Return element type and extents of a tensor type in which each extent is known."""
    if found is None or not found.HasField("tensor_type") or not found.tensor_type.HasField("shape"):
        return None
    dims = found.tensor_type.shape.dim
    if found.tensor_type.elem_type == onnx.TensorProto.STRING or not all(map(_is_known, dims)):
        return None
    return found.tensor_type.elem_type, tuple(d.dim_value for d in dims)


def node_label(node: Any) -> str:
    """Name a node: its own name, else its first output's."""
    return str(node.name or next(filter(None, node.output), "?"))


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
