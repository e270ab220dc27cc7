"""Replace a function of a model by one that is proved to compute the same."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...kernels.operator import Workload
from ...machine.errors import InputError, unknown_name
from ...machine.target import as_target
from ..lowering.functions import as_workload, is_workload, prim_funcs
from ..model import Model
from .proof import require_same
from .replacement import Replacement, as_replacement
from .swapping import ModelWithReplacements


def replace(
    model: Model,
    function: str,
    replacement: Any,
    target: Any = "host",
    *,
    scheduled: bool | None = None,
    tolerance: float | None = None,
) -> Model:
    """Return a model with another function in the place of one, after a proof that both compute the same.

    Every call of the function is replaced. The proof runs both on random inputs of three seeds: outputs
    must agree within the tolerance of their dtype and of the longest sum, every element must be written, the
    inputs must stay as they are, and a second run must give the same.

    Parameters
    ----------
    model : Model
        The model; it stays as it is.
    function : str
        The name of one of its functions: see `extract_workloads`.
    replacement
        A PrimFunc or TE tensors (inputs first, output last), a workload, a ``tvm.s_tir.Schedule``, a schedule
        rule, a record; or an external function: the name of a global one, a ``tvm_ffi.Function``, an
        `External`, or any callable ``f(*inputs, output)`` on NumPy arrays.
    target : str or tvm.target.Target
        What the model is compiled for; it must run on this machine.
    scheduled : bool or None
        Whether the loops of a PrimFunc stay as they are. By default they do if some are parallel, vectorized,
        unrolled or annotated; others get a schedule as every function does.
    tolerance : float or None
        The error allowed, relative to each value plus the output's root mean square; by default that of a
        tuning.

    Raises
    ------
    InputError
        There is no such function; it has several outputs; or the replacement has another signature, fails,
        or computes something else: the message shows the first difference.
    """
    target = as_target(target)
    others = tuple(r for r in replacements_of(model) if r.function != function)
    given = as_replacement(_original(model, function, target), replacement, target, scheduled)
    require_same(given, target, tolerance)
    fields = {f.name: getattr(model, f.name) for f in dataclasses.fields(Model)}
    return ModelWithReplacements(**fields, replacements=(*others, given))


def replacements_of(model: Model) -> tuple[Replacement, ...]:
    """Return what was replaced in a model."""
    return model.replacements if isinstance(model, ModelWithReplacements) else ()


def _original(model: Model, function: str, target: Any) -> Workload:
    """Return the function that the model as it was imported has."""
    functions = dict(prim_funcs(Model.prepared(model, target)))
    if function not in functions:
        raise unknown_name(f"function of {model.name}", function, functions)
    if not is_workload(functions[function]):
        raise InputError(
            f"{function} has several outputs or symbolic shapes, or is scheduled: it cannot be replaced"
        )
    return as_workload(function, functions[function])
