"""The points of one space measured so far, and how many of them searches need to come near the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from ...kernels.operator import Workload
from ...machine.errors import InputError
from ...machine.target import host_target, target_text
from ..confirmation import trial_seconds
from ..learning.simulation import Measure, Replay, trials_to_reach
from ..records.database import Database
from ..records.record import Record
from ..search import Search
from ..strategies import AHEAD, Strategy

UNANSWERED = AHEAD // 2
"""Candidates that are unanswered when the next are asked for: as many as in a tuning."""

# How many of the fastest points are measured again, and how often.
_FASTEST, _AGAIN = 5, 5
_SAY_EVERY = 25

Say = Callable[[str], object]
"""Told in a line what was done."""


class Table:
    """The points measured so far, whoever asked for them first.

    Parameters
    ----------
    workload, search, database, meter, say
        As in `study_strategies`; the meter gives the record of a new trial of a point.
    """

    def __init__(
        self, workload: Workload, search: Search, database: Database, meter: Measure, say: Say
    ) -> None:
        self._of = (workload.hash, target_text(host_target()), search.name)
        self._database, self._meter, self._say, self._new = database, meter, say, 0
        self._replay = Replay(database, *self._of, self._measure)
        # Its seconds say to which speed those of all points refer, also when the study goes on another day.
        self(search.default.knobs or {})

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


def count_trials(
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
        trials_to_reach(make, table, 0.0, 1.0, seeds, limit, UNANSWERED)
    fastest = table.fastest()
    while True:
        if not fastest:
            raise InputError("no point of the space is right: there is nothing to reach")
        best_s = table.confirmed_s(fastest)
        counts: dict[str, list[int]] = {name: [] for name in makers}
        for name, make in makers.items():
            for seed in range(seeds):
                needed = trials_to_reach(make, table, best_s, share, seed, limit, UNANSWERED)
                counts[name].append(needed)
                text = f"{needed} trials" if needed <= limit else f"not reached in {limit} trials"
                say(f"{name}, seed {seed}: {text}")
        now = table.fastest()
        if [record.id for record in now] == [record.id for record in fastest]:
            return counts, best_s
        say("the searches found a point among the fastest: counting again")
        fastest = now
