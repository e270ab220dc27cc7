"""``tunesmith study endurance``: thousands of trials in one process."""

from __future__ import annotations

import click

from ..options import TvmCommand, common_options
from ..output import Column, print_notice, rate
from .rows import GOAL, WORKLOAD, print_study, shape_of

_SHAPE = "m=256,n=256,k=256"


def _mebibytes(value: int) -> str:
    return f"{value / 2**20:.0f}"


def _how_many(left: tuple[str, ...]) -> str:
    return str(len(left))


_COLUMNS = [
    *WORKLOAD,
    Column("space", "space"),
    Column("trials", "trials"),
    Column("records", "records"),
    Column("seconds", "seconds", rate),
    Column("rss_start_bytes", "first MiB", _mebibytes),
    Column("rss_max_bytes", "most MiB", _mebibytes),
    Column("rss_end_bytes", "last MiB", _mebibytes),
    Column("worker_max_bytes", "worker MiB", _mebibytes),
    Column("processes_left", "processes left", _how_many),
    Column("files_left", "files left", _how_many),
    *GOAL,
]


@click.command("endurance", cls=TvmCommand, examples=["study endurance", "study endurance --space sketch"])
@click.argument("operator", metavar="[OP]", default="matmul")
@click.option("--shape", metavar="SHAPE", help=f"The operator's dimensions.  [default: {_SHAPE}]")
@click.option(
    "--space", metavar="NAME", help="A schedule's name, or sketch.  [default: the default schedule]"
)
@click.option("--trials", default=3000, show_default=True, metavar="N", help="How many trials.")
@common_options
def study_endurance(operator: str, shape: str | None, space: str | None, trials: int, as_json: bool) -> int:
    """Make thousands of trials in one process: how large it becomes, and what it leaves behind."""
    from ...kernels.shapes import parse_shape
    from ...tuning.study.endurance import study_endurance as measure

    given = parse_shape(shape or shape_of(operator, _SHAPE))
    row = measure(operator, given, trials, space, print_notice)
    for left in (*row.processes_left, *row.files_left):
        print_notice(f"left: {left}")
    return print_study([row], _COLUMNS, as_json)
