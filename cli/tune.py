"""``tunesmith tune``: search for faster schedules of an operator or of a model's functions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..machine.process import require_sound_tvm
from ..tuning.processes.worker_group import WorkerGroup, start_workers
from .arguments import is_model, remote_named, require_only, runnable_target, several_workloads
from .options import (
    TvmCommand,
    common_options,
    database_option,
    dtype_option,
    model_input_options,
    rpc_options,
    shapes_option,
    target_option,
)
from .output import print_notice
from .tune_model import NOT_PLANNED, list_tasks, plan_functions, tune_functions
from .tune_options import (
    TIMING,
    budget_options,
    display_options,
    model_options,
    search_options,
    timing_options,
)
from .tune_tables import print_plan, print_results, warn

if TYPE_CHECKING:
    from ..tuning.measuring.measurement import Timing
    from ..tuning.reporting.events import Progress, TuneResult

_LIST = "list"


class TuneCommand(TvmCommand):
    """A command whose workers import TVM while this process does."""

    def invoke(self, ctx: click.Context) -> Any:
        """Start the workers, unless nothing will be measured here, and run the command."""
        if not (ctx.params["dry_run"] or ctx.params["rpc_tracker"] or ctx.params["tasks"] == _LIST):
            require_sound_tvm()
            ctx.obj = ctx.with_resource(start_workers())
        return super().invoke(ctx)


@click.command(
    cls=TuneCommand,
    examples=[
        "tune matmul --shape m=1024,n=1024,k=1024 --trials 64",
        "tune matmul --shape m=1024,n=1024,k=1024 --dry-run",
        "tune model.onnx --tasks list",
        "tune model.onnx --time-budget 10m",
        "tune model.onnx --functions 'conv2d*' --min-flops 1e6 --trials 200",
    ],
)
@click.argument("subject", metavar="OP|MODEL")
@shapes_option
@dtype_option
@model_options
@model_input_options
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
    functions: str | None,
    min_flops: float | None,
    confirm: bool,
    input_shapes: str | None,
    input_values: str | None,
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
    trials: they go where most time is expected to be saved. At the end a model is run both ways. Exit status
    1 if no candidate ran and was right, or if the tuned model computes something else.
    """
    remote = remote_named(rpc_tracker, rpc_key)
    # Of a remote machine only its servers know what it is.
    options["target"] = compile_for = runnable_target(target) if remote is None else target
    _let_through(verbose)
    inputs = {"input_shapes": input_shapes, "input_values": input_values}
    only = {"tasks": tasks, "functions": functions, "min_flops": min_flops}
    only = {name: value for name, value in only.items() if value is not None}
    if is_model(subject):
        require_only("a model", shape=shapes, dtype=dtype)
    else:
        require_only("an operator", **only, no_confirm=not confirm, **inputs)
    if tasks == _LIST:
        list_tasks(subject, inputs, only, database_path, compile_for, as_json)
        return 0
    options |= {"timing": _timing(options), "remote": remote}
    if dry_run and is_model(subject):
        plan_functions(subject, inputs, only, database_path, options, as_json)
    elif dry_run:
        _plan(subject, shapes, dtype, database_path, options, as_json)
    if dry_run:
        return 0
    options |= {"transfer": transfer, "workers": workers, "progress": _progress(progress)}
    if is_model(subject):
        options["confirm"] = confirm
        return tune_functions(subject, inputs, only, database_path, options, as_json)
    results = _search(subject, shapes, dtype, database_path, options)
    print_results(results, as_json)
    if any(result.stopped_by == "interrupted" for result in results):
        print_notice("interrupted: what was measured is in the database; the same command goes on")
    return 0 if all(result.best for result in results) else 1


def _search(
    subject: str,
    shapes: Sequence[str],
    dtype: str | None,
    database_path: str,
    options: dict[str, Any],
) -> list[TuneResult]:
    """Open the database before anything is measured; warn; search."""
    from ..tuning.planning.plan import plan
    from ..tuning.records.database import Database
    from ..tuning.tuner import tune as search

    with Database(database_path) as database:
        database.require_writable()
        workloads = several_workloads(subject, shapes, dtype)
        options["database"] = database
        planned = {name: value for name, value in options.items() if name not in NOT_PLANNED}
        warn(plan(workloads, estimate=False, **planned))
        return search(workloads, **options)


def _plan(
    subject: str,
    shapes: Sequence[str],
    dtype: str | None,
    database_path: str,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    from ..tuning.planning.plan import plan

    workloads = several_workloads(subject, shapes, dtype)
    print_plan(plan(workloads, database=database_path, **options), as_json)


def _progress(name: str) -> Progress:
    from ..tuning.reporting.progress import progress_named

    return progress_named(name)


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
