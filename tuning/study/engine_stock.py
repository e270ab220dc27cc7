"""A program of the engine study: MetaSchedule's own ``tune_tir``, with its own builder, runner and settings.

Of tunesmith it uses nothing but the number of threads that ``import tunesmith`` sets, and an import of TVM
without PyTorch, which spares it a second.
"""

from __future__ import annotations

import json
import logging
from tempfile import TemporaryDirectory
from typing import Any

from ...machine.process import import_tvm, load_backends
from .fresh import Job, answer

# What MetaSchedule writes down as the time of a trial that failed is 1e10.
_FAILED_S = 1e9


def tune_stock(job: Job) -> Job:
    """Tune a function; return the number of records, of right ones, and the trace of the best.

    The job: ``func_ir`` and ``target`` as JSON, ``trials``.
    """
    import_tvm()
    # It has instructions of all devices parsed.
    load_backends()
    import tvm
    from tvm.s_tir import meta_schedule as ms

    # A handler would crash it: see docs/study.md.
    logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.CRITICAL)
    module = tvm.IRModule({"main": tvm.ir.load_json(job["func_ir"])})
    with TemporaryDirectory() as folder:
        target = tvm.target.Target(json.loads(job["target"]))
        records = ms.tune_tir(module, target, folder, job["trials"]).get_all_tuning_records()
    right = [record for record in records if _seconds(record) < _FAILED_S]
    best = min(right, key=_seconds, default=None)
    return {"trials": len(records), "right": len(right), "trace": best and _trace(best)}


def _seconds(record: Any) -> float:
    """Return the mean that MetaSchedule ranks a record by."""
    times = [float(seconds) for seconds in record.run_secs or ()]
    return sum(times) / len(times) if times else float("inf")


def _trace(record: Any) -> str:
    from ..records.compilation import trace_text

    return trace_text(record)


if __name__ == "__main__":
    answer(tune_stock)
