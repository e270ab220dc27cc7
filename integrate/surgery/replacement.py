"""What is put in the place of a model's function: a PrimFunc, scheduled or not, or an external function."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir

from ...kernels.operator import Workload, as_prim_func
from ...machine.errors import InputError
from ...schedules.rule import ScheduleRule
from ...tuning.records.compilation import scheduled_from_record
from ...tuning.records.record import Record
from ..lowering.functions import is_kept
from .external import External


@dataclass(frozen=True, eq=False)
class Replacement:
    """One function of a model replaced by another.

    Parameters
    ----------
    function : str
        The name in the model.
    original : Workload
        What was there.
    content : PrimFunc or External
        What is there now.
    scheduled : bool
        Whether a PrimFunc's loops stay as they are.
    description : str
        What it is, for people.
    """

    function: str
    original: Workload
    content: Any
    scheduled: bool
    description: str


def as_replacement(original: Workload, given: Any, target: Any, scheduled: bool | None) -> Replacement:
    """Make a replacement of whatever a user gives.

    Raises
    ------
    InputError
        It is nothing that could take a function's place.
    """
    name = original.name
    if isinstance(given, Record):
        schedule = scheduled_from_record(given, original.func, target)
        return Replacement(name, original, schedule.mod["main"], True, f"record {given.id} ({given.space})")
    if isinstance(given, ScheduleRule):
        schedule = given.scheduled(original.func, target)
        if schedule is None:
            raise InputError(f"the schedule {given.name!r} does not apply to {name}")
        return Replacement(name, original, schedule.mod["main"], True, f"the schedule {given.name}")
    if isinstance(given, s_tir.Schedule):
        return Replacement(name, original, given.mod["main"], True, "a schedule")
    if isinstance(given, Workload):
        return Replacement(name, original, given.func, bool(scheduled), f"the workload {given.label}")
    if isinstance(given, tvm.tirx.PrimFunc) or _are_te_tensors(given):
        return _of_prim_func(original, given, scheduled)
    return _of_external(original, given)


def _of_prim_func(original: Workload, given: Any, scheduled: bool | None) -> Replacement:
    own = str((getattr(given, "attrs", None) or {}).get("global_symbol", ""))
    func = as_prim_func(given)
    keep = is_scheduled(func) if scheduled is None else scheduled
    func = func if keep else with_wide_indices(func)
    described = "the PrimFunc" if own in ("", "main") else f"the PrimFunc {own}"
    return Replacement(original.name, original, func, keep, described)


def _of_external(original: Workload, given: Any) -> Replacement:
    external = given
    if isinstance(given, str):
        found = tvm.get_global_func(given, allow_missing=True)
        if found is None:
            raise InputError(f"no global function {given!r}: load the library that registers it first")
        external = External(found, "tvm")
    elif isinstance(given, tvm_ffi.Function):
        external = External(given, "tvm")
    elif not isinstance(given, External):
        if not callable(given):
            raise InputError(
                f"{original.name} can be replaced by a PrimFunc, TE tensors, a workload, a schedule, a rule, "
                f"a record, or a function on arrays: found {type(given).__name__}"
            )
        external = External(given)
    return Replacement(original.name, original, external, True, external.description)


def _are_te_tensors(given: Any) -> bool:
    return (
        isinstance(given, (list, tuple)) and all(isinstance(t, tvm.te.Tensor) for t in given) and bool(given)
    )


def is_scheduled(func: Any) -> bool:
    """Tell whether a PrimFunc's loops are as somebody wants them: parallel, in vectors, unrolled, or none."""
    if is_kept(func):
        return True
    loops: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tvm.tirx.For, loops.append))
    return not loops or any(each.kind != tvm.tirx.ForKind.SERIAL or each.annotations for each in loops)


def with_wide_indices(func: Any) -> Any:
    """Return a PrimFunc with extents and indices of 64 bits, which schedules rely on.

    TVMScript's plain numbers are int32. All of a function's expressions of a type refer to one node for it. A
    function on int32 data stays as it is.
    """
    buffers: set[Any] = set()
    accesses = (
        (tvm.ir.TensorLoad, lambda load: buffers.add(load.source)),
        (tvm.tirx.BufferStore, lambda store: buffers.add(store.buffer)),
    )
    tvm_ffi.structural_walk(func.body, accesses)
    if any(str(buffer.dtype) == "int32" for buffer in buffers):
        return func
    graph = json.loads(tvm.ir.save_json(func))
    for node in graph["nodes"]:
        if node["type"] == "ir.PrimType" and node["data"]["dtype"] == "int32":
            node["data"]["dtype"] = "int64"
    return tvm.ir.load_json(json.dumps(graph))
