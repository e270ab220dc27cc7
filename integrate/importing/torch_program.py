"""PyTorch programs: what ``torch.export`` makes of a module becomes a Relax module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from ...machine.errors import InputError
from .canonical import canonicalized
from .errors import ConversionError, NotATensorError, UnsupportedOperatorError
from .imported import Imported
from .onnx_file import first_line
from .shapes import Shapes, bound_shapes

ExampleInputs = Sequence[Any] | Mapping[str, Any]
"""Tensors that a module is called with, by position or by name."""


def exported(module: torch.nn.Module, examples: ExampleInputs) -> ExportedProgram:
    """Export a module for the shapes of its example inputs.

    Raises
    ------
    InputError
        The module is in training mode, or torch cannot export it.
    """
    if module.training:
        raise InputError("the torch module is in training mode: call module.eval() before load_model")
    by_name = isinstance(examples, Mapping)
    args = () if by_name else tuple(examples)
    kwargs = dict(examples) if isinstance(examples, Mapping) else {}
    try:
        return torch.export.export(module, args, kwargs, strict=False)
    except Exception as error:  # any code of the module may fail here
        raise InputError(
            f"torch.export cannot export {type(module).__name__}: {first_line(error)}"
        ) from error


def import_program(program: ExportedProgram, shapes: Shapes, keep_weights: bool) -> Imported:
    """Import an exported program for inputs of fixed shapes.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program; its weights are shared, not copied.
    shapes : mapping
        The shape of each input that has symbolic dimensions, by name.
    keep_weights : bool
        Leave the parameters as inputs; buffers are constants in any case.

    Raises
    ------
    InputError
        A dimension is not bound, or the given shapes break a constraint of the program.
    UnsupportedOperatorError, ConversionError
        TVM does not know an ATen operator, or cannot convert it.
    """
    bound = bound_shapes(_declared(program), shapes)
    if any(not isinstance(d, int) for tensor in _user_inputs(program).values() for d in tensor.shape):
        program = _exported_again(program, bound)
    program = program.run_decompositions()
    importer = _Importer()
    try:
        mod = importer.from_exported_program(program, keep_weights, True, False, None)
    except UnsupportedOperatorError:
        raise
    except Exception as error:  # an importer's converters fail in ways of their own
        where = f"{importer.converting}: " if importer.converting else ""
        raise ConversionError(f"TVM cannot import this torch program: {where}{first_line(error)}") from error
    mod, attached = relax.frontend.detach_params(canonicalized(mod))
    weights = list(attached.get("main", []))
    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.PARAMETER]
    names = [str(spec.target) for spec in specs] if keep_weights else []
    return Imported(mod, (*bound, *names), dict(zip(names, weights, strict=True)))


def _user_inputs(program: ExportedProgram) -> dict[str, Any]:
    """Return the tensors, without data, that a caller gives, by name."""
    wanted = {s.arg.name for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT}
    nodes = program.graph.find_nodes(op="placeholder")
    return {node.name: node.meta.get("val") for node in nodes if node.name in wanted}


def _declared(program: ExportedProgram) -> dict[str, tuple[int | str, ...]]:
    found: dict[str, tuple[int | str, ...]] = {}
    for name, tensor in _user_inputs(program).items():
        if not isinstance(tensor, torch.Tensor):
            raise NotATensorError(
                f"input {name!r} is no tensor but {tensor!r}: make it a part of the module before the export"
            )
        found[name] = tuple(d if isinstance(d, int) else str(d) for d in tensor.shape)
    return found


def _exported_again(program: ExportedProgram, bound: Shapes) -> ExportedProgram:
    """Export a program with symbolic dimensions for fixed ones: torch computes what depends on them."""
    tensors = [torch.zeros(bound[n], dtype=t.dtype) for n, t in _user_inputs(program).items()]
    args, kwargs = torch.utils._pytree.tree_unflatten(tensors, program.call_spec.in_spec)
    try:
        return torch.export.export(program.module(), args, kwargs, strict=False)
    except Exception as error:
        given = " ".join(f"{name}:{list(shape)}" for name, shape in bound.items())
        raise InputError(f"this torch program does not take {given}: {first_line(error)}") from error


class _Importer(ExportedProgramImporter):
    """TVM's importer, which names nodes where it fails."""

    converting = ""

    def create_convert_map(self) -> dict[str, Callable[[Any], Any]]:
        """Return TVM's converters, each of which notes what it is at."""
        converters: dict[str, Callable[[Any], Any]] = super().create_convert_map()
        return {name: self._noted(convert) for name, convert in converters.items()}

    def _noted(self, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def converted(node: Any) -> Any:
            self.converting = f"{node.target} (node {node.name!r})"
            return convert(node)

        return converted

    def _check_unsupported_func_type(self, nodes: Any) -> None:
        missing: dict[str, str] = {}
        for node in nodes:
            if node.op == "call_function" and node.target.__name__ not in self.convert_map:
                missing.setdefault(str(node.target), node.name)
        if missing:
            where = ", ".join(f"{operator} (node {name!r})" for operator, name in sorted(missing.items()))
            kind = f"unsupported PyTorch operator{'s' * (len(missing) > 1)}"
            raise UnsupportedOperatorError(f"{kind}: {where}; replace it before the export")
