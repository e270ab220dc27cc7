"""``tunesmith tune``: search for faster schedules of an operator or of a model's functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..machine.process import require_sound_tvm
from ..tuning.processes.worker import WorkerGroup, start_workers
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
from .output import print_notice
from .tasks import chosen_tasks
from .tune_options import TIMING, budget_options, display_options, search_options, timing_options
from .tune_tables import print_plan, print_results, print_tasks, warn

if TYPE_CHECKING:
    from ..integrate.extraction import ModelWorkload
    from ..kernels.operator import Workload
    from ..tuning.measuring.measurement import Timing
    from ..tuning.reporting.events import TuneResult

Find = Callable[[], tuple[list["Workload"], list[float] | None]]
"""Finds what is to be tuned, and how often a model calls each."""


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
    /,
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
        print_tasks(_functions(subject, shapes, dtype, input_shapes, compile_for), as_json)
        return 0
    _let_through(verbose)
    if dry_run:
        _dry_run(find, database_path, options, as_json)
        return 0
    options |= {"transfer": transfer, "workers": workers}
    results = _search(find, database_path, progress, options)
    print_results(results, as_json)
    if any(result.stopped_by == "interrupted" for result in results):
        print_notice("interrupted: what was measured is in the database; the same command goes on")
    return 0 if all(result.best for result in results) else 1


def _search(find: Find, database_path: str, progress: str, options: dict[str, Any]) -> list[TuneResult]:
    """Open the database before anything is read or measured; warn; search."""
    from ..tuning.planning.plan import plan
    from ..tuning.records.database import Database
    from ..tuning.reporting.progress import progress_named
    from ..tuning.tuner import tune as search

    with Database(database_path) as database:
        database.require_writable()
        workloads, weights = find()
        options |= {"weights": weights, "database": database}
        planned = {name: value for name, value in options.items() if name not in ("transfer", "workers")}
        warn(plan(workloads, estimate=False, **planned))
        return search(workloads, progress=progress_named(progress), **options)


def _dry_run(find: Find, database_path: str, options: dict[str, Any], as_json: bool) -> None:
    from ..tuning.planning.plan import plan

    workloads, weights = find()
    print_plan(plan(workloads, weights=weights, database=database_path, **options), as_json)


def _let_through(verbose: bool) -> None:
    """Let through what TVM itself says, where that is wanted."""
    from ..tuning.strategies.sketch_context import WARNINGS

    if verbose:
        os.environ[WARNINGS] = "1"


def _timing(options: dict[str, Any]) -> Timing:
    """Take out of the options how a candidate is timed."""
    from ..tuning.measuring.measurement import Timing

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
