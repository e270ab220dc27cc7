"""``tunesmith bench``: how fast schedules are, beside libraries and the machine's limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..machine.errors import InputError
from .arguments import existing_database, runnable_target, several_workloads
from .options import (
    DEFAULT_DATABASE,
    TvmCommand,
    common_options,
    dtype_option,
    existing_database_option,
    shapes_option,
    target_option,
)
from .output import Column, milliseconds, percent, print_notice, print_rows, rate, times

TUNED = "tuned"
_USUAL = "default,unscheduled,numpy"

_COLUMNS = [
    Column("operator", "operator"),
    Column("shape", "shape"),
    Column("dtype", "dtype"),
    Column("implementation", "implementation"),
    Column("median_s", "median ms", milliseconds),
    Column("p20_s", "p20 ms", milliseconds),
    Column("p80_s", "p80 ms", milliseconds),
    Column("noise", "noise", percent),
    Column("gflops", "GFLOP/s", rate),
    Column("gbps", "GB/s", rate),
    Column("roofline_fraction", "roofline", percent),
    Column("verified", "verified"),
    Column("note", "note"),
]


@click.command(
    cls=TvmCommand,
    examples=[
        "bench matmul --shape m=512,n=512,k=512",
        "bench conv2d --implementations default,tuned,torch --db tunesmith.db",
        "bench all --examples 2 --implementations default,numpy,torch,onnxruntime",
    ],
)
@click.argument("operator", metavar="OP")
@shapes_option
@dtype_option
@click.option(
    "--implementations",
    default=_USUAL,
    show_default=True,
    metavar="NAMES",
    help="Comma-separated: default, tuned, prepacked (constant weights packed before the clock starts), "
    "unscheduled, a schedule's name, numpy, torch, onnxruntime.",
)
@click.option(
    "--rounds", default=11, show_default=True, metavar="N", help="Turns of each, a time every turn."
)
@click.option(
    "--min-repeat-ms",
    default=20.0,
    show_default=True,
    metavar="MS",
    help="Least duration of one turn in milliseconds; short kernels are called several times in it.",
)
@click.option(
    "--examples",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of the operator's own shapes the first N.  [default: all]",
)
@click.option("--cold-cache", is_flag=True, help="Empty the caches before each call, untimed.")
@existing_database_option
@target_option
@common_options
def bench(
    operator: str,
    shapes: Sequence[str],
    dtype: str | None,
    implementations: str,
    rounds: int,
    min_repeat_ms: float,
    examples: int | None,
    cold_cache: bool,
    database_path: str | None,
    target: str,
    as_json: bool,
) -> int:
    """Time an operator's schedules beside libraries and the machine's limit.

    Each implementation runs in a process of its own, in turns with the others, after a warm-up and after
    its output was found right. OP may be all: every operator that tunesmith brings. Ctrl-C ends it with what
    was measured until then. Exit status 1 if one is wrong or a schedule crashes.
    """
    from ..tuning.benchmark.baselines import LIBRARIES
    from ..tuning.benchmark.bench import PREPACKED, bench_each

    names = list(dict.fromkeys(name.strip() for name in implementations.split(",") if name.strip()))
    compile_for = runnable_target(target)
    workloads = several_workloads(operator, shapes, dtype, examples)
    database = existing_database(database_path) if TUNED in names or database_path else None
    if TUNED in names and database is None:
        raise InputError(f"tuned needs a database, and there is no {DEFAULT_DATABASE} here; give --db FILE")
    if not shapes:
        print_notice(f"timing the {len(workloads)} examples of {operator}; --shape chooses others")
    how = (rounds, min_repeat_ms, cold_cache, print_notice)
    rows: list[dict[str, Any]] = []
    try:
        for found in bench_each(workloads, names, database, compile_for, *how):
            rows += found
            if as_json:
                print_rows(found, [], as_json)
    finally:
        # Also after Ctrl-C: what was measured until then.
        if rows and not as_json:
            ratio = Column("ratio", f"time / {names[0]}", times)
            print_rows(rows, [*_COLUMNS[:-2], ratio, *_COLUMNS[-2:]], as_json)
    _print_summary(rows, names[0])
    # A library that is not installed may be missing, or a weight to pack; a schedule may not: it crashed.
    schedules = [name for name in names if name not in (*LIBRARIES, PREPACKED)]
    complete = sum(row["implementation"] in schedules for row in rows) == len(workloads) * len(schedules)
    return 0 if complete and all(row["verified"] for row in rows) else 1


def _print_summary(rows: Sequence[dict[str, Any]], first: str) -> None:
    """Say how the first implementation stands against the best library over all shapes."""
    from ..tuning.benchmark.summary import against_best_library

    found = against_best_library(rows)
    if found is None or found.count < 2:
        return
    print_notice(
        f"{first} against the best library of each of {found.count} shapes: {found.ratio:.2f} times as fast "
        f"in geometric mean; slower on {len(found.slower)}"
    )
    for name, ratio, library in found.slower:
        print_notice(f"  {name}: {ratio:.2f} of {library}'s speed")
