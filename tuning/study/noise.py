"""The noise study: one schedule measured in several fresh processes, and how far the results differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from ...kernels.operator import Workload
from ...machine.errors import InputError
from ...machine.target import as_target
from ..measuring.cases import Cases, prepare_cases
from ..measuring.library import export_kernel
from ..measuring.measurement import Timing
from ..measuring.tasks import Ran, RunJob, check_candidate, time_candidate
from ..processes.worker_group import WorkerGroup
from ..records.compilation import best_schedule, scheduled_from_record
from ..records.database import Database
from ..records.record import Record, Status
from ..running.runner import device_lock
from .fresh import study_folder

PROCESSES = 10
GOAL = 0.03
"""The largest distance between quartiles that is promised, as a part of the median."""

_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class NoiseRow:
    """How far the times of one schedule differ between processes.

    Parameters
    ----------
    operator, shape, dtype : str, mapping, str
        The workload.
    schedule : str
        Which schedule.
    processes : int
        How many fresh processes measured it.
    median_s, q25_s, q75_s : float
        Of the processes' results, in seconds of one call; each result is a median itself.
    spread : float
        The distance between the quartiles as a part of the median.
    goal, met : str, bool
        What is promised, and whether that was shown.
    seconds : tuple of float
        The processes' results.
    """

    operator: str
    shape: Mapping[str, Any]
    dtype: str
    schedule: str
    processes: int
    median_s: float
    q25_s: float
    q75_s: float
    spread: float
    goal: str
    met: bool
    seconds: tuple[float, ...]


def study_noise(
    workload: Workload,
    record: Record | None = None,
    database: Database | None = None,
    processes: int = PROCESSES,
    timing: Timing | None = None,
    say: Callable[[str], object] = print,
) -> NoiseRow:
    """Measure one schedule in fresh processes, one after another, each the way a trial is measured.

    Parameters
    ----------
    workload : Workload
        What to compute.
    record : Record or None
        The record of the schedule; None takes the best of the database, or the default without one.
    database : Database or None
        Where the best is looked up.
    processes : int
        How many, at least 2.
    timing : Timing or None
        How each of them measures.
    say : callable
        Told each result in a line.

    Raises
    ------
    InputError
        The number of processes makes no sense, or the schedule does not run or is wrong.
    """
    if processes < 2:
        raise InputError(f"a spread needs at least 2 processes: processes={processes}")
    target = as_target("host" if record is None else record.target)
    if record is None:
        schedule, origin = best_schedule(workload, database, target)
        name = str(origin)
    else:
        schedule, name = scheduled_from_record(record, workload.func, target), f"record {record.id}"
    found = []
    with study_folder() as folder:
        cases = prepare_cases(workload, f"{folder}/{workload.hash}")
        library = f"{folder}/schedule.so"
        export_kernel(schedule, target, library)
        for nth in range(processes):
            found.append(_measured(library, cases, timing or Timing(), name))
            say(f"{workload.label}: {name}, process {nth + 1} of {processes}: {found[-1] * 1e3:#.4g} ms")
    return noise_row(workload, name, found)


def _measured(library: str, cases: Cases, timing: Timing, name: str) -> float:
    """Return the median of what one fresh process measures."""
    job = RunJob(library, cases, timing)
    with WorkerGroup(1) as group:
        (worker,) = group.workers
        checked: Ran = worker.call(check_candidate, job, _TIMEOUT_S)
        if checked.status is not Status.OK:
            raise InputError(f"{name} cannot be timed: {checked.status}: {checked.message}")
        with device_lock():
            ran: Ran = worker.call(time_candidate, job, _TIMEOUT_S)
    return median(ran.run_secs)


def noise_row(workload: Workload, schedule: str, seconds: list[float]) -> NoiseRow:
    """Make the row of what several processes measured."""
    q25, middle, q75 = np.quantile(seconds, (0.25, 0.5, 0.75)).tolist()
    spread = (q75 - q25) / middle
    return NoiseRow(
        operator=workload.name,
        shape=dict(workload.shape),
        dtype=workload.dtype,
        schedule=schedule,
        processes=len(seconds),
        median_s=middle,
        q25_s=q25,
        q75_s=q75,
        spread=spread,
        goal=f"less than {GOAL:.0%} between quartiles",
        met=spread < GOAL,
        seconds=tuple(seconds),
    )
