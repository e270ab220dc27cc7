"""The comparison that ends a tuning: the fastest and the default schedule, in turns, in a fresh process.

Trials are measured minutes apart, and the fastest of many noisy times is too good to be true. So the
finalists run once more, in turns, and these times decide which record is the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from .measuring.cases import Cases
from .measuring.measurement import Timing
from .records.database import Database
from .records.record import Record, Status
from .running.workbench import Workbench

_ROUNDS = 9
FINALISTS = 3
"""How many of a search's best take part."""
# A finalist that is not faster than this part of the default's time does not take its place.
_CLEARLY = 0.99


def confirm(
    finalists: Sequence[Record], database: Database, bench: Workbench, cases: Cases, timing: Timing
) -> None:
    """Measure finalists in turns; store the times of the fallback and of those that clearly beat it.

    Parameters
    ----------
    finalists : sequence of Record
        Usable records of one workload and target; the one to fall back on (the default schedule's) comes
        first: it is confirmed alone should another one crash or hang.
    database : Database
        Where they are.
    bench : Workbench
        Where they are built again and run.
    cases : Cases
        What they run on.
    timing : Timing
        How they are timed.
    """
    group = list({r.id: r for r in finalists}.values())
    for chosen in (group, group[:1]):
        # The trace is what was measured, whatever has become of the rule since. Built as a user builds it.
        jobs = [bench.job(r.workload_ir, r.target, trace=r.trace) for r in chosen if r.trace]
        built = bench.build(jobs)
        if not built or len(built) < len(chosen) or any(b.status is not Status.OK for b in built):
            continue
        seconds = bench.compare(built, cases, timing, _ROUNDS)
        if seconds is not None:
            times = {
                r.id: tuple(s)
                for nth, (r, s) in enumerate(zip(chosen, seconds, strict=True))
                if nth == 0 or clearly_faster(s, seconds[0])
            }
            database.confirm(chosen[0].workload_hash, chosen[0].target, times)
            return


def clearly_faster(seconds: Sequence[float], than: Sequence[float]) -> bool:
    """Tell whether times beat others by more than noise: by 1 % in the median of the rounds they share."""
    return median(mine / other for mine, other in zip(seconds, than, strict=True)) < _CLEARLY


def trial_seconds(record: Record) -> float:
    """Return the seconds that a record's own trial measured: confirmations of other hours do not compare."""
    return median(record.run_secs) if record.run_secs else float("inf")
