"""The engine study: tuning against MetaSchedule's own ``tune_tir``, each in a process of its own.

Same function, target, sketch space and number of trials; each with its own builder, runner, search and
settings. What counts is the time from the start of a fresh Python process until its end, and which of the
best schedules is faster when both are measured in turns afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import tvm

from ...kernels import operator
from ...kernels.operator import Workload
from ...machine.errors import InputError
from ...machine.target import host_target, target_text
from ..confirmation import clearly_faster, trial_seconds
from ..records.compilation import SKETCH
from ..records.database import Database
from ..records.record import Status
from .fresh import run_fresh, study_folder
from .turns import UNMEASURED, Turns, measured_in_turns

OWN, STOCK = "tunesmith", "tune_tir"
TRIALS = 64

Task = tuple[str, Mapping[str, Any]]
"""An operator's name, or ``FILE.py:NAME`` for a user's own, and a shape."""

_CONV = {"n": 1, "h": 56, "w": 56, "ci": 64, "co": 64, "kh": 3, "kw": 3, "stride": 1, "padding": 1}
GOALS: tuple[tuple[Task, float], ...] = (
    (("matmul", {"m": 128, "n": 128, "k": 128}), 10.0),
    (("matmul", {"m": 1024, "n": 1024, "k": 1024}), 5.0),
    (("conv2d", _CONV), 10.0),
)
"""The workloads of the study, and how many times the trials a minute are promised for 64 trials."""

# Ours runs before and after the other one: a machine that becomes slower meanwhile favours neither.
_ORDER = (OWN, STOCK, OWN)


@dataclass(frozen=True)
class Run:
    """One run of one implementation.

    Parameters
    ----------
    implementation : str
        Whose.
    seconds : float
        From the start of its process to its end.
    trials, right : int
        Its records, and how many of them ran and were right.
    trace : str or None
        The trace of its best.
    best : Turns
        That best, measured in turns with those of the other runs.
    """

    implementation: str
    seconds: float
    trials: int
    right: int
    trace: str | None
    best: Turns = UNMEASURED

    @property
    def trials_per_minute(self) -> float:
        """Records a minute."""
        return 60 * self.trials / self.seconds


@dataclass(frozen=True)
class EngineRow:
    """What one implementation did on one workload; of several runs the median.

    Parameters
    ----------
    operator, shape, dtype : str, mapping, str
        The workload.
    implementation : str
        ``tunesmith`` or ``tune_tir``.
    runs : int
        How many runs there were.
    seconds : float
        From the start of the process to its end.
    trials, right : float
        Records, and those that ran and were right.
    trials_per_minute : float
        Records a minute.
    rate_ratio : float or None
        Times the trials a minute of ``tune_tir``; None where it made none.
    best_s : float or None
        Seconds of the best schedule, measured afterwards in turns with the other ones; None without one.
    best_ratio : float or None
        Times as fast as the best of ``tune_tir``.
    goal : str
        What is promised; empty where nothing is.
    met : bool or None
        Whether that was shown.
    note : str
        Why a best schedule has no time.
    """

    operator: str
    shape: Mapping[str, Any]
    dtype: str
    implementation: str
    runs: int
    seconds: float
    trials: float
    right: float
    trials_per_minute: float
    rate_ratio: float | None
    best_s: float | None
    best_ratio: float | None
    goal: str = ""
    met: bool | None = None
    note: str = ""


def study_engine(
    tasks: Sequence[Task] | None = None, trials: int = TRIALS, say: Callable[[str], object] = print
) -> list[EngineRow]:
    """Tune workloads with this engine and with MetaSchedule's own, in turns, in fresh processes.

    Parameters
    ----------
    tasks : sequence of (operator, shape), optional
        What to tune; those of `GOALS` by default.
    trials : int
        Trials of each run.
    say : callable
        Told in a line what was done.

    Returns
    -------
    list of EngineRow
        Two for each workload.

    Raises
    ------
    InputError
        A workload or the number of trials is wrong.
    """
    if trials < 1:
        raise InputError(f"trials must be at least 1: trials={trials}")
    tasks = [task for task, _ in GOALS] if tasks is None else tasks
    # All of them before any is run: what is wrong shall be found at once.
    workloads = [operator(name).workload(shape) for name, shape in tasks]
    rows: list[EngineRow] = []
    for (name, _), workload in zip(tasks, workloads, strict=True):
        runs = []
        for nth, implementation in enumerate(_ORDER):
            runs.append(_run(implementation, name, workload, trials, seed=nth))
            say(
                f"{workload.label}: {implementation}, run {nth + 1} of {len(_ORDER)}: "
                f"{runs[-1].trials} trials in {runs[-1].seconds:.1f} s"
            )
        turns = measured_in_turns(workload, target_text(host_target()), [run.trace for run in runs])
        runs = [replace(run, best=best) for run, best in zip(runs, turns, strict=True)]
        rows += engine_rows(workload, runs, promised(workload, trials))
    return rows


def promised(workload: Workload, trials: int) -> float | None:
    """Return how many times the trials a minute are promised; None where nothing is."""
    if trials != TRIALS:
        return None
    goals = {operator(name).workload(shape).hash: times for (name, shape), times in GOALS}
    return goals.get(workload.hash)


def _run(implementation: str, name: str, workload: Workload, trials: int, seed: int) -> Run:
    """Run one of them in a fresh process."""
    target = target_text(host_target())
    if implementation == STOCK:
        job = {"func_ir": tvm.ir.save_json(workload.func), "target": target, "trials": trials}
        found, seconds = run_fresh("engine_stock", job)
        return Run(STOCK, seconds, found["trials"], found["right"], found["trace"])
    with study_folder() as folder:
        path = folder / "engine.db"
        given = {"operator": name, "shape": dict(workload.shape), "dtype": workload.dtype, "target": target}
        _, seconds = run_fresh("engine_own", {**given, "trials": trials, "seed": seed, "database": str(path)})
        with Database(path, create=False) as database:
            records = database.records(workload.hash, target, SKETCH)
    right = [record for record in records if record.status is Status.OK]
    # As tune_tir does it: the fastest by the times of the trials. Far slower ones than the default schedule,
    # which may be all, were checked in part; the comparison checks whatever takes part in it.
    best = min(right, key=trial_seconds, default=None)
    return Run(OWN, seconds, len(records), len(right), best.trace if best else None)


def engine_rows(workload: Workload, runs: Sequence[Run], times: float | None) -> list[EngineRow]:
    """Make the two rows of a workload; ``times`` is the promised ratio of trials a minute."""
    groups = {name: [run for run in runs if run.implementation == name] for name in (OWN, STOCK)}
    rates = {name: median(run.trials_per_minute for run in group) for name, group in groups.items()}
    best = {name: _seconds(group) for name, group in groups.items()}
    stock = best[STOCK]
    rows = [
        EngineRow(
            operator=workload.name,
            shape=dict(workload.shape),
            dtype=workload.dtype,
            implementation=name,
            runs=len(group),
            seconds=median(run.seconds for run in group),
            trials=median(run.trials for run in group),
            right=median(run.right for run in group),
            trials_per_minute=rates[name],
            rate_ratio=rates[name] / rates[STOCK] if rates[STOCK] else None,
            best_s=best[name],
            best_ratio=stock / seconds if stock and (seconds := best[name]) else None,
            note="; ".join(dict.fromkeys(run.best.note for run in group if run.best.note)),
        )
        for name, group in groups.items()
    ]
    if times is None:
        return rows
    met = (rows[0].rate_ratio or 0.0) >= times and _as_fast(groups[OWN], groups[STOCK])
    goal = f"at least {times:g} times the trials a minute, and a best schedule that is not slower"
    return [replace(rows[0], goal=goal, met=met), rows[1]]


def _seconds(runs: Sequence[Run]) -> float | None:
    """Return the median time of the best schedules of some runs; None where one of them has none."""
    if not all(run.best.seconds for run in runs):
        return None
    return median(median(run.best.seconds) for run in runs)


def _as_fast(own: Sequence[Run], stock: Sequence[Run]) -> bool:
    """Tell whether our best is not clearly slower in the rounds they share; of ours the median.

    Where one of them found nothing, nothing is shown.
    """
    if not all(run.best.seconds for run in (*own, *stock)):
        return False
    rounds = [median(values) for values in zip(*(run.best.seconds for run in own), strict=True)]
    return not any(clearly_faster(run.best.seconds, rounds) for run in stock)
