"""Schedules for every function of a model: its best record, else the default, else what still works."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ... import schedules
from ...kernels.operator import Workload
from ...machine.errors import last_line
from ...machine.target import target_text
from ...schedules.transforms import keep_separable_packing
from ...tuning.records.compilation import scheduled_from_record
from ...tuning.records.database import Database
from ...tuning.records.record import Record
from ..surgery.external import external_calls, registered
from .choice import DEFAULT, EXTERNAL, FALLBACK, GIVEN, RECORD, REPLACED, Choice, name_in_model
from .functions import REPLACED_BY, SCHEDULED, as_workload, is_kept, is_workload, prim_func_calls, prim_funcs


class MissingRecordsError(RuntimeError):
    """A model was to be compiled from records alone, and some of its functions have none."""


def apply_records(
    mod: Any, target: Any, database: Database | None = None, defaults: bool = True
) -> tuple[Any, list[Choice]]:
    """Schedule every PrimFunc of a prepared module that is not scheduled yet.

    Parameters
    ----------
    mod : IRModule
        As :func:`~tunesmith.integrate.lowering.pipeline.prepare` returns it.
    target : tvm.target.Target
        What it is compiled for; only records of this target are applied.
    database : Database, optional
        Where the records are.
    defaults : bool
        Whether functions without a record get a default schedule, or stay as they are.

    Returns
    -------
    IRModule
        The module with every PrimFunc scheduled.
    list of Choice
        One a function, those with most operations first.
    """
    outside = external_calls(mod)
    result, choices = mod.clone(), [_external(symbol) for symbol in dict.fromkeys(outside)]
    for name, func in prim_funcs(mod):
        if is_kept(func):
            choices.append(_kept(name, func))
            continue
        schedule, choice = _scheduled(name, func, target, database, defaults)
        choices.append(choice)
        if schedule is not None:
            keep_separable_packing(schedule)
            scheduled = schedule.mod["main"].with_attr(SCHEDULED, True)
            result.update_func(mod.get_global_var(name), _with_symbol_of(func, scheduled))
    calls = Counter([*(name for name, _ in prim_func_calls(mod)), *map(name_in_model, outside)])
    choices = [replace(choice, calls=calls.get(choice.function, 1)) for choice in choices]
    return result, sorted(choices, key=lambda c: (-c.flops, c.function))


def require_records(choices: list[Choice]) -> None:
    """Check that every function that computes something got a record.

    Raises
    ------
    MissingRecordsError
        Some did not; they are named with the reason.
    """
    missing = [c for c in choices if c.flops and c.origin not in (RECORD, REPLACED, GIVEN)]
    if missing:
        named = "; ".join(f"{c.function} ({c.reason})" for c in missing)
        raise MissingRecordsError(f"{len(missing)} of {len(choices)} functions have no record: {named}")


def _with_symbol_of(func: Any, scheduled: Any) -> Any:
    """Return a scheduled function as public or private as it was: two cannot both be called "main"."""
    symbol = (func.attrs or {}).get("global_symbol")
    unnamed = scheduled.without_attr("global_symbol")
    return unnamed.with_attr("global_symbol", symbol) if symbol else unnamed


def _scheduled(
    name: str, func: Any, target: Any, database: Database | None, defaults: bool
) -> tuple[Any, Choice]:
    """Try the candidates in order of preference until one works; each failure is told in the reason."""
    failures = [f"replaced by {func.attrs[REPLACED_BY]}"] if REPLACED_BY in (func.attrs or {}) else []
    told = len(failures)
    workload = as_workload(name, func) if is_workload(func) else None
    main = func.with_attr("global_symbol", "main")
    for origin, space, reason, make, record in _candidates(workload, main, target, database, defaults):
        try:
            schedule = make()
        except Exception as error:  # a schedule may fail in any way; the next one is tried and this one told
            failures.append(f"{space} failed: {last_line(error)}")
            continue
        if schedule is not None:
            origin = FALLBACK if len(failures) > told and origin == DEFAULT else origin
            choice = _choice(name, workload, origin, space, "; ".join([*failures, reason]))
            return schedule, choice if record is None else _of_record(choice, record)
    left = "no schedule applies" if defaults else "no verified record of this target, left as it is"
    return None, _choice(name, workload, FALLBACK, "none", "; ".join([*failures, left]))


def _candidates(
    workload: Workload | None, func: Any, target: Any, database: Database | None, defaults: bool
) -> Iterator[tuple[str, str, str, Any, Record | None]]:
    """Yield origin, space, reason, a function that makes the schedule, and the record that it comes from."""
    reason = "no database given"
    if database is not None:
        record = database.best(workload.hash, target_text(target)) if workload else None
        reason = "no verified record of this target"
        if record is not None and record.median_s is not None:
            time = f"record {record.id}: {record.median_s * 1e3:.4g} ms"
            yield RECORD, record.space, time, lambda: scheduled_from_record(record, func, target), record
    for rule in schedules.schedule_rules().values() if defaults else ():
        yield DEFAULT, rule.name, reason, lambda rule=rule: rule.default(func, target), None


def _choice(name: str, workload: Workload | None, origin: str, space: str, reason: str) -> Choice:
    if workload is None:
        return Choice(name, origin, space, reason)
    cost = workload.flops, workload.bytes_moved, workload.dtype
    return Choice(name, origin, space, reason, *cost, workload=workload.hash)


def _of_record(choice: Choice, record: Record) -> Choice:
    return replace(choice, record=record.id, recorded_s=record.median_s)


def _kept(name: str, func: Any) -> Choice:
    """Tell of a PrimFunc that came with its schedule."""
    replaced = str(func.attrs.get(REPLACED_BY, ""))
    origin, reason = (REPLACED, f"replaced by {replaced}") if replaced else (GIVEN, "scheduled in the model")
    return _choice(name, as_workload(name, func) if is_workload(func) else None, origin, "own", reason)


def _external(symbol: str) -> Choice:
    """Tell of a function that is no PrimFunc."""
    found = registered(symbol)
    if found is None:
        return Choice(symbol, GIVEN, EXTERNAL, "called in the model")
    reason = f"replaced by {found.external.description}"
    return _choice(name_in_model(symbol), found.original, REPLACED, EXTERNAL, reason)
