"""What the commands that take records in have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ...machine.errors import InputError
from ..output import Column, print_notice, print_rows

if TYPE_CHECKING:
    from ...tuning.records.merging import Merged


def require_files(paths: Sequence[str]) -> None:
    """Refuse paths that lead nowhere before a database is made for what they hold."""
    for path in paths:
        if not Path(path).exists():
            raise InputError(f"there is no file {path}")


def print_merged(merged: Sequence[Merged], as_json: bool) -> int:
    """Print what was taken over from each source and what was left out; return the exit status."""
    rows = [{**asdict(source), "left_out": len(source.problems)} for source in merged]
    columns = [Column("source", "from"), Column("new", "new"), Column("known", "known")]
    print_rows(rows, [*columns, Column("left_out", "left out")], as_json)
    problems = [(source.source, problem) for source in merged for problem in source.problems]
    if not as_json:
        for source, problem in problems:
            print_notice(f"{source}: left out {problem.where}: {problem.reason}")
    return 1 if problems else 0
