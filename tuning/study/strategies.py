"""The strategies study: how many trials a strategy needs to come near the best point known.

Every point is measured live, once; whichever strategy and seed asks for it again is given that record (the
simulation mode of Kernel Tuner). The records stay in a database, so a study goes on where it was stopped.

References
----------
B. van Werkhoven, "Kernel Tuner: A search-optimizing GPU code auto-tuner", FGCS 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, floor
from statistics import median
from typing import Any

from ...kernels import workload as workload_of
from ...kernels.operator import Workload
from ...machine.errors import InputError, unknown_name
from ...machine.facts import machine_fingerprint
from ...machine.target import host_target, target_text
from ...schedules.rule import ScheduleRule
from ..confirmation import trial_seconds
from ..database import Database
from ..experience import experiences
from ..measurement import Timing
from ..record import Record
from ..search import Search, search_for
from ..simulation import Measure, Replay, trials_to_reach
from ..strategies import AHEAD, KNOB_STRATEGIES, Experience, LearnsFromOthers, Strategy
from .meter import Meter

TRANSFER = "+transfer"
"""What is added to a strategy's name where it starts from trials of other shapes."""

SEEDS, SHARE, LIMIT, COLLECT = 10, 0.97, 256, 64
XGB_AT_MOST, TRANSFER_AT_MOST = 32, 8
"""Trials that ``xgb`` is promised to need at most in the matmul 1024^3 space, cold and after a transfer."""

# As many are unanswered in a tuning when the next are asked for.
_UNANSWERED = AHEAD // 2
# How many of the fastest points are measured again, and how often.
_FASTEST, _AGAIN = 5, 5
_SAY_EVERY = 25

Say = Callable[[str], object]


@dataclass(frozen=True)
class StrategyRow:
    """How many trials a strategy needed.

    Parameters
    ----------
    operator, shape, dtype, space : str, mapping, str, str
        What was searched.
    strategy : str
        The strategy; ``+transfer`` where it started from other shapes.
    learned_from : int
        Trials of other shapes that it started from.
    share, best_s : float, float
        A trial with at least this share of the throughput of the best point known has reached it; and the
        seconds of that best.
    seeds, reached, limit : int
        Searches, those that came so far, and the trials after which a search was given up.
    median, q25, q75 : float or None
        Trials needed; None is more than the limit.
    goal, met : str, bool or None
        What is promised, if anything, and whether that was shown.
    trials : tuple of int or None
        Trials needed by each seed; None is more than the limit.
    """

    operator: str
    shape: Mapping[str, Any]
    dtype: str
    space: str
    strategy: str
    learned_from: int
    share: float
    best_s: float
    seeds: int
    reached: int
    limit: int
    median: float | None
    q25: float | None
    q75: float | None
    trials: tuple[int | None, ...]
    goal: str = ""
    met: bool | None = None


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
        An argument is wrong, or the database holds trials of another machine.
    """
    _check(workload, strategies, seeds, share, limit, others, collect)
    target, timing = host_target(), timing or Timing()
    search = _knob_search(workload, target, space)
    _require_this_machine(database)
    database.require_writable()
    learned: list[Experience] = []
    if any(name.endswith(TRANSFER) for name in strategies):
        for other in others:
            _collect(other, database, space, collect, timing, say)
        wanted = {other.hash for other in others}
        found = experiences(database, workload, target_text(target), search.name)
        learned = [experience for experience in found if experience.workload_hash in wanted]
    makers = {name: partial(_make, name, search, workload, learned) for name in strategies}
    with Meter(workload, search, target, timing) as meter:
        table = Table(workload, search, database, meter, say)
        counts, best_s = _count(makers, table, seeds, share, limit, say)
    rows = [
        StrategyRow(
            operator=workload.name,
            shape=dict(workload.shape),
            dtype=workload.dtype,
            space=search.name,
            strategy=name,
            learned_from=len(learned) if name.endswith(TRANSFER) else 0,
            share=share,
            best_s=best_s,
            seeds=seeds,
            reached=sum(needed <= limit for needed in found),
            limit=limit,
            median=quantile(found, 0.5, limit),
            q25=quantile(found, 0.25, limit),
            q75=quantile(found, 0.75, limit),
            trials=tuple(needed if needed <= limit else None for needed in found),
        )
        for name, found in counts.items()
    ]
    stated = share == SHARE and seeds >= SEEDS and space is None and workload.hash == _yardstick().hash
    return with_goals(rows) if stated else rows


class Table:
    """The points measured so far, whoever asked for them first.

    Parameters
    ----------
    workload, search, database, meter, say
        As in `study_strategies`.
    """

    def __init__(
        self, workload: Workload, search: Search, database: Database, meter: Measure, say: Say
    ) -> None:
        self._of = (workload.hash, target_text(host_target()), search.name)
        self._database, self._meter, self._say, self._new = database, meter, say, 0
        self._replay = Replay(database, *self._of, self._measure)

    def __call__(self, knobs: Mapping[str, int]) -> Record:
        """Return a point's record."""
        return self._replay(knobs)

    def fastest(self) -> list[Record]:
        """Return the few points whose trials were the fastest."""
        usable = [record for record in self._database.records(*self._of) if record.usable]
        return sorted(usable, key=trial_seconds)[:_FASTEST]

    def confirmed_s(self, fastest: Sequence[Record]) -> float:
        """Measure points again, in turns, and return the seconds of the best by the medians.

        The fastest of many trials was lucky: its own time is left out.
        """
        seconds: dict[str, list[float]] = {}
        for _ in range(_AGAIN):
            for record in fastest:
                again = self._meter(record.knobs or {})
                seconds.setdefault(record.id, []).append(trial_seconds(again))
        best_s = min(map(median, seconds.values()))
        self._say(f"the best point known takes {best_s * 1e3:#.4g} ms")
        return best_s

    def _measure(self, knobs: Mapping[str, int]) -> Record:
        self._new += 1
        if self._new % _SAY_EVERY == 0:
            self._say(f"{self._new} new points measured")
        return self._meter(knobs)


def _count(
    makers: Mapping[str, Callable[[int], Strategy]],
    table: Table,
    seeds: int,
    share: float,
    limit: int,
    say: Say,
) -> tuple[dict[str, list[int]], float]:
    """Count the trials of every strategy and seed, until no new point is among the fastest few.

    First, each strategy searches once to the limit, with a seed that does not count: what is called the best
    shall not be that of a search which ended where it met the first good point.
    """
    for name, make in makers.items():
        say(f"{name}: a search of {limit} trials for the best point")
        trials_to_reach(make, table, 0.0, 1.0, seeds, limit, _UNANSWERED)
    fastest = table.fastest()
    while True:
        if not fastest:
            raise InputError("no point of the space is right: there is nothing to reach")
        best_s = table.confirmed_s(fastest)
        counts: dict[str, list[int]] = {name: [] for name in makers}
        for name, make in makers.items():
            for seed in range(seeds):
                needed = trials_to_reach(make, table, best_s, share, seed, limit, _UNANSWERED)
                counts[name].append(needed)
                text = f"{needed} trials" if needed <= limit else f"not reached in {limit} trials"
                say(f"{name}, seed {seed}: {text}")
        now = table.fastest()
        if [record.id for record in now] == [record.id for record in fastest]:
            return counts, best_s
        say("the searches found a point among the fastest: counting again")
        fastest = now


def _make(
    name: str, search: Search, workload: Workload, learned: Sequence[Experience], seed: int
) -> Strategy:
    assert search.knobs is not None
    strategy = KNOB_STRATEGIES[name.removesuffix(TRANSFER)](search.knobs, seed, workload.shape)
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
    with Meter(workload, search, target, timing) as meter:
        table = Table(workload, search, database, meter, say)
        for name in ("random", "xgb"):
            say(f"{workload.label}: {collect} trials of {name} to start from")
            make = partial(_make, name, search, workload, ())
            trials_to_reach(make, table, 0.0, 1.0, 0, collect, _UNANSWERED)


def quantile(counts: Sequence[int], q: float, limit: int) -> float | None:
    """Return a quantile of trials needed, interpolated; None where it depends on a search that was given up.

    Of such a search nothing is known but that it needs more than ``limit`` trials. So a median is known as
    long as more than half of the searches ended.
    """
    ordered = sorted(counts)
    position = (len(ordered) - 1) * q
    low, high = ordered[floor(position)], ordered[ceil(position)]
    return None if high > limit else low + (high - low) * (position - floor(position))


def with_goals(rows: Sequence[StrategyRow]) -> list[StrategyRow]:
    """Add what is promised for the matmul 1024^3 space to the rows it is promised for."""
    by_name = {row.strategy: row for row in rows}
    return [_with_goal(row, by_name.get("random")) for row in rows]


def _with_goal(row: StrategyRow, control: StrategyRow | None) -> StrategyRow:
    if row.strategy == f"xgb{TRANSFER}":
        met = row.median is not None and row.median <= TRANSFER_AT_MOST
        return replace(row, goal=f"at most {TRANSFER_AT_MOST} trials", met=met)
    if row.strategy != "xgb":
        return row
    met = row.median is not None and row.median <= XGB_AT_MOST
    if control is None:
        return replace(row, goal=f"at most {XGB_AT_MOST} trials", met=met)
    # Where random was given up, it needed more than its limit.
    least = control.limit if control.median is None else control.median
    goal = f"at most {XGB_AT_MOST} trials, and less than half of those of random"
    return replace(row, goal=goal, met=met and 2 * (row.median or 0) < least)


def _yardstick() -> Workload:
    return workload_of("matmul", m=1024, n=1024, k=1024)


def _knob_search(workload: Workload, target: Any, space: str | ScheduleRule | None) -> Search:
    search = search_for(workload, target, space)
    if search.knobs is None:
        raise InputError(f"strategies are compared on knob spaces: found {search.name!r}; leave it out")
    return search


def _require_this_machine(database: Database) -> None:
    here = machine_fingerprint()
    other = next((r for r in database.records() if r.machine_fingerprint != here), None)
    if other is not None:
        raise InputError(
            f"{database.path} holds trials of another machine ({other.machine_fingerprint}, this is {here}): "
            "their times do not compare; give a database of its own with --db"
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
