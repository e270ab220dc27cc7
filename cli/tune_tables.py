"""What ``tunesmith tune`` prints: the functions of a model, the plan, and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .output import Column, milliseconds, percent, print_notice, print_rows, rate, seconds, times

if TYPE_CHECKING:
    from ..integrate.running.comparison import Comparison
    from ..integrate.tuning.listing import TaskStanding
    from ..integrate.tuning.tuner import ModelTuning
    from ..kernels.operator import Workload
    from ..tuning.planning.plan import TuningPlan, WorkloadPlan
    from ..tuning.reporting.events import TuneResult

_TASK_COLUMNS = [
    Column("task", "task"),
    Column("function", "function"),
    Column("calls", "calls"),
    Column("flops", "MFLOP a call", lambda flops: f"{flops / 1e6:.3g}"),
    Column("share", "share of them", percent),
    Column("seconds", "ms in all", milliseconds),
    Column("timing", "which is"),
    Column("time_share", "share of it", percent),
    Column("trials", "trials"),
    Column("record", "record"),
    Column("space", "space"),
]

_RESULT_COLUMNS = [
    Column("operator", "operator"),
    Column("shape", "shape"),
    Column("best_s", "best ms", milliseconds),
    Column("gflops", "GFLOP/s", rate),
    Column("roofline_fraction", "roofline", percent),
    Column("default_s", "default ms", milliseconds),
    Column("speedup", "vs default", times),
    Column("space", "space"),
    Column("trials", "trials"),
    Column("stopped_by", "stopped by"),
    Column("record", "record"),
]


_MODEL_COLUMNS = [
    Column("task", "task"),
    Column("operator", "function"),
    Column("calls", "calls"),
    *(column for column in _RESULT_COLUMNS if column.key not in ("operator", "shape")),
]

_PLAN_COLUMNS = [
    Column("operator", "operator"),
    Column("shape", "shape"),
    Column("space", "space"),
    Column("size", "size"),
    Column("strategy", "strategy"),
    Column("recorded", "recorded"),
    Column("trials", "new trials"),
    Column("trial_s", "s a trial", seconds),
]


def print_tasks(standings: Sequence[TaskStanding], as_json: bool) -> None:
    """Print the functions of a model and what is known of them."""
    print_rows([_task_row(each) for each in standings], _TASK_COLUMNS, as_json)


def _task_row(standing: TaskStanding) -> dict[str, Any]:
    found, record = standing.found, standing.record
    return {
        "task": found.task,
        "function": found.workload.name,
        "functions": found.functions,
        "calls": found.calls,
        "flops": found.workload.flops,
        "share": found.share,
        "seconds": standing.seconds,
        "timing": standing.timing,
        "time_share": standing.time_share,
        "trials": standing.trials,
        "record": record.id if record else None,
        "space": record.space if record else None,
        "workload_hash": found.workload.hash,
    }


def warn(planned: TuningPlan) -> None:
    """Say on stderr which options cannot have the effect that was meant."""
    for warning in planned.warnings:
        print_notice(f"warning: {warning}")


def print_plan(planned: TuningPlan, as_json: bool) -> None:
    """Print what would be done with each workload, then what that comes to and what it is known from."""
    from ..tuning.reporting.wording import clock

    rows = [_plan_row(each) for each in planned.workloads]
    print_rows(rows, _PLAN_COLUMNS, as_json)
    calls = [
        f"{each.workload.label}: calls of {milliseconds(row['call_s'])} ms: {row['calls']}"
        for each, row in zip(planned.workloads, rows, strict=True)
        if row["calls"]
    ]
    # Several spaces of one workload have them in common.
    for line in dict.fromkeys(calls):
        print_notice(line)
    for basis in dict.fromkeys(row["basis"] for row in rows):
        print_notice(f"seconds a trial: {basis}")
    time = "" if planned.seconds is None else f", about {clock(planned.seconds)} minutes"
    shared = ", shared by expected gain once each workload has those of the table" if len(rows) > 1 else ""
    print_notice(f"{planned.trials} new trials{time}{shared}")
    warn(planned)


def _plan_row(each: WorkloadPlan) -> dict[str, Any]:
    workload, calls, estimate = each.workload, each.calls, each.estimate
    size = f"{each.designs} designs"
    if each.points is not None:
        size = f"{each.points} points of {each.combinations}"
    return {
        "operator": workload.name,
        "shape": dict(workload.shape),
        "dtype": workload.dtype,
        "space": each.space,
        "size": size,
        "combinations": each.combinations,
        "points": each.points,
        "designs": each.designs,
        "strategy": each.strategy,
        "recorded": each.recorded,
        "trials": each.trials,
        "call_s": estimate.call_s,
        "calls": str(calls) if calls else None,
        "calls_least": calls.total[0] if calls else None,
        "calls_most": calls.total[1] if calls else None,
        "trial_s": estimate.trial_s,
        "basis": estimate.basis,
    }


def print_results(results: Sequence[TuneResult], as_json: bool) -> None:
    """Print what was found for each workload."""
    print_rows([_row(result) for result in results], _RESULT_COLUMNS, as_json)


def print_model_results(found: ModelTuning, name: str, as_json: bool) -> None:
    """Print what was found for each function of a model, and what the whole gains by it."""
    tasks = zip(found.tasks, found.results, strict=True)
    rows = [{"task": task.task, "calls": task.calls, **_row(result)} for task, result in tasks]
    print_rows(rows, _MODEL_COLUMNS, as_json)
    if as_json:
        print_rows([_model_row(found, name)], [], as_json)
        return
    print_notice(_estimate(found))
    if found.comparison is not None:
        print_notice(_confirmed(name, found.comparison))


def _estimate(found: ModelTuning) -> str:
    if not found.default_s:
        return "no default schedule was right: there is nothing to compare with"
    before, after = milliseconds(found.default_s), milliseconds(found.best_s)
    ratio = times(found.default_s / found.best_s)
    return f"these functions: {before} ms -> {after} ms an inference ({ratio}, each measured alone)"


def _confirmed(name: str, comparison: Comparison) -> str:
    before, after = comparison.before.median_s, comparison.after.median_s
    low, high = comparison.interval
    told = f"{times(comparison.speedup)}, {low:.2f} to {high:.2f} with 95 % confidence"
    wrong = [f"{check.output} DIFFERENT: {check.message}" for check in comparison.outputs if not check.ok]
    line = f"{name}: {milliseconds(before)} ms -> {milliseconds(after)} ms ({told}; confirmed, outputs "
    return line + ("equal)" if not wrong else f"not equal: {'; '.join(wrong)})")


def _model_row(found: ModelTuning, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name, "default_s": found.default_s, "best_s": found.best_s}
    comparison = found.comparison
    if comparison is None:
        return {**row, "confirmed": None}
    low, high = comparison.interval
    confirmed = {
        "before_s": comparison.before.median_s,
        "after_s": comparison.after.median_s,
        "speedup": comparison.speedup,
        "speedup_low": low,
        "speedup_high": high,
        "ok": comparison.ok,
    }
    return {**row, "confirmed": confirmed}


def _row(result: TuneResult) -> dict[str, Any]:
    """Make the row of one workload."""
    workload, best, default = result.workload, result.best, result.default
    best_s = best.median_s if best else None
    default_s = default.median_s if default else None
    return {
        "operator": workload.name,
        "shape": dict(workload.shape),
        "dtype": workload.dtype,
        "best_s": best_s,
        **_rates(workload, best_s),
        "default_s": default_s,
        "speedup": default_s / best_s if default_s and best_s else None,
        "space": best.space if best else None,
        "knobs": best.knobs if best else None,
        "record": best.id if best else None,
        "trials": result.trials,
        "counts": {str(status): count for status, count in result.counts.items()},
        "stopped_by": result.stopped_by,
        "seconds": dict(result.seconds),
    }


def _rates(workload: Workload, seconds: float | None) -> dict[str, float | None]:
    from ..machine.peaks import roofline_seconds

    if not seconds:
        return {"gflops": None, "roofline_fraction": None}
    least = roofline_seconds(workload.flops, workload.bytes_moved, workload.dtype)
    return {"gflops": workload.flops / seconds / 1e9, "roofline_fraction": least / seconds}
