"""``tunesmith db``: what a database holds, and its records on their way in and out."""

from __future__ import annotations

import click

from ..options import Group
from .best import best_records
from .check import check_database
from .explain import explain_record
from .export import export_command
from .import_ import import_command
from .ls import list_records
from .merge import merge_databases
from .model import cost_model
from .prune import prune_records
from .show import show_record


@click.group(cls=Group, examples=["db best", "db explain 3f2a", "db merge other.db --db tuned.db"])
def db() -> None:
    """Look into a database of records, and move records in and out."""


for command in (
    list_records,
    best_records,
    show_record,
    explain_record,
    merge_databases,
    prune_records,
    export_command,
    import_command,
    check_database,
    cost_model,
):
    db.add_command(command)
