"""Relax modules: TVMScript, ``BlockBuilder`` and ``relax.frontend.nn``; weights and dimensions are bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tvm
from tvm import relax

from ...machine.arrays import as_tensor
from ...machine.errors import InputError, unknown_name
from .errors import NotATensorError
from .imported import Imported
from .shapes import Shapes, bound_shapes

Weights = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Arrays by name: NumPy, torch or TVM; or what ``export_tvm`` of ``relax.frontend.nn`` returns."""


def import_module(mod: Any, shapes: Shapes, weights: Weights | None, keep_weights: bool) -> Imported:
    """Bind the weights and the symbolic dimensions of a module's function.

    Parameters
    ----------
    mod : IRModule
        With a function ``main``, or with one Relax function alone.
    shapes : mapping
        The shape of each input that has symbolic dimensions.
    weights : mapping or pairs, optional
        Values of parameters by their names; those that the function carries itself are found.
    keep_weights : bool
        Leave the weights as inputs.

    Raises
    ------
    InputError
        There is no such function; a dimension is not bound; a weight is unknown or does not fit.
    """
    mod = _with_main(mod)
    mod, attached = relax.frontend.detach_params(mod)
    variables = {v.name: v for v in mod["main"].params}
    own = list(attached.get("main", []))
    values = dict(zip(list(variables)[len(variables) - len(own) :], own, strict=True))
    values |= {name: _value(name, value, variables) for name, value in dict(weights or {}).items()}
    declared = {name: _declared(v) for name, v in variables.items()}
    given = {**{name: tuple(int(d) for d in value.shape) for name, value in values.items()}, **shapes}
    bound = bound_shapes(declared, given)
    dims = {d: n for v in variables.values() for d, n in zip(v.ty.shape, bound[v.name], strict=True)}
    symbolic = {dim: n for dim, n in dims.items() if isinstance(dim, tvm.tirx.Var)}
    if symbolic:
        mod = relax.transform.BindSymbolicVars(symbolic, "main")(mod)
    if keep_weights:
        return Imported(mod, tuple(variables), values)
    if values:
        mod = relax.transform.BindParams("main", values)(mod)
    return Imported(mod, tuple(name for name in variables if name not in values))


def _with_main(mod: Any) -> Any:
    """Return the module with its function called ``main``."""
    functions = {var.name_hint: f for var, f in mod.functions_items() if isinstance(f, relax.Function)}
    if "main" in functions:
        return mod
    public = [name for name, f in functions.items() if f.attrs and "global_symbol" in f.attrs]
    if len(public) != 1:
        found = f"it has {', '.join(sorted(functions))}" if functions else "it has no Relax function"
        raise InputError(f"a Relax module needs a function 'main': {found}; rename the one to be compiled")
    others = {var: f for var, f in mod.functions_items() if var.name_hint != public[0]}
    return tvm.IRModule({**others, "main": functions[public[0]].with_attr("global_symbol", "main")})


def _value(name: str, value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a weight as a tensor that fits the parameter of its name."""
    if name not in variables:
        raise unknown_name("parameter of 'main'", name, variables)
    if isinstance(value, relax.frontend.nn.Parameter):
        value = value.data
    if value is None:
        raise InputError(f"the weight {name!r} has no value: load or initialize it before the model")
    tensor = as_tensor(value)
    if str(tensor.dtype) != str(variables[name].ty.dtype):
        raise InputError(
            f"the weight {name!r} is {variables[name].ty.dtype} in this module, not {tensor.dtype}"
        )
    return tensor


def _declared(variable: Any) -> tuple[int | str, ...]:
    if not isinstance(variable.ty, relax.TensorType) or variable.ty.shape is None:
        raise NotATensorError(
            f"input {variable.name!r} is no tensor of known rank: {variable.ty}; bind or annotate it"
        )
    return tuple(int(d) if isinstance(d, tvm.tirx.IntImm) else str(d) for d in variable.ty.shape)
