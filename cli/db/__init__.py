"""``tunesmith db``: what a database holds, and its records on their way in and out."""

from __future__ import annotations

import click

from ..options import Group
from .best import best_records
from .explain import explain_record
from .ls import list_records
from .show import show_record


@click.group(cls=Group, examples=["db best", "db ls --status wrong_result --db tuned.db"])
def db() -> None:
    """Look into a database of records."""


for command in (list_records, best_records, show_record, explain_record):
    db.add_command(command)
