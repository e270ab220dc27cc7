"""``tunesmith db show``: one record, or the program it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..options import TvmCommand, common_options, database_option
from ..output import Column, print_rows
from .rows import record_row, without_programs

if TYPE_CHECKING:
    from ...tuning.records.record import Record


@click.command("show", cls=TvmCommand, examples=["db show 3f2a --as tir"])
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
    from ...tuning.records.database import Database

    with Database(database_path, create=False) as database:
        record = database.get(record_id)
    if form != "fields":
        text = _schedule_text(record, form)
        if as_json:
            print_rows([{"id": record.id, "form": form, "text": text}], [], as_json=True)
        else:
            click.echo(text)
        return
    row = record_row(record)
    if as_json:
        print_rows([row], [], as_json=True)
        return
    fields = [{"field": name, "value": value} for name, value in without_programs(row).items()]
    print_rows(fields, [Column("field", "field"), Column("value", "value", width=100)], as_json=False)


def _schedule_text(record: Record, form: str) -> str:
    """Make the record's schedule again and write it."""
    from ...machine.target import as_target
    from ...schedules.trace_lines import trace_lines
    from ...tuning.records.compilation import scheduled_from_record
    from ...tuning.records.plain_text import read_program

    func = read_program(record.workload_ir)
    schedule = scheduled_from_record(record, func, as_target(record.target))
    return "\n".join(trace_lines(schedule.trace)) if form == "trace" else str(schedule.mod.script()).rstrip()
