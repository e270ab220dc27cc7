"""``tunesmith db prune``: remove what nobody will ask for again."""

from __future__ import annotations

import click

from ...machine.errors import InputError
from ..options import TvmCommand, common_options, database_option
from ..output import Column, milliseconds, print_notice, print_rows
from .rows import STATUSES, record_row, without_programs

_COLUMNS = [
    Column("id", "record"),
    Column("created", "created"),
    Column("operator", "operator"),
    Column("shape", "shape"),
    Column("space", "space"),
    Column("status", "status"),
    Column("median_s", "ms", milliseconds),
]


@click.command(
    "prune",
    cls=TvmCommand,
    examples=["db prune --keep 3 --dry-run", "db prune --status run_timeout", "db prune 3f2a 77b0"],
)
@click.argument("records", metavar="[RECORD]...", nargs=-1)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="K",
    help="Verified records to keep of each workload and target, the best.  [default: 1]",
)
@click.option(
    "--status",
    "statuses",
    type=click.Choice(STATUSES),
    multiple=True,
    metavar="STATUS",
    help="Remove only trials that ended so; may be repeated.",
)
@click.option("--operator", metavar="NAME", help="Remove only records of this operator or model function.")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Remove only records at least so many days old.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@database_option
@common_options
def prune_records(
    records: tuple[str, ...],
    keep: int | None,
    statuses: tuple[str, ...],
    operator: str | None,
    older_than: float | None,
    dry_run: bool,
    database_path: str,
    as_json: bool,
) -> None:
    """Remove records: those that are named, or all but the best of each workload and target.

    Confirmed records stay unless they are named. What was removed may be tried again by a later tuning.
    """
    from ...tuning.records.database import Database
    from ...tuning.records.pruning import prune

    narrowed = keep is not None or statuses or operator is not None or older_than is not None
    if records and narrowed:
        raise InputError("give records to remove, or options that choose them, not both")
    if not records and not narrowed:
        raise InputError("say what to remove: records, or --keep, --status, --operator or --older-than")
    with Database(database_path, create=False) as database:
        removed = prune(database, keep or 1, statuses, operator, older_than, records, dry_run)
        left = len(database.records()) - (len(removed) if dry_run else 0)
    print_rows([without_programs(record_row(record)) for record in removed], _COLUMNS, as_json)
    print_notice(f"{len(removed)} records {'would be' if dry_run else 'were'} removed, {left} stay")
