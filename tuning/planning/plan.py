"""The plan of a tuning: what would be searched, how often a candidate is called, and how long it takes.

Nothing is measured but a build where nothing else is known, and nothing is written: the database is read
where there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from ...kernels.operator import Workload
from ...machine.target import as_target, target_text
from ...schedules.rule import ScheduleRule
from ..budget import TURN
from ..limits import check_limits
from ..measuring.arithmetic import Calls, calls_of_trial
from ..measuring.measurement import Timing
from ..records.database import Database
from ..records.record import Record
from ..remote.tracker import Remote
from ..running.device import Device, this_machine
from ..running.workbench import Workbench
from ..search import Search, searches_for, strategy_name
from ..strategies.sketch import SketchSpace
from ..tuner import TRIALS
from .advice import Asked, advice
from .estimate import Estimate, Estimator


@dataclass(frozen=True)
class WorkloadPlan:
    """What a tuning would do with one workload in one space.

    Parameters
    ----------
    workload : Workload
        What is tuned.
    space, strategy : str
        Where candidates come from and how they are chosen.
    combinations, points : int or None
        Combinations of the knobs' values, and how many of them are legal; None in the sketch space.
    designs : int or None
        Sketches whose decisions are left open; None in a knob space.
    recorded : int
        Trials of this space in the database.
    trials : int
        New trials that it is sure to get; with several workloads the others go where most is expected.
    estimate : Estimate
        What is expected of each.
    calls : Calls or None
        How often a candidate is called that takes as long as the fastest known.
    """

    workload: Workload
    space: str
    strategy: str
    combinations: int | None
    points: int | None
    designs: int | None
    recorded: int
    trials: int
    estimate: Estimate
    calls: Calls | None


@dataclass(frozen=True)
class TuningPlan:
    """What a tuning would do.

    Parameters
    ----------
    workloads : tuple of WorkloadPlan
        One for each workload and space.
    trials : int
        New trials in all, at most.
    seconds : float or None
        About how long they take; None where that is not known.
    warnings : tuple of str
        Options that cannot have the effect that was meant.
    """

    workloads: tuple[WorkloadPlan, ...]
    trials: int
    seconds: float | None
    warnings: tuple[str, ...]


def plan(
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
    weights: Sequence[float] | None = None,
    least_share: float = 0.0,
    remote: Remote | None = None,
    estimate: bool = True,
) -> TuningPlan:
    """Say what `tune` would do with the same arguments, without doing it.

    Parameters
    ----------
    workload, target, trials, database, space, strategy, cost_model, seed, early_stopping, time_budget, \
roofline, timeout, timing, give_up_factor, weights, least_share, remote
        As in `tune`; a database that does not exist is not created. Of a remote machine a server is asked
        what it is.
    estimate : bool
        False leaves out how long trials take, where only the warnings are wanted.

    Raises
    ------
    InputError
        An argument is wrong, or two contradict each other.
    """
    workloads = [workload] if isinstance(workload, Workload) else list(workload)
    timing, wanted = timing or Timing(), TRIALS * len(workloads) if trials is None else trials
    check_limits(
        wanted,
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
    device = _device(remote, timeout)
    target = device.target if isinstance(target, str) and target == "host" else as_target(target)
    pairs = [(w, search) for w in workloads for search in searches_for(w, target, space)]
    names = [strategy_name(search, strategy, cost_model) for _, search in pairs]
    found = _records(database, None if estimate else workloads, target)
    records = [record for record in found if record.cache == timing.cache]
    here = [r for r in records if (r.machine_fingerprint, r.device) == (device.fingerprint, device.name)]
    estimator = Estimator(here, target, device.local, timing, timeout, may_build=estimate)
    known = Counter((r.workload_hash, r.space) for r in records if r.target == target_text(target))
    recorded = [known[w.hash, search.name] for w, search in pairs]
    left = max(0, wanted - sum(recorded))
    small = _negligible(workloads, weights, least_share, estimator)
    shares = [1 if w.hash in small else _first_share(left, len(pairs)) for w, _ in pairs]
    plans = tuple(
        _of_one(*pair, name, count, share, estimator)
        for pair, name, count, share in zip(pairs, names, recorded, shares, strict=True)
    )
    asked = Asked(trials, early_stopping, time_budget, timeout, timing, seed, weights)
    return TuningPlan(plans, left, _seconds(plans, left, time_budget), tuple(advice(asked, plans, left)))


def _device(remote: Remote | None, timeout: float) -> Device:
    """Return the machine that candidates would run on; of a remote one a server is asked."""
    if remote is None:
        return this_machine()
    with Workbench(timeout, builders=1, remote=remote) as bench:
        return bench.device


def _records(
    database: Database | str | Path, workloads: Sequence[Workload] | None, target: Any
) -> list[Record]:
    """Return the records of some workloads on a target, or all there are; none where there is no file."""
    if not isinstance(database, Database):
        if not Path(database).exists():
            return []
        with Database(database, create=False) as opened:
            return _records(opened, workloads, target)
    if workloads is None:
        return database.records()
    return [record for each in workloads for record in database.records(each.hash, target_text(target))]


def _first_share(trials: int, workloads: int) -> int:
    """Return how many new trials every workload gets before the others' gains count."""
    return trials if workloads == 1 else min(TURN, trials // workloads)


def _negligible(
    workloads: Sequence[Workload], weights: Sequence[float] | None, least_share: float, estimator: Estimator
) -> set[str]:
    """Return the hashes of the workloads that take less than a share of the time that is expected of all."""
    calls = weights or [1.0] * len(workloads)
    times = [calls * (estimator.call_s(w) or inf) for w, calls in zip(workloads, calls, strict=True)]
    total = sum(seconds for seconds in times if seconds != inf)
    return {w.hash for w, seconds in zip(workloads, times, strict=True) if seconds < least_share * total}


def _of_one(
    workload: Workload, search: Search, strategy: str, recorded: int, share: int, estimator: Estimator
) -> WorkloadPlan:
    knobs = search.knobs
    points = None if knobs is None else len(knobs)
    estimate = estimator.estimate(workload, search)
    return WorkloadPlan(
        workload=workload,
        space=search.name,
        strategy=strategy,
        combinations=None if knobs is None else knobs.combinations,
        points=points,
        designs=SketchSpace(workload.func, estimator.target, seed=0).designs if knobs is None else None,
        recorded=recorded,
        trials=share if points is None else max(0, min(share, points - recorded)),
        estimate=estimate,
        calls=None
        if estimate.call_s is None
        else calls_of_trial(estimate.call_s, estimator.timing, estimate.flush_s),
    )


def _seconds(plans: Sequence[WorkloadPlan], trials: int, time_budget: float | None) -> float | None:
    """Return about how long so many trials take, shared evenly; the time budget limits it."""
    each = [plan.estimate.trial_s for plan in plans]
    known = [seconds for seconds in each if seconds is not None]
    if len(known) < len(each):
        return time_budget
    # A workload whose space is exhausted leaves its trials to nobody else where it is alone.
    if len(plans) == 1:
        trials = plans[0].trials
    return min(trials * sum(known) / len(known), time_budget or inf)
