"""The import of an ONNX model whose shapes are known, with errors that name what stands in the way."""

from __future__ import annotations

import warnings
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from ...machine.errors import InputError
from .onnx_file import first_line, opset_version
from .onnx_folding import specialize
from .onnx_operators import unsupported
from .shapes import Shapes


def import_onnx(proto: Any, shapes: Shapes) -> Any:
    """Import a model with its weights as constants and its inputs of the given shapes.

    Parameters
    ----------
    proto : onnx.ModelProto
        The model; it is changed.
    shapes : mapping
        The shape of each input.

    Raises
    ------
    InputError
        The model has operators that TVM's importer does not support, all of them named with a node; or a
        node that it cannot convert.
    """
    specialize(proto, shapes)
    missing = unsupported(proto.graph.node)
    if missing:
        where = ", ".join(f"{name} (node {node!r})" for name, node in missing.items())
        raise InputError(
            f"unsupported ONNX operator{'s' * (len(missing) > 1)}: {where}; replace it before the export"
        )
    importer = _Importer({name: list(shape) for name, shape in shapes.items()}, "")
    noise = StringIO()  # the importer prints what fails, and warns of each name it changes
    try:
        with warnings.catch_warnings(), redirect_stdout(noise):
            warnings.simplefilter("ignore")
            return importer.from_onnx(proto.graph, opset_version(proto))
    except Exception as error:  # an importer's converters fail in ways of their own
        where = f"{importer.converting}: " if importer.converting else ""
        raise InputError(f"TVM cannot import this ONNX model: {where}{first_line(error)}") from error


class _Importer(ONNXGraphImporter):
    """TVM's importer, which knows which node it is at."""

    converting = ""

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        self.converting = f"{op_name} (node {attrs['tvm_custom']['name']!r})"
        return super()._convert_operator(op_name, inputs, attrs, opset)
