"""``tunesmith db export``: records for git, other programs and MetaSchedule."""

from __future__ import annotations

import click

from ..options import TvmCommand, common_options, database_option
from ..output import Column, print_rows

# As in tuning/records/exchange.py, whose import takes TVM's time: a test compares them.
FORMATS = ("jsonl", "meta-schedule")


@click.command(
    "export",
    cls=TvmCommand,
    examples=["db export records.jsonl --best", "db export tuning_logs --format meta-schedule"],
)
@click.argument("path", metavar="FILE")
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    show_default=True,
    help="A file of JSON lines, one record a line; or a folder with MetaSchedule's two files.",
)
@click.option(
    "--target",
    metavar="TARGET",
    help="Only records of this target.  [default: all; for meta-schedule this machine's]",
)
@click.option("--best", is_flag=True, help="Only the record applied to each workload and target.")
@click.option("--overwrite", is_flag=True, help="Replace what is there.")
@database_option
@common_options
def export_command(
    path: str, format: str, target: str | None, best: bool, overwrite: bool, database_path: str, as_json: bool
) -> int:
    """Write records to FILE; into the folder FILE for MetaSchedule, and then only verified ones.

    Exit status 1 if there is none to write.
    """
    from ...tuning.records.database import Database
    from ...tuning.records.exchange import export_records

    with Database(database_path, create=False) as database:
        count = export_records(database, path, format, target, best, overwrite)
    row = {"file": path, "format": format, "records": count}
    print_rows([row], [Column(name, name) for name in row], as_json)
    return 0 if count else 1
