"""``tunesmith study engine``: this engine beside MetaSchedule's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ...machine.errors import InputError
from ..options import TvmCommand, common_options
from ..output import Column, milliseconds, print_notice, rate, times
from .rows import GOAL, WORKLOAD, print_study, say_if_busy


def _count(value: float) -> str:
    return f"{value:g}"


_COLUMNS = [
    *WORKLOAD,
    Column("implementation", "implementation"),
    Column("seconds", "seconds", rate),
    Column("trials", "trials", _count),
    Column("right", "right", _count),
    Column("trials_per_minute", "trials/min", rate),
    Column("rate_ratio", "vs tune_tir", times),
    Column("best_s", "best ms", milliseconds),
    Column("best_ratio", "best vs tune_tir", times),
    *GOAL,
    Column("note", "note", width=40),
]


@click.command(
    "engine", cls=TvmCommand, examples=["study engine --workload matmul:m=128,n=128,k=128 --trials 64"]
)
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    metavar="OP:SHAPE",
    help="What to tune; may be repeated.  [default: matmuls of 128 and 1024, and a convolution of ResNet]",
)
@click.option("--trials", default=64, show_default=True, metavar="N", help="Trials of each run.")
@common_options
def study_engine(workloads: Sequence[str], trials: int, as_json: bool) -> int:
    """Tune beside MetaSchedule's own tune_tir: same sketch space, target and number of trials.

    Each runs in a fresh process, ours before and after it; then the best schedules are measured in turns.
    """
    from ...tuning.study.engine import study_engine as measure

    tasks = [_task(text) for text in workloads] or None
    say_if_busy()
    return print_study(measure(tasks, trials, print_notice), _COLUMNS, as_json)


def _task(text: str) -> tuple[str, dict[str, Any]]:
    """Read ``OP:SHAPE``; a user's own OP has a colon of its own."""
    from ...kernels.shapes import parse_shape

    operator, _, shape = text.rpartition(":")
    if not operator:
        raise InputError(f"a workload is written OP:SHAPE, as in matmul:m=64,n=64,k=64: {text!r}")
    return operator, parse_shape(shape)
