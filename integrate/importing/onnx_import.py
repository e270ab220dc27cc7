"""The import of an ONNX model whose shapes are known, with errors that name what stands in the way."""

from __future__ import annotations

import warnings
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import onnx
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from .canonical import canonicalized
from .errors import ConversionError
from .imported import Imported
from .onnx_checks import require_supported, require_types, shape_input_hint
from .onnx_converters import CONVERTERS
from .onnx_file import bind_values, declared_inputs, first_line, version_of
from .onnx_folding import specialize
from .shapes import Shapes, Values, bound_shapes

# What holds these is read as a shape or a factor when the model is imported.
_NEEDS_CONSTANTS = frozenset({"Resize", "Upsample"})
_FLOATS = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE})


def import_onnx(
    proto: Any, given: Shapes, values: Values | None = None, keep_weights: bool = False
) -> Imported:
    """Import a model for inputs of fixed shapes.

    Parameters
    ----------
    proto : onnx.ModelProto
        The model; it is changed.
    given : mapping
        The shape of each input that has symbolic dimensions.
    values : mapping, optional
        The values of inputs that become constants.
    keep_weights : bool
        Leave the weights as inputs, in place of constants.

    Raises
    ------
    InputError
        A dimension is not bound, or a given shape does not fit.
    UnsupportedOperatorError
        The model has operators that TVM's importer does not support, all of them named with a node.
    UnsupportedTypeError
        It computes with a type that TVM cannot compute with.
    DataDependentShapeError
        A shape depends on the values of inputs that are not given.
    ConversionError
        There is a node that TVM's importer cannot convert, or converts wrongly.
    """
    bind_values(proto.graph, values or {})
    shapes = bound_shapes(declared_inputs(proto), given)
    weights = _weight_names(proto.graph) if keep_weights else set()
    types = specialize(proto, shapes)
    require_supported(proto.graph, types)
    importer = _Importer({name: list(shape) for name, shape in shapes.items()}, weights)
    noise = StringIO()  # the importer prints what fails, and warns of each name it changes
    try:
        with warnings.catch_warnings(), redirect_stdout(noise):
            warnings.simplefilter("ignore")
            mod = importer.from_onnx(proto.graph, version_of(proto.opset_import))
    except Exception as error:  # an importer's converters fail in ways of their own
        where = f"{importer.converting}: " if importer.converting else ""
        reason = f"{where}{first_line(error)}{shape_input_hint(proto.graph)}"
        raise ConversionError(f"TVM cannot import this ONNX model: {reason}") from error
    require_types(proto.graph, types, importer.type_of)
    mod, attached = relax.frontend.detach_params(canonicalized(mod))
    values = dict(zip(importer.kept, attached.get("main", []), strict=True))
    return Imported(mod, (*shapes, *values), values)


def _weight_names(graph: Any) -> set[str]:
    """Name the weights that may be inputs: arrays of floats that no converter must know."""
    needed = {name for node in graph.node if node.op_type in _NEEDS_CONSTANTS for name in node.input}
    return {t.name for t in graph.initializer if t.dims and t.data_type in _FLOATS} - needed


class _Importer(ONNXGraphImporter):
    """TVM's importer, which knows which node it is at and which weights stay inputs."""

    converting = ""

    def __init__(self, shapes: dict[str, list[int]], weights: set[str]) -> None:
        super().__init__(shapes, "", keep_params_in_input=bool(weights))
        self.kept: list[str] = []
        self._weight_names = weights

    def type_of(self, name: str) -> tuple[str, tuple[int, ...]] | None:
        """Return dtype and shape of what a value became, if it is a tensor of static shape."""
        ty = getattr(self._nodes.get(name), "ty", None)
        if not isinstance(ty, relax.TensorType) or ty.shape is None or not hasattr(ty.shape, "values"):
            return None
        if not all(hasattr(d, "value") for d in ty.shape.values):
            return None
        return str(ty.dtype), tuple(int(d) for d in ty.shape.values)

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        """Leave to `require_supported`, which knows our own converters."""

    def _parse_graph_initializers(self, graph: Any) -> None:
        for tensor in graph.initializer:
            array = self._parse_array(tensor)
            if tensor.name not in self._weight_names:
                self._nodes[tensor.name] = relax.const(array)
                continue
            variable = self._new_var(self._sanitize_name(tensor.name), array.shape, array.dtype)
            self._nodes[tensor.name] = variable
            self._params[variable.name] = (variable, array)
            self.kept.append(tensor.name)

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        self.converting = f"{op_name} (node {attrs['tvm_custom']['name']!r})"
        if op_name in CONVERTERS:
            return self.bb.normalize(CONVERTERS[op_name](self.bb, inputs, {**attrs, "opset": opset}))
        return super()._convert_operator(op_name, inputs, attrs, opset)
