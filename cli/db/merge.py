"""``tunesmith db merge``: several databases into one."""

from __future__ import annotations

import click

from ..options import TvmCommand, common_options, database_option
from .sources import print_merged, require_files


@click.command("merge", cls=TvmCommand, examples=["db merge laptop.db server.db --db all.db"])
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@database_option
@common_options
def merge_databases(files: tuple[str, ...], database_path: str, as_json: bool) -> int:
    """Add the records of other databases to the one of --db, which is made where there is none.

    Records that are there already are not added again; those of other machines are kept as such. Exit
    status 1 if something was left out.
    """
    from ...tuning.records.database import Database
    from ...tuning.records.merging import merge

    require_files(files)
    with Database(database_path) as into:
        return print_merged(merge(files, into), as_json)
