"""The strategies study: how many trials a strategy needs to come near the best point known.

Every point is measured live, once; whichever strategy and seed asks for it again is given that record (the
simulation mode of Kernel Tuner). The records stay in a database, so a study goes on where it was stopped.

References
----------
B. van Werkhoven, "Kernel Tuner: A search-optimizing GPU code auto-tuner", FGCS 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ...kernels import workload as workload_of
from ...kernels.operator import Workload
from ...machine.errors import InputError, unknown_name
from ...machine.facts import machine_fingerprint
from ...machine.target import host_target, target_text
from ...schedules.rule import ScheduleRule
from ..confirmation import trial_seconds
from ..learning.experience import dims_of, experiences
from ..learning.simulation import trials_to_reach
from ..measuring.measurement import Timing
from ..records.database import Database
from ..search import Search, search_for
from ..strategies import KNOB_STRATEGIES, Experience, LearnsFromOthers, Strategy
from .meter import MADE_BY, Meter
from .strategy_rows import TRANSFER, StrategyRow, strategy_row, with_goals
from .table import UNANSWERED, Say, Table, count_trials

SEEDS, SHARE, LIMIT, COLLECT = 10, 0.97, 256, 64


def study_strategies(
    workload: Workload,
    database: Database,
    strategies: Sequence[str] = ("random", "xgb"),
    seeds: int = SEEDS,
    share: float = SHARE,
    limit: int = LIMIT,
    others: Sequence[Workload] = (),
    collect: int = COLLECT,
    space: str | ScheduleRule | None = None,
    timing: Timing | None = None,
    say: Say = print,
) -> list[StrategyRow]:
    """Count the trials that strategies need to come near the best point known of a knob space.

    Parameters
    ----------
    workload : Workload
        What is tuned.
    database : Database
        Where points are looked up and kept.
    strategies : sequence of str
        Strategies for knob spaces; ``NAME+transfer`` starts from trials of other shapes.
    seeds : int
        Searches of each, with the seeds 0, 1, ...
    share : float
        How near is near enough, as a share of the best's throughput, more than 0 and at most 1.
    limit : int
        The most trials of one search.
    others : sequence of Workload
        Other shapes of the operator to start from.
    collect : int
        Trials of ``random`` and of ``xgb`` to make for each of them, unless so many are in the database.
    space : str or ScheduleRule or None
        A schedule rule or its name; None is the default rule.
    timing : Timing or None
        How a trial is timed.
    say : callable
        Told in a line what was done.

    Raises
    ------
    InputError
        An argument is wrong, or the database holds trials of a tuning or of another machine.
    """
    _check(workload, strategies, seeds, share, limit, others, collect)
    target, timing = host_target(), timing or Timing()
    search = _knob_search(workload, target, space)
    _require_own_times(database)
    database.require_writable()
    for name in strategies:
        # One that cannot start from other shapes says so now.
        _make(name, search, workload, (), 0)
    learned: list[Experience] = []
    if any(name.endswith(TRANSFER) for name in strategies):
        for other in others:
            _collect(other, database, space, collect, timing, say)
        wanted = {other.hash for other in others}
        found = experiences(database, workload, target_text(target), search.name)
        learned = [experience for experience in found if experience.workload_hash in wanted]
    makers = {name: partial(_make, name, search, workload, learned) for name in strategies}
    with _meter(workload, search, database, timing) as meter:
        table = Table(workload, search, database, meter, say)
        counts, best_s = count_trials(makers, table, seeds, share, limit, say)
    rows = [
        strategy_row(
            workload, search.name, name, len(learned) * name.endswith(TRANSFER), share, best_s, needed, limit
        )
        for name, needed in counts.items()
    ]
    stated = share == SHARE and seeds >= SEEDS and space is None and workload.hash == _yardstick().hash
    return with_goals(rows) if stated else rows


def _make(
    name: str, search: Search, workload: Workload, learned: Sequence[Experience], seed: int
) -> Strategy:
    assert search.knobs is not None
    strategy = KNOB_STRATEGIES[name.removesuffix(TRANSFER)](search.knobs, seed, dims_of(workload))
    if name.endswith(TRANSFER):
        if not isinstance(strategy, LearnsFromOthers):
            raise InputError(
                f"{name.removesuffix(TRANSFER)} cannot start from other shapes: leave {name} out"
            )
        strategy.learn_from(learned)
    return strategy


def _collect(
    workload: Workload,
    database: Database,
    space: str | ScheduleRule | None,
    collect: int,
    timing: Timing,
    say: Say,
) -> None:
    """Make trials of another shape, unless the database has as many."""
    target = host_target()
    search = _knob_search(workload, target, space)
    known = len(database.records(workload.hash, target_text(target), search.name))
    if known >= 2 * collect:
        say(f"{workload.label}: {known} trials are known")
        return
    with _meter(workload, search, database, timing) as meter:
        table = Table(workload, search, database, meter, say)
        for name in ("random", "xgb"):
            say(f"{workload.label}: {collect} trials of {name} to start from")
            make = partial(_make, name, search, workload, ())
            trials_to_reach(make, table, 0.0, 1.0, 0, collect, UNANSWERED)


def _yardstick() -> Workload:
    return workload_of("matmul", m=1024, n=1024, k=1024)


def _knob_search(workload: Workload, target: Any, space: str | ScheduleRule | None) -> Search:
    search = search_for(workload, target, space)
    if search.knobs is None:
        raise InputError(f"strategies are compared on knob spaces: found {search.name!r}; leave it out")
    return search


def _meter(workload: Workload, search: Search, database: Database, timing: Timing) -> Meter:
    """Return a meter whose times refer to the same speed as those in the database."""
    target = host_target()
    known = database.records(workload.hash, target_text(target), search.name)
    default_s = next((trial_seconds(r) for r in known if r.usable and search.is_default(r)), None)
    return Meter(workload, search, target, timing, default_s)


def _require_own_times(database: Database) -> None:
    here = machine_fingerprint()
    for record in database.records():
        if record.machine_fingerprint != here:
            whose = f"another machine ({record.machine_fingerprint}, this is {here})"
        elif record.strategy != MADE_BY:
            whose = f"{record.strategy}, which were not timed in turns with the default"
        else:
            continue
        raise InputError(
            f"{database.path} holds trials of {whose}: their times do not compare; "
            "give a database of its own with --db"
        )


def _check(
    workload: Workload,
    strategies: Sequence[str],
    seeds: int,
    share: float,
    limit: int,
    others: Sequence[Workload],
    collect: int,
) -> None:
    if not strategies:
        raise InputError(f"name at least one strategy; there are: {', '.join(KNOB_STRATEGIES)}")
    for name in strategies:
        if name.removesuffix(TRANSFER) not in KNOB_STRATEGIES:
            raise unknown_name("strategy", name, KNOB_STRATEGIES)
        if name.endswith(TRANSFER) and not others:
            raise InputError(f"{name} starts from other shapes: give them with --transfer-from")
    for option, value in (("seeds", seeds), ("limit", limit), ("collect", collect)):
        if value < 1:
            raise InputError(f"{option} must be at least 1: {option}={value}")
    if not 0 < share <= 1:
        raise InputError(f"share is a share of the best throughput, more than 0 and at most 1: share={share}")
    if any(other.hash == workload.hash for other in others):
        raise InputError(f"{workload.label} is what is searched: start from other shapes")
