"""``tunesmith tune``: search for faster schedules of an operator or of a model's functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .arguments import is_model, model_at, require_only, runnable_target, several_workloads
from .options import (
    Duration,
    TvmCommand,
    common_options,
    database_option,
    dtype_option,
    input_shapes_option,
    shapes_option,
    target_option,
)
from .output import Column, milliseconds, percent, print_notice, print_rows, rate, times
from .tasks import chosen_tasks

if TYPE_CHECKING:
    from ..integrate.extraction import ModelWorkload
    from ..kernels.operator import Workload
    from ..tuning.progress import TuneResult

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


@click.command(
    cls=TvmCommand,
    examples=[
        "tune matmul --shape m=1024,n=1024,k=1024 --trials 64",
        "tune model.onnx --tasks 0,1 --trials 32 --time-budget 10m",
    ],
)
@click.argument("subject", metavar="OP|MODEL")
@shapes_option
@dtype_option
@click.option(
    "--space", metavar="NAME", help="A schedule's name, or sketch.  [default: the default schedule]"
)
@click.option(
    "--strategy", metavar="NAME", help="How to choose candidates.  [default: xgb; sketch: evolutionary]"
)
@click.option("--cost-model", type=click.Choice(["xgb", "random"]), help="For evolutionary.  [default: xgb]")
@click.option(
    "--trials",
    type=int,
    metavar="N",
    help="Candidates to measure in all, those already in the database included.  [default: 64 a workload]",
)
@click.option("--time-budget", type=Duration(), metavar="TIME", help="Stop after 90s, 10m or 1h30m in all.")
@click.option("--early-stopping", type=int, metavar="N", help="Stop after N trials without a faster one.")
@click.option("--seed", default=0, show_default=True, metavar="N", help="Equal seeds try equal candidates.")
@database_option
@click.option(
    "--tasks",
    metavar="EXPR",
    help="Functions of a model: list prints them; all, 0, 0,2, 3-5, -3, 4- choose.  [default: all]",
)
@click.option(
    "--timeout",
    type=Duration(),
    default=10.0,
    show_default=True,
    metavar="TIME",
    help="Seconds that building one candidate may take, and that running it may take.",
)
@click.option(
    "--number",
    default=0,
    show_default=True,
    metavar="N",
    help="Calls averaged in one repetition; 0 takes as many as --min-repeat-ms needs.",
)
@click.option("--repeat", default=3, show_default=True, metavar="N", help="Repetitions, a value each.")
@click.option(
    "--min-repeat-ms",
    default=30.0,
    show_default=True,
    metavar="MS",
    help="Least duration of one repetition in milliseconds.",
)
@input_shapes_option
@target_option
@common_options
def tune(
    subject: str,
    shapes: Sequence[str],
    dtype: str | None,
    database_path: str,
    tasks: str | None,
    input_shapes: str | None,
    target: str,
    as_json: bool,
    number: int,
    repeat: int,
    min_repeat_ms: float,
    **options: Any,
) -> int:
    """Search for the fastest right schedule of an operator or of a model's functions.

    Every trial is in the database as soon as it ends: the same command again goes on where the last one
    stopped, and Ctrl-C ends it with the best so far. Exit status 1 if no candidate ran and was right.
    """
    from ..tuning.database import Database
    from ..tuning.measurement import Timing
    from ..tuning.tuner import tune as search

    timing = Timing(number, repeat, min_repeat_ms)
    compile_for = runnable_target(target)
    if tasks == "list":
        _print_tasks(_functions(subject, shapes, dtype, input_shapes, compile_for), as_json)
        return 0
    with Database(database_path) as database:
        database.require_writable()
        if is_model(subject):
            found = _functions(subject, shapes, dtype, input_shapes, compile_for)
            workloads = [found[i].workload for i in chosen_tasks(tasks or "all", len(found))]
        else:
            require_only("an operator", tasks=tasks, input_shapes=input_shapes)
            workloads = several_workloads(subject, shapes, dtype)
        results = search(workloads, target=compile_for, database=database, timing=timing, **options)
    print_rows([_row(result) for result in results], _RESULT_COLUMNS, as_json)
    if any(result.stopped_by == "interrupted" for result in results):
        print_notice("interrupted: what was measured is in the database; the same command goes on")
    return 0 if all(result.best for result in results) else 1


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
