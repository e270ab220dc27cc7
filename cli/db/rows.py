"""Records as rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from ..output import Column, print_notice, print_rows

if TYPE_CHECKING:
    from ...kernels.operator import Workload
    from ...tuning.merging import Merged
    from ...tuning.record import Record

# As in tuning/record.py, whose import takes TVM's time: a test compares them.
STATUSES = (
    "ok",
    "wrong_result",
    "schedule_error",
    "build_error",
    "build_timeout",
    "run_error",
    "run_timeout",
    "crashed",
)

# Whole programs: in JSON, and with --as.
_LONG_FIELDS = ("workload_ir", "trace", "key")


def record_row(record: Record) -> dict[str, Any]:
    """Make the row of a record: its fields, its time and its rate."""
    row = {**asdict(record), "status": str(record.status), "median_s": record.median_s}
    flops = workload_of(record.workload_ir).flops
    return {**row, "gflops": flops / record.median_s / 1e9 if record.median_s else None}


def without_programs(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out what fills a screen."""
    return {name: value for name, value in row.items() if name not in _LONG_FIELDS}


@cache
def workload_of(workload_ir: str) -> Workload:
    """Return the workload of a record: its function, and what one call costs."""
    import tvm

    from ...integrate.functions import as_workload

    return as_workload("main", tvm.ir.load_json(workload_ir))


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
