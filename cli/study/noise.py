"""``tunesmith study noise``: how far the times of one schedule differ between processes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ...machine.errors import InputError
from ..arguments import one_workload
from ..options import DEFAULT_DATABASE, TvmCommand, common_options
from ..output import Column, milliseconds, percent, print_notice
from .rows import GOAL, WORKLOAD, YARDSTICK, print_study, say_if_busy, shape_of

if TYPE_CHECKING:
    from ...kernels.operator import Workload
    from ...tuning.records.record import Record

_COLUMNS = [
    *WORKLOAD,
    Column("schedule", "schedule"),
    Column("processes", "processes"),
    Column("median_s", "median ms", milliseconds),
    Column("q25_s", "25 % ms", milliseconds),
    Column("q75_s", "75 % ms", milliseconds),
    Column("spread", "between quartiles", percent),
    *GOAL,
]


@click.command(
    "noise", cls=TvmCommand, examples=["study noise", "study noise --record 3f2a --db tunesmith.db"]
)
@click.argument("operator", metavar="[OP]", default="matmul")
@click.option("--shape", metavar="SHAPE", help=f"The operator's dimensions.  [default: {YARDSTICK}]")
@click.option(
    "--record", "record_id", metavar="ID", help="Measure this record of the database instead of OP."
)
@click.option(
    "--db",
    "database_path",
    metavar="FILE",
    help=f"Where records are.  [default with --record: {DEFAULT_DATABASE}; else the default schedule]",
)
@click.option("--processes", default=10, show_default=True, metavar="N", help="How many fresh processes.")
@common_options
def study_noise(
    operator: str,
    shape: str | None,
    record_id: str | None,
    database_path: str | None,
    processes: int,
    as_json: bool,
) -> int:
    """Measure one schedule in fresh processes: the best of a database, or the default, or one record."""
    from ...tuning.records.database import Database
    from ...tuning.study.noise import study_noise as measure

    if record_id is not None and shape is not None:
        raise InputError(f"a record says what it computes: give --record {record_id} or --shape, not both")
    path = database_path or (DEFAULT_DATABASE if record_id is not None else None)
    opened = click.get_current_context().with_resource(Database(path, create=False)) if path else None
    record = opened.get(record_id) if opened is not None and record_id is not None else None
    if record is not None:
        workload = _workload_of(record)
    else:
        workload = one_workload(operator, shape or shape_of(operator, YARDSTICK), None)
    say_if_busy()
    return print_study([measure(workload, record, opened, processes, say=print_notice)], _COLUMNS, as_json)


def _workload_of(record: Record) -> Workload:
    """Return what a record computes; its unscheduled function is the reference."""
    from ...integrate.lowering.functions import as_workload
    from ...tuning.records.plain_text import read_program

    return replace(as_workload(record.operator, read_program(record.workload_ir)), shape=record.shape)
