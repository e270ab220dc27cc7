"""Tuning: search a workload's space for its fastest right schedule, and keep what was found."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, overload

from ..kernels.operator import Workload
from ..machine.errors import InputError
from ..machine.target import as_target
from ..schedules.rule import ScheduleRule
from .database import Database
from .measurement import Timing
from .progress import Progress, ProgressLines, TuneResult
from .search import Search, search_for, strategy_name
from .session import Options, Session
from .workbench import Workbench


@overload
def tune(workload: Workload, **options: Any) -> TuneResult: ...
@overload
def tune(workload: Sequence[Workload], **options: Any) -> list[TuneResult]: ...
def tune(  # type: ignore[misc]  # the options above are these: repeating them would triple the signature
    workload: Workload | Sequence[Workload],
    *,
    target: Any = "host",
    trials: int = 64,
    database: Database | str | Path = "tunesmith.db",
    space: str | ScheduleRule | None = None,
    strategy: str | None = None,
    cost_model: str | None = None,
    seed: int = 0,
    early_stopping: int | None = None,
    time_budget: float | None = None,
    timeout: float = 10.0,
    number: int = 0,
    repeat: int = 3,
    min_repeat_ms: float = 30.0,
    give_up_factor: float = 2.0,
    progress: Progress | None = None,
) -> TuneResult | list[TuneResult]:
    """Search for the fastest right schedule of one or several workloads.

    The default schedule is measured first. At the end the fastest and the default are compared in a fresh
    process: where the search found nothing faster, the default is the answer. Every trial is in the
    database as soon as it ends; the same call again goes on where the last one stopped. Ctrl-C ends the
    tuning with the best so far.

    Parameters
    ----------
    workload : Workload or sequence of Workload
        What to tune.
    target : Target or str
        What to compile for; it must run on this machine.
    trials : int
        Candidates of this space to measure for each workload, those that the database holds included.
    database : Database or path
        Where records are kept.
    space : str or ScheduleRule or None
        A schedule rule with open knobs, or its name; ``"sketch"`` (``"ansor"``) for MetaSchedule's sketch
        rules; None for the default rule of the workload.
    strategy : str or None
        ``xgb`` (default), ``random``, ``grid`` for knobs; ``evolutionary`` for the sketch space.
    cost_model : str or None
        For ``evolutionary``: ``xgb`` (default) or ``random``.
    seed : int
        Equal seeds and equal measurements try equal candidates. Test data is fresh in every call.
    early_stopping : int or None
        Stop a workload after so many trials without a faster one.
    time_budget : float or None
        Seconds for the whole call; several workloads share it evenly.
    timeout : float
        Seconds that building one candidate may take, and that running it may take.
    number, repeat, min_repeat_ms : int, int, float
        How a candidate is timed, see `Timing`.
    give_up_factor : float
        A candidate so many times slower than the best so far is timed once only.
    progress : callable or None
        Told what happens (see `progress.Event`); None writes lines on stderr, `progress.quiet` none.

    Returns
    -------
    TuneResult or list of TuneResult
        One for each workload.

    Raises
    ------
    InputError
        An argument is wrong; this is found before anything is measured.
    """
    _check_limits(trials, early_stopping, time_budget, timeout, number, repeat, min_repeat_ms, give_up_factor)
    one = isinstance(workload, Workload)
    workloads = [workload] if isinstance(workload, Workload) else list(workload)
    target = as_target(target)
    searches = [search_for(w, target, space) for w in workloads]
    names = [strategy_name(s, strategy, cost_model) for s in searches]
    with ExitStack() as stack:
        records = database if isinstance(database, Database) else stack.enter_context(Database(database))
        records.require_writable()
        bench = stack.enter_context(Workbench(timeout))
        results = _tune_each(
            list(zip(workloads, searches, names, strict=True)),
            records,
            bench,
            time_budget,
            {
                "target": target,
                "trials": trials,
                "cost_model": cost_model,
                "seed": seed,
                "early_stopping": early_stopping,
                "timing": Timing(number, repeat, min_repeat_ms),
                "give_up_factor": give_up_factor,
                "progress": progress or ProgressLines(),
            },
        )
    return results[0] if one else results


def _tune_each(
    plan: Sequence[tuple[Workload, Search, str]],
    database: Database,
    bench: Workbench,
    time_budget: float | None,
    options: dict[str, Any],
) -> list[TuneResult]:
    """Tune one workload after another; each gets an even share of the time that is left."""
    end = float("inf") if time_budget is None else time.monotonic() + time_budget
    results: list[TuneResult] = []
    for index, (workload, search, strategy) in enumerate(plan):
        now = time.monotonic()
        deadline = now + (end - now) / (len(plan) - index)
        each = Options(strategy=strategy, deadline=deadline, **options)
        results.append(Session(workload, search, database, bench, each).run())
        if results[-1].stopped_by == "interrupted":
            break
    return results


def _check_limits(
    trials: int,
    early_stopping: int | None,
    time_budget: float | None,
    timeout: float,
    number: int,
    repeat: int,
    min_repeat_ms: float,
    give_up_factor: float,
) -> None:
    least: dict[str, tuple[float | None, float]] = {
        "trials": (trials, 1),
        "early_stopping": (early_stopping, 1),
        "number": (number, 0),
        "repeat": (repeat, 1),
        "min_repeat_ms": (min_repeat_ms, 0),
        "give_up_factor": (give_up_factor, 1),
    }
    for name, (value, limit) in least.items():
        if value is not None and value < limit:
            raise InputError(f"{name} must be at least {limit}: {name}={value}")
    for name, value in (("timeout", timeout), ("time_budget", time_budget)):
        if value is not None and value <= 0:
            raise InputError(f"{name} must be more than 0 seconds: {name}={value}")
