"""A model: an ONNX file, a PyTorch program or a Relax module, with static shapes and constant weights."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import tvm
from tvm import relax

from ..machine.errors import InputError
from ..machine.signature import ArgSpec
from ..machine.target import target_text
from .importing.errors import DataDependentShapeError, NotATensorError
from .importing.imported import Imported
from .importing.onnx_file import read_onnx
from .importing.onnx_import import import_onnx
from .importing.relax_module import Weights, import_module
from .importing.shapes import Shapes, Values
from .lowering.dump import NO_DUMP, Dump
from .lowering.pipeline import prepare
from .parameters import Parameters, count_parameters

if TYPE_CHECKING:
    from .importing.torch_program import ExampleInputs

# torch.export.load unpickles constants, and evaluates expressions of shapes as Python.
_PICKLES = frozenset({".pt", ".pt2", ".pth"})


@dataclass(frozen=True, eq=False)
class Model:
    """An imported model.

    Parameters
    ----------
    name : str
        The file's name without its ending, or ``"module"``.
    mod : IRModule
        Relax; the weights are constants, all shapes of ``main`` are static.
    inputs, outputs : tuple of ArgSpec
        What a caller gives and gets; outputs are called ``output_0``, ``output_1``, ...
    weights : mapping
        The values of those inputs that are weights, where they were kept; else none.
    """

    name: str
    mod: Any = field(repr=False)
    inputs: tuple[ArgSpec, ...]
    outputs: tuple[ArgSpec, ...]
    weights: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _prepared: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def parameters(self) -> Parameters:
        """The weights: constants and kept ones; each that is used several times counts once."""
        return count_parameters(self.mod["main"], self.weights)

    def __str__(self) -> str:
        """Say what goes in and out, and how large it is."""
        ends = [("in", s) for s in self.inputs] + [("out", s) for s in self.outputs]
        lines = [f"  {kind:<4}{s.name}: {s.dtype} {list(s.shape)}" for kind, s in ends]
        count, size = self.parameters
        return "\n".join([f"{self.name}: {count:,} parameters ({size / 1e6:.1f} MB)", *lines])

    def prepared(self, target: Any, dump: Dump = NO_DUMP) -> Any:
        """Return the module of fused, unscheduled PrimFuncs for a target; made once, or again for a dump."""
        key = target_text(target)
        if key not in self._prepared or dump.writes:
            self._prepared[key] = prepare(self.mod, target, dump)
        return self._prepared[key]


def load_model(
    source: str | Path | Any,
    input_shapes: Shapes | None = None,
    *,
    input_values: Values | None = None,
    example_inputs: ExampleInputs | None = None,
    weights: Weights | None = None,
    keep_weights: bool = False,
) -> Model:
    """Load a model, bind its symbolic dimensions, and compute the shapes inside it.

    Parameters
    ----------
    source : path, onnx.ModelProto, torch.export.ExportedProgram, torch.nn.Module or IRModule
        An ONNX file or model; a PyTorch program, or a module in evaluation mode; or a Relax module with a
        function ``main``, or with one function alone.
    input_shapes : mapping, optional
        The shape of each input that has symbolic dimensions, by name.
    input_values : mapping, optional
        Values of an ONNX model's inputs that become constants: those that shapes depend on, such as axes.
    example_inputs : sequence or mapping, optional
        What a ``torch.nn.Module`` is called with, by position or name; the model has these shapes.
    weights : mapping or pairs, optional
        Values of a Relax module's parameters by name, as ``export_tvm`` of ``relax.frontend.nn`` gives them.
    keep_weights : bool
        Leave the weights as inputs, with their values in :attr:`Model.weights`, instead of making them
        constants. Nothing is packed then, and no batch normalization folded.

    Raises
    ------
    InputError
        There is no such file; it is no model; it has an unsupported operator; a dimension is
        symbolic and not bound; a shape is given for an unknown input or contradicts the model.
    """
    given = input_shapes or {}
    if isinstance(source, tvm.IRModule):
        _refuse("for torch modules", example_inputs=example_inputs)
        _refuse("for ONNX models", input_values=input_values)
        return _described("module", import_module(source, given, weights, keep_weights))
    _refuse("for Relax modules", weights=weights)
    if "torch" in sys.modules:
        program = _torch_program(source, given, example_inputs)
        if program is not None:
            _refuse("for ONNX models", input_values=input_values)
            from .importing.torch_program import import_program

            name = type(source).__name__ if program is not source else "program"
            return _described(name, import_program(program, given, keep_weights))
    _refuse("for torch modules", example_inputs=example_inputs)
    if isinstance(source, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(source)
        return _described(source.graph.name or "model", import_onnx(copy, given, input_values, keep_weights))
    path = Path(source)
    if path.suffix in _PICKLES:
        raise InputError(
            f"{path} holds Python objects, and loading it would run whatever code came with it: if you trust "
            "it, load it in Python with torch.export.load, and give load_model the program"
        )
    return _described(path.stem, import_onnx(read_onnx(path), given, input_values, keep_weights))


def _torch_program(source: Any, given: Shapes, examples: ExampleInputs | None) -> Any:
    """Return the exported program of a torch module or program, or None for anything else."""
    import torch

    from .importing.torch_program import exported

    if isinstance(source, torch.nn.Module):
        if examples is None:
            raise InputError("a torch module needs example_inputs: the tensors that it is called with")
        _refuse("for models with symbolic dimensions: example_inputs have shapes", input_shapes=given)
        return exported(source, examples)
    if isinstance(source, torch.export.ExportedProgram):
        _refuse("for torch modules: a program has its inputs", example_inputs=examples)
        return source
    return None


def _refuse(kind: str, **given: Any) -> None:
    """Refuse arguments that mean nothing for the source."""
    for name, value in given.items():
        if value:
            raise InputError(f"{name} is {kind}: leave it out")


def _described(name: str, imported: Imported) -> Model:
    """Make the model with what its function takes and returns."""
    main = imported.mod["main"]
    inputs = tuple(_spec(n, v.ty) for n, v in zip(imported.names, main.params, strict=True))
    returned = main.ret_ty.fields if isinstance(main.ret_ty, relax.TupleType) else [main.ret_ty]
    outputs = tuple(_spec(f"output_{i}", t) for i, t in enumerate(returned))
    return Model(name, imported.mod, inputs, outputs, imported.weights)


def _spec(name: str, ty: Any) -> ArgSpec:
    if not isinstance(ty, relax.TensorType):
        raise NotATensorError(f"{name} is no tensor but {ty}; tunesmith compiles functions of tensors")
    dims = ty.shape
    if dims is None or not all(isinstance(d, tvm.tirx.IntImm) for d in dims):
        raise DataDependentShapeError(
            f"{name} has a shape that depends on the data: {ty}; tunesmith compiles static shapes"
        )
    return ArgSpec(name, tuple(int(d) for d in dims), str(ty.dtype))
