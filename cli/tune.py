"""``tunesmith tune``: search for faster schedules of an operator or of a model's functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..machine.process import require_sound_tvm
from ..tuning.worker import WorkerGroup, start_workers
from .arguments import (
    is_model,
    model_at,
    remote_named,
    require_only,
    runnable_target,
    several_workloads,
)
from .options import (
    TvmCommand,
    common_options,
    database_option,
    dtype_option,
    input_shapes_option,
    rpc_options,
    shapes_option,
    target_option,
)
from .output import Column, milliseconds, percent, print_notice, print_rows, rate, seconds, times
from .tasks import chosen_tasks
from .tune_options import TIMING, budget_options, display_options, search_options, timing_options

if TYPE_CHECKING:
    from ..integrate.extraction import ModelWorkload
    from ..kernels.operator import Workload
    from ..tuning.events import TuneResult
    from ..tuning.measurement import Timing
    from ..tuning.plan import TuningPlan, WorkloadPlan

Find = Callable[[], tuple[list["Workload"], list[float] | None]]
"""Finds what is to be tuned, and how often a model calls each."""

_TASK_COLUMNS = [
    Column("task", "task"),
    Column("function", "function"),
    Column("calls", "calls"),
    Column("flops", "MFLOP a call", lambda flops: f"{flops / 1e6:.3g}"),
    Column("share", "share", percent),
]

_RESULT_COLUMNS = [
    Column("operator", "operator"),
    Column("shape", "shape"),
    Column("best_s", "best ms", milliseconds),
    Column("gflops", "GFLOP/s", rate),
    Column("roofline_fraction", "roofline", percent),
    Column("default_s", "default ms", milliseconds),
    Column("speedup", "vs default", times),
    Column("trials", "trials"),
    Column("stopped_by", "stopped by"),
    Column("record", "record"),
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


class TuneCommand(TvmCommand):
    """A command whose workers import TVM while this process does."""

    def invoke(self, ctx: click.Context) -> Any:
        """Start the workers, unless nothing will be measured here, and run the command."""
        if not (ctx.params["dry_run"] or ctx.params["rpc_tracker"] or ctx.params["tasks"] == "list"):
            require_sound_tvm()
            ctx.obj = ctx.with_resource(start_workers())
        return super().invoke(ctx)


@click.command(
    cls=TuneCommand,
    examples=[
        "tune matmul --shape m=1024,n=1024,k=1024 --trials 64",
        "tune matmul --shape m=1024,n=1024,k=1024 --dry-run",
        "tune model.onnx --tasks 0,1 --time-budget 10m --roofline 95%",
    ],
)
@click.argument("subject", metavar="OP|MODEL")
@shapes_option
@dtype_option
@click.option(
    "--tasks",
    metavar="EXPR",
    help="Functions of a model: list prints them; all, 0, 0,2, 3-5, -3, 4- choose.  [default: all]",
)
@input_shapes_option
@database_option
@search_options
@budget_options
@timing_options
@display_options
@target_option
@rpc_options
@common_options
@click.pass_obj
def tune(
    workers: WorkerGroup | None,
    subject: str,
    shapes: Sequence[str],
    dtype: str | None,
    tasks: str | None,
    input_shapes: str | None,
    database_path: str,
    target: str,
    as_json: bool,
    dry_run: bool,
    progress: str,
    verbose: bool,
    transfer: bool,
    rpc_tracker: str | None,
    rpc_key: str | None,
    **options: Any,
) -> int:
    """Search for the fastest right schedule of an operator or of a model's functions.

    Every trial is in the database as soon as it ends: the same command again goes on where the last one
    stopped, and Ctrl-C ends it with the best so far. Several --shape, or a model's functions, share the
    trials. Exit status 1 if no candidate ran and was right.
    """
    remote = remote_named(rpc_tracker, rpc_key)
    # Of a remote machine only its servers know what it is.
    compile_for = runnable_target(target) if remote is None else target
    options |= {"timing": _timing(options), "target": compile_for, "remote": remote}
    find = partial(_workloads, subject, shapes, dtype, tasks, input_shapes, compile_for)
    if tasks == "list":
        _print_tasks(_functions(subject, shapes, dtype, input_shapes, compile_for), as_json)
        return 0
    _let_through(verbose)
    if dry_run:
        _dry_run(find, database_path, options, as_json)
        return 0
    options |= {"transfer": transfer, "workers": workers}
    results = _search(find, database_path, progress, options)
    print_rows([_row(result) for result in results], _RESULT_COLUMNS, as_json)
    if any(result.stopped_by == "interrupted" for result in results):
        print_notice("interrupted: what was measured is in the database; the same command goes on")
    return 0 if all(result.best for result in results) else 1


def _search(find: Find, database_path: str, progress: str, options: dict[str, Any]) -> list[TuneResult]:
    """Open the database before anything is read or measured; warn; search."""
    from ..tuning.database import Database
    from ..tuning.plan import plan
    from ..tuning.progress import progress_named
    from ..tuning.tuner import tune as search

    with Database(database_path) as database:
        database.require_writable()
        workloads, weights = find()
        options |= {"weights": weights, "database": database}
        planned = {name: value for name, value in options.items() if name not in ("transfer", "workers")}
        _warn(plan(workloads, estimate=False, **planned))
        return search(workloads, progress=progress_named(progress), **options)


def _dry_run(find: Find, database_path: str, options: dict[str, Any], as_json: bool) -> None:
    from ..tuning.plan import plan

    workloads, weights = find()
    _print_plan(plan(workloads, weights=weights, database=database_path, **options), as_json)


def _let_through(verbose: bool) -> None:
    """Let through what TVM itself says, where that is wanted."""
    from ..tuning.strategies.sketch_context import WARNINGS

    if verbose:
        os.environ[WARNINGS] = "1"


def _timing(options: dict[str, Any]) -> Timing:
    """Take out of the options how a candidate is timed."""
    from ..tuning.measurement import Timing

    given = {name: options.pop(name) for name in TIMING}
    return Timing(budget_s=given.pop("trial_budget_ms") / 1000, **given)


def _workloads(
    subject: str,
    shapes: Sequence[str],
    dtype: str | None,
    tasks: str | None,
    input_shapes: str | None,
    target: Any,
) -> tuple[list[Workload], list[float] | None]:
    """Return what is to be tuned, and for a model how often it calls each."""
    if not is_model(subject):
        require_only("an operator", tasks=tasks, input_shapes=input_shapes)
        return several_workloads(subject, shapes, dtype), None
    found = _functions(subject, shapes, dtype, input_shapes, target)
    chosen = [found[i] for i in chosen_tasks(tasks or "all", len(found))]
    return [task.workload for task in chosen], [float(task.calls) for task in chosen]


def _functions(
    subject: str, shapes: Sequence[str], dtype: str | None, input_shapes: str | None, target: Any
) -> list[ModelWorkload]:
    """Return the functions of a model that are worth tuning."""
    from ..integrate.extraction import extract_workloads
    from ..machine.errors import InputError

    if not is_model(subject):
        raise InputError(f"--tasks is for models: {subject!r} is no ONNX file")
    require_only("a model", shape=shapes, dtype=dtype)
    found = extract_workloads(model_at(subject, input_shapes), target)
    if not found:
        raise InputError(f"{subject} has no function that can be tuned")
    return found


def _print_tasks(found: list[ModelWorkload], as_json: bool) -> None:
    rows = [
        {
            "task": number,
            "function": task.workload.name,
            "calls": task.calls,
            "flops": task.workload.flops,
            "share": task.share,
            "workload_hash": task.workload.hash,
        }
        for number, task in enumerate(found)
    ]
    print_rows(rows, _TASK_COLUMNS, as_json)


def _warn(planned: TuningPlan) -> None:
    for warning in planned.warnings:
        print_notice(f"warning: {warning}")


def _print_plan(planned: TuningPlan, as_json: bool) -> None:
    """Print what would be done with each workload, then what that comes to and what it is known from."""
    from ..tuning.wording import clock

    rows = [_plan_row(each) for each in planned.workloads]
    print_rows(rows, _PLAN_COLUMNS, as_json)
    for each, row in zip(planned.workloads, rows, strict=True):
        if row["calls"]:
            print_notice(f"{each.workload.label}: calls of {milliseconds(row['call_s'])} ms: {row['calls']}")
    for basis in dict.fromkeys(row["basis"] for row in rows):
        print_notice(f"seconds a trial: {basis}")
    time = "" if planned.seconds is None else f", about {clock(planned.seconds)} minutes"
    shared = ", shared by expected gain once each workload has those of the table" if len(rows) > 1 else ""
    print_notice(f"{planned.trials} new trials{time}{shared}")
    _warn(planned)


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
