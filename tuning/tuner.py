"""Tuning: search a workload's space for its fastest right schedule, and keep what was found."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, overload

from ..kernels.operator import Workload
from ..machine.errors import InputError
from ..machine.interrupts import uninterrupted
from ..machine.target import as_target
from ..schedules.rule import ScheduleRule
from .limits import check_limits
from .measuring.measurement import Timing
from .options import Options
from .processes.worker_group import WorkerGroup
from .records.database import Database
from .remote.tracker import Remote
from .reporting.events import Progress, TuneResult
from .reporting.pace import Pace
from .reporting.progress import progress_named
from .running.device import this_machine
from .running.workbench import Workbench
from .search import searches_for, strategy_name
from .session import Session
from .turns import tune_together

TRIALS = 64
"""Trials of one workload where nothing is said."""


@overload
def tune(workload: Workload, **options: Any) -> TuneResult: ...
@overload
def tune(workload: Sequence[Workload], **options: Any) -> list[TuneResult]: ...
def tune(  # type: ignore[misc]  # the options above are these: repeating them would triple the signature
    workload: Workload | Sequence[Workload],
    *,
    target: Any = "host",
    trials: int | None = None,
    database: Database | str | Path = "tunesmith.db",
    space: str | ScheduleRule | None = None,
    strategy: str | None = None,
    cost_model: str | None = None,
    seed: int = 0,
    early_stopping: int | None = None,
    time_budget: float | None = None,
    roofline: float | None = None,
    timeout: float = 10.0,
    timing: Timing | None = None,
    give_up_factor: float = 2.0,
    transfer: bool = True,
    weights: Sequence[float] | None = None,
    least_share: float = 0.0,
    remote: Remote | None = None,
    workers: WorkerGroup | None = None,
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
    trials : int or None
        Candidates to measure in all, those of this space that the database holds included; 64 for each
        workload by default. Several workloads share them by weight and expected gain, see `budget`.
    database : Database or path
        Where records are kept.
    space : str or ScheduleRule or None
        A schedule rule with open knobs, or its name; ``"sketch"`` (``"ansor"``) for MetaSchedule's sketch
        rules; ``"all"`` for each rule that applies: their defaults are compared, and the better space gets
        more trials; None for the default rule of the workload.
    strategy : str or None
        One of `tunesmith list strategies`: ``xgb`` by default for knobs, ``evolutionary`` for sketches.
    cost_model : str or None
        For ``evolutionary``: ``xgb`` (default), ``random``, or a saved model's file; for ``xgb`` and
        ``xgb-rank``: a file that ``tunesmith db model --save`` wrote, to start from.
    seed : int
        Equal seeds and equal measurements try equal candidates. Test data is fresh in every call.
    early_stopping : int or None
        Stop a workload after so many trials without a faster one.
    time_budget : float or None
        Seconds for all trials of the call.
    roofline : float or None
        Stop a workload whose best reaches this share of its roofline, more than 0 and at most 1.
    timeout : float
        Seconds that building one candidate may take, that checking it may take, and that timing it may take.
    timing : Timing or None
        How a candidate is timed.
    give_up_factor : float
        A candidate so many times slower than the best so far is timed once only.
    transfer : bool
        Whether a strategy that can learns from records of other shapes of the same operator.
    weights : sequence of float or None
        How often each workload is called: what its time counts for; once each by default.
    least_share : float
        Of a workload that takes less than this part of the time of all, the default schedule is measured
        and nothing else.
    remote : Remote or None
        Where to run candidates: on the servers of a tracker, as many at once as there are, instead of here.
        The target "host" is theirs then.
    workers : WorkerGroup or None
        What `worker.start_workers` returned; it is ended with the tuning. None starts them now.
    progress : callable or None
        Told what happens (see `events.Event`); None shows a bar on a terminal, lines elsewhere;
        `events.quiet` shows nothing.

    Returns
    -------
    TuneResult or list of TuneResult
        One for each workload.

    Raises
    ------
    InputError
        An argument is wrong; this is found before anything is measured.
    """
    one = isinstance(workload, Workload)
    workloads = [workload] if isinstance(workload, Workload) else list(workload)
    budget = TRIALS * len(workloads) if trials is None else trials
    timing = timing or Timing()
    check_limits(
        budget,
        len(workloads),
        weights,
        early_stopping,
        time_budget,
        roofline,
        timeout,
        timing,
        give_up_factor,
        least_share,
    )
    if remote is not None and roofline is not None:
        raise InputError(
            "roofline needs measured peaks, which a remote machine has none of here: leave it out"
        )
    start, show = time.monotonic(), progress or progress_named("auto")
    deadline = start + (float("inf") if time_budget is None else time_budget)
    with ExitStack() as stack:
        bench = None
        if remote is not None:
            # Only its servers know what to compile for.
            with uninterrupted():
                bench = stack.enter_context(Workbench(timeout, group=workers, remote=remote))
        device = bench.device if bench else this_machine()
        target = device.target if isinstance(target, str) and target == "host" else as_target(target)
        searches = [searches_for(w, target, space) for w in workloads]
        names = [[strategy_name(s, strategy, cost_model) for s in group] for group in searches]
        records = database if isinstance(database, Database) else stack.enter_context(Database(database))
        records.require_writable()
        with uninterrupted():
            bench = bench or stack.enter_context(Workbench(timeout, group=workers))
        groups: list[list[Session]] = []
        pace = Pace(start, deadline, budget, lambda: sum(s.trials for group in groups for s in group))
        options = Options(
            target=target,
            device=device,
            strategy="",
            cost_model=cost_model,
            seed=seed,
            early_stopping=early_stopping,
            roofline=roofline,
            deadline=deadline,
            timing=timing,
            give_up_factor=give_up_factor,
            transfer=transfer,
            progress=show,
            pace=pace,
            number=0,
            of=len(workloads),
        )
        for number, (each, spaces, chosen) in enumerate(zip(workloads, searches, names, strict=True), 1):
            own = [replace(options, strategy=name, number=number) for name in chosen]
            made = zip(spaces, own, count(), strict=False)
            groups.append([Session(each, search, records, bench, o, nth > 0) for search, o, nth in made])
        results = tune_together(groups, weights, budget, deadline, least_share)
    return results[0] if one else results
