"""Compare strategies by what they would have found: points measured once are looked up ever after.

What differs between strategies is how many trials they need, and counting them needs no new measurement of a
point that was measured before. Ten seeds of five strategies then cost little more than one.

References
----------
B. van Werkhoven, "Kernel Tuner: A search-optimizing GPU code auto-tuner", FGCS 2019 (simulation mode).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from ..records.candidate import Candidate, knob_key
from ..records.database import Database
from ..records.record import Record
from ..strategies.strategy import Strategy

Measure = Callable[[Mapping[str, int]], Record]
"""Gives the record of a point."""


class Replay:
    """The records of one workload, space and target by point; what is missing is measured once and kept.

    Parameters
    ----------
    database : Database
        Where records are looked up and kept.
    workload_hash, target, space : str
        Which of them.
    measure : callable or None
        Measures a point that has no record; it returns a record of this workload, target and space. None:
        such a point is a KeyError.
    """

    def __init__(
        self, database: Database, workload_hash: str, target: str, space: str, measure: Measure | None = None
    ) -> None:
        self._database, self._measure = database, measure
        found = database.records(workload_hash, target, space)
        self._records = {knob_key(r.knobs): r for r in found if r.knobs is not None}

    def __call__(self, knobs: Mapping[str, int]) -> Record:
        """Return a point's record."""
        key = knob_key(knobs)
        if key not in self._records:
            if self._measure is None:
                raise KeyError(f"never measured: {key}")
            self._records[key] = self._measure(knobs)
            self._database.add(self._records[key])
        return self._records[key]

    @property
    def best_s(self) -> float:
        """Seconds of the fastest right trial known; infinite where there is none."""
        return min(
            (r.median_s for r in self._records.values() if r.usable and r.median_s), default=float("inf")
        )


def trials_to_reach(
    make: Callable[[int], Strategy],
    measure: Measure,
    best_s: float,
    share: float,
    seed: int,
    limit: int,
    ahead: int = 0,
) -> int:
    """Count the trials a strategy needs to come near the best.

    Parameters
    ----------
    make : callable
        Makes a fresh strategy from a seed.
    measure : callable
        Gives the record of a point, as `Replay` does.
    best_s : float
        Seconds of the best point known.
    share : float
        How near is near enough, as a share of the best's throughput: 0.97.
    seed : int
        The strategy's seed.
    limit : int
        The most trials to make.
    ahead : int
        How many candidates are unanswered at each question.

    Returns
    -------
    int
        The number of the first trial near enough; ``limit + 1`` where none was.
    """
    strategy, tried, unanswered = make(seed), 0, deque[Candidate]()
    while tried < limit:
        candidates = strategy.ask(min(strategy.batch, limit - tried - len(unanswered)))
        unanswered += candidates
        while unanswered and (len(unanswered) > ahead or not candidates or tried + len(unanswered) >= limit):
            candidate = unanswered.popleft()
            assert candidate.knobs is not None
            record = measure(candidate.knobs)
            tried += 1
            if record.usable and record.median_s and record.median_s * share <= best_s:
                return tried
            strategy.tell(candidate, record)
        if not candidates and not unanswered:
            break
    return limit + 1
