"""A model: read from an ONNX file or given as a Relax module, with static shapes and constant weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import tvm
from tvm import relax

from ..machine.errors import InputError
from ..machine.signature import ArgSpec
from ..machine.target import target_text
from .importing.onnx_file import declared_inputs, read_onnx
from .importing.onnx_import import import_onnx
from .importing.shapes import Shapes, bound_shapes
from .lowering.dump import NO_DUMP, Dump
from .lowering.pipeline import prepare


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
    """

    name: str
    mod: Any
    inputs: tuple[ArgSpec, ...]
    outputs: tuple[ArgSpec, ...]
    _prepared: dict[str, Any] = field(default_factory=dict, repr=False)

    def prepared(self, target: Any, dump: Dump = NO_DUMP) -> Any:
        """Return the module of fused, unscheduled PrimFuncs for a target; made once, or again for a dump."""
        key = target_text(target)
        if key not in self._prepared or dump.writes:
            self._prepared[key] = prepare(self.mod, target, dump)
        return self._prepared[key]


def load_model(source: str | Path | Any, input_shapes: Shapes | None = None) -> Model:
    """Load an ONNX file or take a Relax module, and bind its symbolic dimensions.

    Parameters
    ----------
    source : path or IRModule
        An ONNX file, or a Relax module with a function ``main``.
    input_shapes : mapping, optional
        The shape of each input that has symbolic dimensions, by name.

    Raises
    ------
    InputError
        There is no such file; it is no ONNX model; it has an unsupported operator; a dimension is
        symbolic and not bound; a shape is given for an unknown input or contradicts the model.
    """
    given = input_shapes or {}
    if isinstance(source, tvm.IRModule):
        return _from_module(source, given)
    if isinstance(source, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(source)
        return _from_onnx(source.graph.name or "model", copy, given)
    path = Path(source)
    return _from_onnx(path.stem, read_onnx(path), given)


def _from_onnx(name: str, proto: Any, given: Shapes) -> Model:
    shapes = bound_shapes(declared_inputs(proto), given)
    return _described(name, import_onnx(proto, shapes), tuple(shapes))


def _from_module(mod: Any, given: Shapes) -> Model:
    """Bind the parameters and dimensions of a Relax module."""
    if "main" not in [var.name_hint for var in mod.get_global_vars()] or not isinstance(
        mod["main"], relax.Function
    ):
        raise InputError("a Relax module needs a function 'main'; rename the one to be compiled")
    mod, params = relax.frontend.detach_params(mod)
    if params.get("main"):
        names = [v.name for v in mod["main"].params][-len(params["main"]) :]
        mod = relax.transform.BindParams("main", dict(zip(names, params["main"], strict=True)))(mod)
    variables = mod["main"].params
    shapes = bound_shapes({v.name: _declared(v) for v in variables}, given)
    extents = {dim: n for v in variables for dim, n in zip(v.ty.shape, shapes[v.name], strict=True)}
    symbolic = {dim: n for dim, n in extents.items() if isinstance(dim, tvm.tirx.Var)}
    if symbolic:
        mod = relax.transform.BindSymbolicVars(symbolic, "main")(mod)
    return _described("module", mod, tuple(shapes))


def _declared(variable: Any) -> tuple[int | str, ...]:
    if not isinstance(variable.ty, relax.TensorType) or variable.ty.shape is None:
        raise InputError(
            f"input {variable.name!r} is no tensor of known rank: {variable.ty}; bind or annotate it"
        )
    return tuple(int(d) if isinstance(d, tvm.tirx.IntImm) else str(d) for d in variable.ty.shape)


def _described(name: str, mod: Any, names: tuple[str, ...]) -> Model:
    """Make the model with what its function takes and returns."""
    main = mod["main"]
    inputs = tuple(_spec(n, v.ty) for n, v in zip(names, main.params, strict=True))
    returned = main.ret_ty.fields if isinstance(main.ret_ty, relax.TupleType) else [main.ret_ty]
    return Model(name, mod, inputs, tuple(_spec(f"output_{i}", t) for i, t in enumerate(returned)))


def _spec(name: str, ty: Any) -> ArgSpec:
    dims = getattr(ty, "shape", None)
    if dims is None or not all(isinstance(d, tvm.tirx.IntImm) for d in dims):
        raise InputError(
            f"{name} has a shape that depends on the data: {ty}; tunesmith compiles static shapes"
        )
    return ArgSpec(name, tuple(int(d) for d in dims), str(ty.dtype))
