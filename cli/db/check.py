"""``tunesmith db check``: whether a database is what it should be."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..options import TvmCommand, common_options, database_option
from ..output import Column, print_notice, print_rows

_COLUMNS = [Column("where", "where"), Column("reason", "what is wrong")]


@click.command("check", cls=TvmCommand, examples=["db check --deep --db tuned.db"])
@click.option("--deep", is_flag=True, help="Replay the schedule of each record too.")
@database_option
@common_options
def check_database(deep: bool, database_path: str, as_json: bool) -> int:
    """Look for damage: in the file, in each record's fields, in the programs.

    Exit status 1 if something is wrong.
    """
    from ...tuning.records.database import Database
    from ...tuning.records.integrity import check

    with Database(database_path, create=False) as database:
        problems = check(database, deep)
    if problems or as_json:
        print_rows([asdict(problem) for problem in problems], _COLUMNS, as_json)
    else:
        print_notice(f"{database_path}: nothing is wrong")
    return 1 if problems else 0
