"""``tunesmith db best``: what is applied."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from ..options import TvmCommand, common_options, database_option
from ..output import Column, milliseconds, percent, print_rows, rate
from .rows import record_row, without_programs, workload_of

if TYPE_CHECKING:
    from ...tuning.records.record import Record

_COLUMNS = [
    Column("operator", "operator"),
    Column("shape", "shape"),
    Column("dtype", "dtype"),
    Column("median_s", "ms", milliseconds),
    Column("gflops", "GFLOP/s", rate),
    Column("roofline_fraction", "roofline", percent),
    Column("space", "space"),
    Column("knobs", "knobs"),
    Column("trials", "trials"),
    Column("machine", "machine"),
    Column("id", "record"),
]


@click.command("best", cls=TvmCommand, examples=["db best --db tunesmith.db"])
@click.option("--operator", metavar="NAME", help="Only this operator or model function.")
@database_option
@common_options
def best_records(operator: str | None, database_path: str, as_json: bool) -> int:
    """List the record that is applied to each workload and target.

    Exit status 1 if there is none.
    """
    from ...tuning.records.compatibility import target_key
    from ...tuning.records.database import Database

    with Database(database_path, create=False) as database:
        trials = Counter((r.workload_hash, target_key(r.target)) for r in database.records())
        best = [r for r in database.best_of_each() if operator in (None, r.operator)]
    rows = [_row(record, trials[record.workload_hash, target_key(record.target)]) for record in best]
    print_rows(rows, _COLUMNS, as_json)
    return 0 if rows else 1


def _row(record: Record, trials: int) -> dict[str, Any]:
    """Make the row of a workload's best record, with its roofline where that is known: on this machine."""
    from ...machine.facts import machine_fingerprint
    from ...machine.peaks import roofline_seconds

    row = {**without_programs(record_row(record)), "trials": trials, "roofline_fraction": None}
    if record.machine_fingerprint != machine_fingerprint():
        return {**row, "machine": record.machine_fingerprint}
    workload = workload_of(record.workload_ir)
    fraction = roofline_seconds(workload.flops, workload.bytes_moved, record.dtype) / row["median_s"]
    return {**row, "machine": "this one", "roofline_fraction": fraction}
