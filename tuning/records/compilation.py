"""Compilation: from a workload or a schedule to something that runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx

from ... import schedules
from ...kernels.operator import Workload
from ...machine.arrays import Argument, Kernel
from ...machine.errors import InputError, last_line
from ...machine.linking import load_code
from ...machine.target import as_target, host_target, instruction_set, is_like_host, target_text
from ...schedules.algorithms import in_form
from ...schedules.code_generation import generate_code
from ...schedules.intrinsics import register_intrinsics
from .database import Database
from .plain_text import require_plain
from .record import Record

SKETCH = "sketch"
"""The name of MetaSchedule's own space: post-order-apply rules instead of a schedule with knobs."""


@dataclass(frozen=True)
class Origin:
    """Where a compiled kernel's schedule comes from.

    Parameters
    ----------
    kind : str
        ``record`` or ``default``.
    space : str
        The schedule rule's name, or ``sketch``.
    record : Record or None
        The record applied.
    """

    kind: str
    space: str
    record: Record | None = None

    def __str__(self) -> str:
        """Describe it in a few words."""
        return (
            f"record {self.record.id} ({self.space})" if self.record else f"default schedule ({self.space})"
        )


def build(func_or_schedule: Any, target: Any, quick: bool = False) -> Any:
    """Compile a PrimFunc, a schedule or an IRModule; ``quick``: see `generate_code`.

    Returns
    -------
    tvm.runtime.Executable
        Its function is ``main`` unless a module names others.
    """
    mod = getattr(func_or_schedule, "mod", func_or_schedule)
    mod = tvm.IRModule({"main": mod}) if isinstance(mod, tirx.PrimFunc) else mod
    return generate_code(mod, as_target(target), quick)


def compile(workload: Workload, database: Database | None = None, target: Any = "host") -> Kernel:
    """Compile a workload with its best verified record of this target, else with the default schedule.

    Parameters
    ----------
    workload : Workload
        What to compute.
    database : Database or None
        Where to look for a record.
    target : Target or str
        What to compile for.

    Returns
    -------
    Kernel
        Callable on NumPy, torch and TVM tensors; ``origin`` says where its schedule comes from.

    Raises
    ------
    InputError
        This machine cannot run code for the target.
    """
    target = as_target(target)
    if not is_like_host(target):
        wanted, here = instruction_set(target), instruction_set(host_target())
        raise InputError(f"code for {wanted} cannot run on this machine: it is {here}; leave target out")
    schedule, origin = best_schedule(workload, database, target)
    return Kernel(load_code(build(schedule, target)), arguments(workload), origin=str(origin))


def best_schedule(
    workload: Workload, database: Database | None = None, target: Any = "host"
) -> tuple[Any, Origin]:
    """Choose a workload's schedule: its best verified record of this target, else the default."""
    target = as_target(target)
    record = database.best(workload.hash, target_text(target)) if database is not None else None
    if record is not None:
        return scheduled_from_record(record, workload.func, target), Origin("record", record.space, record)
    schedule, rule = schedules.apply_default(workload.func, target)
    return schedule, Origin("default", rule.name)


def arguments(workload: Workload) -> tuple[Argument, ...]:
    """Return a workload's arguments as a Kernel takes them."""
    return tuple((a.name, a.shape, a.dtype) for a in workload.args)


def scheduled_from_record(record: Record, func: Any, target: Any) -> Any:
    """Make a record's schedule again.

    Knobs are given to the rule that the record names; the trace is replayed where there are no knobs, or
    where the rule is a user's own: its code may have changed since the record was verified.

    Raises
    ------
    InputError
        The record holds no schedule, or it does not fit the function.
    """
    rule = schedules.schedule_rules().get(record.space)
    if record.knobs is not None and rule is not None and schedules.is_built_in(rule):
        schedule = rule.scheduled(func, target, record.knobs)
        if schedule is None:
            raise InputError(
                f"record {record.id}: the schedule {record.space} does not apply to this function"
            )
        return schedule
    if record.trace is None:
        raise InputError(
            f"record {record.id} ended as {record.status} before it had a schedule; choose another"
        )
    return replay_trace(record.trace, func)


def replay_trace(trace: str, func: Any) -> Any:
    """Apply a trace stored as JSON to a PrimFunc.

    Its instructions are looked up by name; nothing in it is executed as code.

    Raises
    ------
    InputError
        The trace does not fit the function, or holds more than a schedule.
    """
    try:
        require_plain(trace)
        schedule = s_tir.Schedule(in_form(func, trace), error_render_level="fast")
        register_intrinsics(trace)
        s_tir.Trace.apply_json_to_schedule(json.loads(trace), schedule)
    except InputError as error:
        raise InputError(f"the trace does not fit this function: {error}") from None
    except (s_tir.ScheduleError, ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"the trace does not fit this function: {last_line(error)}") from error
    return schedule


def trace_text(schedule: Any) -> str:
    """Return a schedule's trace as JSON text."""
    return json.dumps(plain_json(schedule.trace.as_json()))


def plain_json(value: Any) -> Any:
    """Turn TVM's containers and numbers into Python's."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "value"):
        return value.value
    if hasattr(value, "items"):
        return {str(k): plain_json(v) for k, v in value.items()}
    return [plain_json(v) for v in value]
