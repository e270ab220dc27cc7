"""The workloads of a model: each distinct function once, with how often it is called and what it costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ..kernels.operator import Workload
from ..machine.errors import unknown_name
from ..machine.target import as_target
from .lowering.cost import count_flops
from .lowering.functions import as_workload, is_workload, prim_func_calls, prim_funcs
from .model import Model


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
    """

    workload: Workload
    functions: tuple[str, ...]
    calls: int
    share: float


def extract_workloads(model: Model, target: Any = "host") -> list[ModelWorkload]:
    """Return the functions of a model that are worth tuning, those with most operations first.

    Left out are functions that compute nothing (copies), and those with several outputs or symbolic shapes.

    Parameters
    ----------
    model : Model
        The model.
    target : str or tvm.target.Target
        What it is compiled for.
    """
    mod = model.prepared(as_target(target))
    calls = Counter(name for name, _ in prim_func_calls(mod))
    groups: dict[str, list[str]] = {}
    workloads: dict[str, Workload] = {}
    for name, func in prim_funcs(mod):
        if is_workload(func) and count_flops(func):
            workload = as_workload(name, func)
            workloads.setdefault(workload.hash, workload)
            groups.setdefault(workload.hash, []).append(name)
    times = {key: sum(calls[name] for name in names) for key, names in groups.items()}
    total = sum(workloads[key].flops * times[key] for key in groups) or 1
    found = [
        ModelWorkload(w, tuple(groups[key]), times[key], w.flops * times[key] / total)
        for key, w in workloads.items()
    ]
    return sorted(found, key=lambda w: (-w.share, w.workload.name))


def extract_workload(model: Model, name: str, target: Any = "host") -> Workload:
    """Take one PrimFunc out of a model by the name that it has there.

    Tuned alone, it is put back by compiling the model with the database that holds its records.

    Raises
    ------
    InputError
        The model has no function of that name that can be tuned.
    """
    known = {n: w.workload for w in extract_workloads(model, target) for n in w.functions}
    if name not in known:
        raise unknown_name(f"function of {model.name}", name, known)
    return known[name]
