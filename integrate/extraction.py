"""The workloads of a model: each distinct function once, with how often it is called and what it costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from ..kernels.operator import Workload
from ..machine.errors import InputError, unknown_name
from ..machine.target import as_target
from .lowering.choice import name_in_model
from .lowering.cost import count_flops
from .lowering.functions import as_workload, is_kept, is_workload, prim_func_calls, prim_funcs
from .lowering.weight_marks import marked_weights
from .model import Model
from .surgery.external import external_calls


@dataclass(frozen=True)
class ModelWorkload:
    """A workload with its place in a model.

    Parameters
    ----------
    workload : Workload
        The function, unscheduled; it is its own reference.
    functions : tuple of str
        The model's functions that compute it.
    calls : int
        How often one inference calls it.
    share : float
        Its part of the model's operations, 0 to 1.
    task : int
        Its number, by which `tune_model` and ``--tasks`` choose it.
    """

    workload: Workload
    functions: tuple[str, ...]
    calls: int
    share: float
    task: int = 0


def extract_workloads(model: Model | Any, target: Any = "host") -> list[ModelWorkload]:
    """Return the functions of a model that are worth tuning, those with most operations first.

    Left out are functions that compute nothing (copies), those with several outputs or symbolic shapes, and
    those that keep the schedule they have.

    Parameters
    ----------
    model : Model or IRModule
        The model; or a Relax module that a pipeline of one's own has lowered to calls of PrimFuncs.
    target : str or tvm.target.Target
        What it is compiled for.
    """
    mod = model.prepared(as_target(target)) if isinstance(model, Model) else marked_weights(model)
    calls = Counter(name for name, _ in prim_func_calls(mod))
    groups: dict[str, list[str]] = {}
    workloads: dict[str, Workload] = {}
    for name, func in prim_funcs(mod):
        if is_workload(func) and not is_kept(func) and count_flops(func):
            workload = as_workload(name, func)
            workloads.setdefault(workload.hash, workload)
            groups.setdefault(workload.hash, []).append(name)
    times = {key: sum(calls[name] for name in names) for key, names in groups.items()}
    total = sum(workloads[key].flops * times[key] for key in groups) or 1
    found = [
        ModelWorkload(w, tuple(groups[key]), times[key], w.flops * times[key] / total)
        for key, w in workloads.items()
    ]
    found.sort(key=lambda w: (-w.share, w.workload.name))
    return [replace(each, task=number) for number, each in enumerate(found)]


def take(model: Model, name: str, target: Any = "host") -> Workload:
    """Take one PrimFunc out of a model by the name that it has there.

    Tuned alone, it is put back by compiling the model with the database that holds its records; another
    function is put in its place by `replace`.

    Raises
    ------
    InputError
        The model has no function of that name, or it is none that could be scheduled alone.
    """
    mod = model.prepared(as_target(target))
    functions = dict(prim_funcs(mod))
    external = [name_in_model(symbol) for symbol in external_calls(mod)]
    if name not in functions and name not in external:
        raise unknown_name(f"function of {model.name}", name, [*functions, *external])
    if name in external or is_kept(functions[name]):
        raise InputError(f"{name} of {model.name} has no loops left to schedule: it was replaced as it is")
    if not is_workload(functions[name]):
        raise InputError(f"{name} of {model.name} has several outputs or symbolic shapes: take another")
    return as_workload(name, functions[name])
