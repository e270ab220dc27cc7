"""``tunesmith db import``: records from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...machine.errors import InputError
from ..options import TvmCommand, common_options, database_option
from ..output import print_notice
from .sources import print_merged, require_files

if TYPE_CHECKING:
    from ...tuning.records.database import Database


@click.command("import", cls=TvmCommand, examples=["db import records.jsonl", "db import tuning_logs"])
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@click.option("--target", metavar="TARGET", help="Take only records of this target.  [default: host]")
@click.option("--any-target", is_flag=True, help="Take the records of all targets.")
@click.option(
    "--verify",
    is_flag=True,
    help="Then build, run and verify here what MetaSchedule made: only for files you trust.",
)
@database_option
@common_options
def import_command(
    paths: tuple[str, ...],
    target: str | None,
    any_target: bool,
    verify: bool,
    database_path: str,
    as_json: bool,
) -> int:
    """Add records from files of JSON lines, and from folders with MetaSchedule's two files.

    Lines that are cut off, blank, for another target or do not fit are told and left out. Nothing that the
    files hold is run without --verify. What MetaSchedule measured was never verified, and is not applied
    until it is. Exit status 1 if something was left out.
    """
    from ...tuning.records.database import Database
    from ...tuning.records.exchange import import_records

    if target is not None and any_target:
        raise InputError(f"--any-target takes all, and --target {target} one; give one of them")
    require_files(paths)
    with Database(database_path) as database:
        merged = import_records(database, paths, None if any_target else target or "host")
        status = print_merged(merged, as_json)
        if verify:
            _verify(database)
    return status


def _verify(database: Database) -> None:
    from ...tuning.acceptance import verify_imported

    tried = verify_imported(database)
    right = sum(record.verified for record in tried)
    print_notice(f"{len(tried)} imported records were tried here: {right} are right and may be applied")
