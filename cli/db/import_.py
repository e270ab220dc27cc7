"""``tunesmith db import``: records from elsewhere."""

from __future__ import annotations

import click

from ...machine.errors import InputError
from ..options import TvmCommand, common_options, database_option
from .rows import print_merged


@click.command("import", cls=TvmCommand, examples=["db import records.jsonl", "db import tuning_logs"])
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--target", metavar="TARGET", help="Take only records of this target.  [default: host]")
@click.option("--any-target", is_flag=True, help="Take the records of all targets.")
@database_option
@common_options
def import_command(
    paths: tuple[str, ...], target: str | None, any_target: bool, database_path: str, as_json: bool
) -> int:
    """Add records from files of JSON lines, and from folders with MetaSchedule's two files.

    Lines that are cut off, blank, for another target or do not fit are told and left out. Nothing that the
    files hold is run. What MetaSchedule measured was never verified, and is not applied. Exit status 1 if
    something was left out.
    """
    from ...tuning.database import Database
    from ...tuning.exchange import import_records

    if target is not None and any_target:
        raise InputError(f"--any-target takes all, and --target {target} one; give one of them")
    with Database(database_path) as database:
        merged = import_records(database, paths, None if any_target else target or "host")
    return print_merged(merged, as_json)
