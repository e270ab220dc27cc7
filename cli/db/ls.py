"""``tunesmith db ls``: every trial, oldest first."""

from __future__ import annotations

import click

from ..options import TvmCommand, common_options, database_option
from ..output import Column, milliseconds, print_rows, rate
from .rows import STATUSES, record_row, without_programs

_COLUMNS = [
    Column("id", "record"),
    Column("created", "created"),
    Column("operator", "operator"),
    Column("shape", "shape"),
    Column("dtype", "dtype"),
    Column("space", "space"),
    Column("status", "status"),
    Column("median_s", "ms", milliseconds),
    Column("gflops", "GFLOP/s", rate),
    Column("knobs", "knobs"),
    Column("message", "message", lambda text: text[:60]),
]


@click.command("ls", cls=TvmCommand, examples=["db ls --operator matmul --status ok"])
@click.option("--operator", metavar="NAME", help="Only this operator or model function.")
@click.option("--status", type=click.Choice(STATUSES), metavar="STATUS", help="Only trials that ended so.")
@database_option
@common_options
def list_records(operator: str | None, status: str | None, database_path: str, as_json: bool) -> None:
    """List the records, oldest first."""
    from ...tuning.records.database import Database

    with Database(database_path, create=False) as database:
        records = database.records()
    chosen = [r for r in records if operator in (None, r.operator) and status in (None, str(r.status))]
    print_rows([without_programs(record_row(record)) for record in chosen], _COLUMNS, as_json)
