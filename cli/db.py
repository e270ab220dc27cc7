"""``tunesmith db``: what a database holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from ..machine.errors import InputError
from .options import Group, TvmCommand, common_options, database_option
from .output import Column, milliseconds, percent, print_rows, rate

if TYPE_CHECKING:
    from ..tuning.record import Record

# As in tuning/record.py, whose import takes TVM's time: a test compares them.
STATUSES = (
    "ok",
    "wrong_result",
    "schedule_error",
    "build_error",
    "build_timeout",
    "run_error",
    "run_timeout",
    "crashed",
)

_LIST_COLUMNS = [
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

_BEST_COLUMNS = [
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


@click.group(cls=Group, examples=["db best", "db ls --status wrong_result --db tuned.db"])
def db() -> None:
    """Look into a database of records."""


@db.command("ls", cls=TvmCommand, examples=["db ls --operator matmul --status ok"])
@click.option("--operator", metavar="NAME", help="Only this operator or model function.")
@click.option("--status", type=click.Choice(STATUSES), metavar="STATUS", help="Only trials that ended so.")
@database_option
@common_options
def list_records(operator: str | None, status: str | None, database_path: str, as_json: bool) -> None:
    """List the records, oldest first."""
    records = [
        record
        for record in _records(database_path)
        if operator in (None, record.operator) and status in (None, str(record.status))
    ]
    print_rows([_without_programs(_row(record)) for record in records], _LIST_COLUMNS, as_json)


@db.command("best", cls=TvmCommand, examples=["db best --db tunesmith.db"])
@click.option("--operator", metavar="NAME", help="Only this operator or model function.")
@database_option
@common_options
def best_records(operator: str | None, database_path: str, as_json: bool) -> int:
    """List the record that is applied to each workload and target.

    Exit status 1 if there is none.
    """
    from ..tuning.database import Database

    with Database(database_path, create=False) as database:
        found = [r for r in database.records() if operator in (None, r.operator)]
        trials = Counter((r.workload_hash, r.target) for r in found)
        best = [(database.best(*key), count) for key, count in trials.items()]
    rows = [_best_row(record, count) for record, count in best if record is not None]
    print_rows(rows, _BEST_COLUMNS, as_json)
    return 0 if rows else 1


@db.command("show", cls=TvmCommand, examples=["db show 3f2a --as tir"])
@click.argument("record_id", metavar="RECORD")
@click.option(
    "--as",
    "form",
    type=click.Choice(["fields", "tir", "trace"]),
    default="fields",
    show_default=True,
    help="What the record says, the scheduled TVMScript, or the schedule's trace.",
)
@database_option
@common_options
def show_record(record_id: str, form: str, database_path: str, as_json: bool) -> None:
    """Print one record, by its id or the beginning of it."""
    from ..tuning.database import Database

    with Database(database_path, create=False) as database:
        record = database.get(record_id)
    if form != "fields":
        text = _schedule_text(record, form)
        if as_json:
            print_rows([{"id": record.id, "form": form, "text": text}], [], as_json=True)
        else:
            click.echo(text)
        return
    row = _row(record)
    if as_json:
        print_rows([row], [], as_json=True)
        return
    fields = [{"field": name, "value": value} for name, value in _without_programs(row).items()]
    print_rows(fields, [Column("field", "field"), Column("value", "value", width=100)], as_json=False)


# Whole programs: in JSON, and with --as.
_LONG_FIELDS = ("workload_ir", "trace")


def _records(path: str) -> list[Record]:
    from ..tuning.database import Database

    with Database(path, create=False) as database:
        return database.records()


def _row(record: Record) -> dict[str, Any]:
    """Make the row of a record: its fields, its time and its rate."""
    row = {**asdict(record), "status": str(record.status), "median_s": record.median_s}
    flops, _ = _cost(record.workload_ir)
    return {**row, "gflops": flops / record.median_s / 1e9 if record.median_s else None}


def _without_programs(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _LONG_FIELDS}


def _best_row(record: Record, trials: int) -> dict[str, Any]:
    """Make the row of a workload's best record, with its roofline where that is known: on this machine."""
    from ..machine.facts import machine_fingerprint
    from ..machine.peaks import roofline_seconds

    row = {**_without_programs(_row(record)), "trials": trials, "roofline_fraction": None}
    if record.machine_fingerprint != machine_fingerprint():
        return {**row, "machine": record.machine_fingerprint}
    flops, moved = _cost(record.workload_ir)
    fraction = roofline_seconds(flops, moved, record.dtype) / row["median_s"]
    return {**row, "machine": "this one", "roofline_fraction": fraction}


@cache
def _cost(workload_ir: str) -> tuple[int, int]:
    """Return operations and bytes moved of one call."""
    import tvm

    from ..integrate.functions import as_workload

    workload = as_workload("main", tvm.ir.load_json(workload_ir))
    return workload.flops, workload.bytes_moved


def _schedule_text(record: Record, form: str) -> str:
    """Make the record's schedule again and write it."""
    import tvm

    from ..machine.target import as_target
    from ..tuning.compilation import scheduled_from_record

    func = tvm.ir.load_json(record.workload_ir)
    schedule = scheduled_from_record(record, func, as_target(record.target))
    if schedule is None:
        raise InputError(f"record {record.id} holds no schedule")
    return "\n".join(schedule.trace.as_python()) if form == "trace" else str(schedule.mod.script()).rstrip()
