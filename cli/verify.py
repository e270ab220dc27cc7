"""``tunesmith verify``: prove schedules right."""

from __future__ import annotations

from collections.abc import Sequence

import click

from .arguments import runnable_target, several_workloads
from .options import TvmCommand, common_options, dtype_option, schedules_option, shapes_option, target_option
from .output import Column, print_notice, print_rows, scientific

_COLUMNS = [
    Column("operator", "operator"),
    Column("shape", "shape"),
    Column("dtype", "dtype"),
    Column("schedule", "schedule"),
    Column("ok", "verdict", lambda ok: "right" if ok else "WRONG"),
    Column("max_error", "max error", scientific),
    Column("tolerance", "allowed", scientific),
    Column("message", "message"),
]


@click.command(
    cls=TvmCommand,
    examples=[
        "verify matmul --shape m=127,n=131,k=137",
        "verify my_operators.py:SOFTMAX --shape m=64,n=1000 --schedule general",
    ],
)
@click.argument("operator", metavar="OP")
@shapes_option
@dtype_option
@schedules_option
@target_option
@common_options
def verify(
    operator: str,
    shapes: Sequence[str],
    dtype: str | None,
    schedules: Sequence[str],
    target: str,
    as_json: bool,
) -> int:
    """Run the schedules of an operator and compare them with its NumPy reference.

    Each runs with its default knobs, in a process of its own, on random inputs. Exit status 1 if one is
    wrong or crashes.
    """
    from ..tuning.proof import verify as prove

    compile_for = runnable_target(target)
    workloads = several_workloads(operator, shapes, dtype)
    if not shapes:
        print_notice(f"verifying the {len(workloads)} examples of {operator}; --shape chooses others")
    rows = prove(workloads, list(schedules) or None, compile_for, say=print_notice)
    print_rows(rows, _COLUMNS, as_json)
    return 0 if all(row["ok"] for row in rows) else 1
