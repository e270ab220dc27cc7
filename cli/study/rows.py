"""What the studies have in common on the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...machine.errors import InputError
from ..output import Column, print_notice, print_rows

YARDSTICK = "m=1024,n=1024,k=1024"
"""The matmul that is studied where no other workload is named."""

WORKLOAD = [Column("operator", "operator"), Column("shape", "shape")]
GOAL = [Column("goal", "promised", width=40), Column("met", "shown")]

# A process or two that run beside a study make its figures worthless.
_BUSY_LOAD = 0.5


def print_study(rows: Sequence[Any], columns: Sequence[Column], as_json: bool) -> int:
    """Print rows, say which promises were not kept, and return the exit status."""
    printed: list[Mapping[str, Any]] = [{**asdict(row), "goal": row.goal, "met": row.met} for row in rows]
    print_rows(printed, columns, as_json)
    missed = [row for row in printed if row["met"] is False]
    for row in missed:
        shape = ",".join(f"{name}={value}" for name, value in row["shape"].items())
        print_notice(f"not shown on {row['operator']} {shape}: {row['goal']}")
    return 1 if missed else 0


def shape_of(operator: str, shape: str) -> str:
    """Return the shape that is studied of matmul; other operators have none."""
    if operator != "matmul":
        raise InputError(f"which shape of {operator}? give --shape (see: tunesmith list operators)")
    return shape


def say_if_busy() -> None:
    """Warn where other processes run."""
    load = os.getloadavg()[0]
    if load > _BUSY_LOAD:
        print_notice(f"this machine is busy (load {load:.1f}): figures of a quiet one will differ")
