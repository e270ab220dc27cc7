"""tunesmith as a backend of the ONNX project: what its own test suite, and tools built on it, can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep

from ..machine.errors import InputError
from .importing.onnx_file import declared_inputs
from .importing.onnx_operators import shape_inputs
from .model import load_model
from .packaging.build import compile_model
from .running.package import Package


class PreparedModel(BackendRep):
    """A checked model; it is compiled for the shapes of the inputs that it gets.

    It is compiled for the values of those inputs that shapes depend on: axes, sizes, pads.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._declared = declared_inputs(model)
        names = list(shape_inputs(model.graph))
        # A model of those alone would be computed by the import, not by compiled code.
        self._shape_inputs = names if len(names) < len(self._declared) else []
        self._packages: dict[str, Package] = {}

    def run(self, inputs: Sequence[Any] | Mapping[str, Any], **_kwargs: Any) -> tuple[np.ndarray, ...]:
        """Run an inference.

        Parameters
        ----------
        inputs : sequence or mapping
            Arrays in the order of the model's inputs, or by their names.

        Raises
        ------
        InputError
            The model cannot be compiled for these inputs, or they do not fit it.
        """
        if not isinstance(inputs, Mapping):
            inputs = dict(zip(self._declared, inputs, strict=True))
        arrays = {name: _array(name, value) for name, value in inputs.items()}
        known = {name: arrays.pop(name) for name in self._shape_inputs if name in arrays}
        key = str((*(a.shape for a in arrays.values()), *(a.tolist() for a in known.values())))
        if key not in self._packages:
            shapes = {name: array.shape for name, array in arrays.items()}
            self._packages[key] = compile_model(load_model(self._model, shapes, input_values=known))
        return tuple(self._packages[key].run(arrays).values())


class TunesmithBackend(Backend):
    """Runs ONNX models on this machine's CPU; see ``onnx.backend.base.Backend``."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_kwargs: Any) -> PreparedModel:
        """Check a model; it is compiled when its input shapes are known."""
        if not cls.supports_device(device):
            raise InputError(f"tunesmith runs ONNX models on the CPU: device is {device!r}")
        return PreparedModel(model)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[np.ndarray, ...]:
        """Compile a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Sequence[Any],
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[np.ndarray, ...]:
        """Compile a graph of one node and run it once."""
        names = [name for name in node.input if name]
        arrays = dict(zip(names, map(np.asarray, inputs), strict=True))
        given = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in arrays.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
        versions = {"opset_imports": kwargs["opset_imports"]} if "opset_imports" in kwargs else {}
        model = helper.make_model(helper.make_graph([node], "node", given, outputs), **versions)
        return cls.run_model(model, arrays, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Tell whether a device is the CPU."""
        return device == "CPU"


def _array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, (list, dict)) or value is None:
        raise InputError(f"input {name!r} is no tensor: models take tensors")
    return np.asarray(value)
