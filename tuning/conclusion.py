"""The end of a workload's tuning: its best proves itself against the default, and is reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .confirmation import FINALISTS, confirm, trial_seconds
from .records.record import Status
from .reporting.events import TuneResult
from .session import Session


def conclude(sessions: Sequence[Session], stopped_by: str) -> TuneResult:
    """Compare the best of a workload with its default schedule, unless it was interrupted, and report.

    Parameters
    ----------
    sessions : sequence of Session
        One for each space of the workload, that of its default schedule first.
    stopped_by : str
        What ended them, see `TuneResult`.
    """
    first = sessions[0]
    if not first.begun:
        first.announce()
    if stopped_by != "interrupted":
        with first.time_spent.at_work(), first.time_spent.on("confirm"):
            _compare(sessions)
    result = _result(sessions, stopped_by)
    first.options.progress(result)
    return result


def _compare(sessions: Sequence[Session]) -> None:
    """Let the best prove itself against the default, unless nothing has changed since it last did."""
    first = sessions[0]
    answer = first.database.best(first.workload.hash, first.target)
    if any(each.ledger.counts for each in sessions) or answer is None or not answer.confirmed_secs:
        known = [r for r in (first.ledger.default, answer) if r is not None and r.usable]
        fastest = [record for each in sessions for record in each.ledger.fastest(FINALISTS)]
        finalists = [*known, *sorted(fastest, key=trial_seconds)[:FINALISTS]]
        if finalists:
            confirm(finalists, first.database, first.bench, first.cases, first.options.timing)


def _result(sessions: Sequence[Session], stopped_by: str) -> TuneResult:
    first, default = sessions[0], sessions[0].ledger.default
    counts, seconds = Counter[Status](), Counter[str]()
    for each in sessions:
        counts.update(each.ledger.counts)
        seconds.update(each.seconds)
    return TuneResult(
        workload=first.workload,
        best=first.database.best(first.workload.hash, first.target),
        default=first.database.get(default.id) if default else None,
        counts=dict(counts),
        trials=sum(each.trials for each in sessions),
        stopped_by=stopped_by,
        seconds=dict(seconds),
    )
