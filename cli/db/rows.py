"""Records as rows of tables."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...kernels.operator import Workload
    from ...tuning.records.record import Record

# As in tuning/records/record.py, whose import takes TVM's time: a test compares them.
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
    from ...integrate.lowering.functions import as_workload
    from ...tuning.records.plain_text import read_program

    return as_workload("main", read_program(workload_ir))
