"""Proof: every schedule of a workload, in a process of its own, against the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tvm

from .. import schedules as schedule_table
from ..kernels.operator import Workload
from ..machine.target import as_target, target_text
from ..schedules.rule import ScheduleRule
from .running.workbench import Workbench

UNSCHEDULED = "unscheduled"

# Unscheduled loops do about 5e8 operations a second; beyond this they are verified only if asked for.
_UNSCHEDULED_FLOPS = 5e8


def verify(
    workload: Workload | Sequence[Workload],
    schedules: Sequence[str | ScheduleRule] | None = None,
    target: Any = "host",
    timeout: float = 120.0,
    say: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Prove schedules right: each runs with its default knobs and is compared with the reference.

    Inputs are fresh random numbers, outputs are filled beforehand so that unwritten elements show, and the
    inputs must be the same afterwards. Each schedule runs in a process of its own: a crash is a row.

    Parameters
    ----------
    workload : Workload or sequence of Workload
        What to compute.
    schedules : sequence of str or ScheduleRule, optional
        Rules or their names, and ``"unscheduled"``; by default every rule that applies, and the unscheduled
        loops where they have no more than 5e8 operations, which take them about a second.
    target : Target or str
        What to compile for; it must run on this machine.
    timeout : float
        Seconds that building one may take, and that running it may take.
    say : callable
        Told in a line what is being verified.

    Returns
    -------
    list of dict
        One row a schedule: operator, shape, dtype, target, schedule, ok, max_error, tolerance, message.

    Raises
    ------
    InputError
        There is no such schedule.
    """
    target = as_target(target)
    workloads = [workload] if isinstance(workload, Workload) else workload
    plan = [(w, _rules_to_verify(w, schedules, target)) for w in workloads]
    with Workbench(timeout, builders=1) as bench:
        rows: list[dict[str, Any]] = []
        for nth, (each, rules) in enumerate(plan, start=1):
            say(f"{nth}/{len(plan)} {each.label}: {', '.join(rules)}")
            rows += _verified(bench, each, rules, target_text(target))
    return rows


def _verified(
    bench: Any, workload: Workload, rules: Mapping[str, ScheduleRule | None], target: str
) -> Iterator[dict[str, Any]]:
    """Build and run each schedule of a workload, and judge it in a row."""
    workload_ir = tvm.ir.save_json(workload.func)
    every_built = bench.build([bench.job(workload_ir, target, rule) for rule in rules.values()])
    cases = bench.cases(workload)
    for name, built in zip(rules, every_built, strict=True):
        ran = bench.check(built, cases)
        yield {
            "operator": workload.name,
            "shape": dict(workload.shape),
            "dtype": workload.dtype,
            "target": target,
            "schedule": name,
            "ok": ran.verified,
            "max_error": ran.max_error,
            "tolerance": cases.allowed,
            "message": "" if ran.verified else f"{ran.status}: {ran.message}",
        }


def _rules_to_verify(
    workload: Workload, wanted: Sequence[str | ScheduleRule] | None, target: Any
) -> dict[str, ScheduleRule | None]:
    if wanted is None:
        applicable = schedule_table.rules_for(workload.func, target)
        found: dict[str, ScheduleRule | None] = {rule.name: rule for rule in applicable}
        return {**found, UNSCHEDULED: None} if workload.flops <= _UNSCHEDULED_FLOPS else found
    named = [w for w in wanted if w != UNSCHEDULED]
    rules = [schedule_table.rule(w) if isinstance(w, str) else w for w in named]
    found = {rule.name: rule for rule in rules}
    return {**found, UNSCHEDULED: None} if UNSCHEDULED in wanted else found
