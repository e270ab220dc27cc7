"""The list of a model's tasks: what each is, what is known of it, and what part of the time it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...kernels.operator import Workload
from ...machine.peaks import roofline_seconds
from ...machine.target import as_target, target_text
from ...tuning.records.database import Database
from ...tuning.records.record import Record
from ..extraction import ModelWorkload
from ..lowering.report import MEASURED, PREDICTED


@dataclass(frozen=True)
class TaskStanding:
    """What is known of a task before it is tuned.

    Parameters
    ----------
    found : ModelWorkload
        The task.
    trials : int
        How many the database holds of it, whatever their space and model.
    record : Record or None
        The best of them.
    seconds : float
        The time of its calls in one inference: by the record, or the least that this machine's peaks allow.
    timing : str
        ``measured`` or ``predicted``.
    time_share : float
        Its part of the time of all tasks, 0 to 1.
    """

    found: ModelWorkload
    trials: int
    record: Record | None
    seconds: float
    timing: str
    time_share: float


def task_standings(
    found: Sequence[ModelWorkload], database: Database | None, target: Any = "host"
) -> list[TaskStanding]:
    """Say of each task of a model what a database knows of it.

    Parameters
    ----------
    found : sequence of ModelWorkload
        As `extract_workloads` returns them, all: shares are parts of their sum.
    database : Database, optional
        Where the records are.
    target : str or tvm.target.Target
        What the model is compiled for.
    """
    text = target_text(as_target(target))
    best = [database.best(each.workload.hash, text) if database else None for each in found]
    seconds = [each.calls * _call_s(each.workload, record) for each, record in zip(found, best, strict=True)]
    total = sum(seconds) or 1.0
    return [
        TaskStanding(
            found=each,
            trials=len(database.records(each.workload.hash, text)) if database else 0,
            record=record,
            seconds=expected,
            timing=PREDICTED if record is None else MEASURED,
            time_share=expected / total,
        )
        for each, record, expected in zip(found, best, seconds, strict=True)
    ]


def _call_s(workload: Workload, record: Record | None) -> float:
    if record is not None and record.median_s is not None:
        return record.median_s
    return roofline_seconds(workload.flops, workload.bytes_moved, workload.dtype)
