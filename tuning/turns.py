"""Turns: several workloads, and several spaces of each, tuned by one group of workers within one budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from math import isfinite

from ..machine.interrupts import kept_interrupts
from .budget import TURN, first_shares, negligible, next_turn, worth_trials
from .conclusion import conclude
from .confirmation import trial_seconds
from .reporting.events import GainSoFar, TuneResult
from .session import Session


def tune_together(
    groups: Sequence[Sequence[Session]],
    weights: Sequence[float] | None,
    trials: int,
    deadline: float,
    least_share: float = 0.0,
) -> list[TuneResult]:
    """Give turns to sessions until the budget is spent or each of them has ended; then compare and report.

    Parameters
    ----------
    groups : sequence of sequences of Session
        Of each workload one session for each space, that of the default schedule first.
    weights : sequence of float or None
        How often each workload is called, where that is known: then what all come to is told as well.
    trials : int
        How many there may be in all, those of earlier sessions included.
    deadline : float
        When the time is over, on the monotonic clock.
    least_share : float
        A workload that takes less than this part of the time of all gets no more than its default.
    """
    results: list[TuneResult] = []
    sessions = [session for group in groups for session in group]
    counted = weights or [1.0] * len(groups)
    weight_of = [weight for weight, group in zip(counted, groups, strict=True) for _ in group]
    tell = _GainTeller(groups, weights) if weights else None
    try:
        with kept_interrupts():
            after_turn = tell or (lambda: None)
            reasons = iter(take_turns(sessions, weight_of, trials, deadline, least_share, after_turn))
            for group in groups:
                reason, *_ = [next(reasons) for _ in group]
                results.append(conclude(group, reason))
    except KeyboardInterrupt:
        results += [conclude(group, "interrupted") for group in groups[len(results) :]]
    return results


def take_turns(
    sessions: Sequence[Session],
    weights: Sequence[float],
    trials: int,
    deadline: float,
    least_share: float = 0.0,
    after_turn: Callable[[], None] = lambda: None,
) -> list[str]:
    """Give turns until the budget is spent; return of each session what it was ended by."""
    turns, served = count(), set[int]()
    while True:
        now, left = time.monotonic(), trials - sum(session.trials for session in sessions)
        standings = [session.standing(weight) for session, weight in zip(sessions, weights, strict=True)]
        after_turn()
        worth = worth_trials(standings, least_share)
        if now >= deadline:
            # Each workload gets its default all the same, so that there is an answer.
            worth = [i for i in worth if not (standings[i].alternative or standings[i].best_after)]
        if left <= 0 or not worth:
            break
        first = first_shares(standings, worth, served, least_share)
        if len(sessions) == 1:
            sessions[0].advance(left, deadline)
        elif first:
            share = 1
            if standings[first[0]].best_after:
                served.add(first[0])
                share = min(TURN - standings[first[0]].trials, max(1, left // len(first)))
            # A first share of the trials and of the time for each.
            sessions[first[0]].advance(share, now + (deadline - now) / len(first))
        else:
            chosen = worth[next_turn([standings[i] for i in worth], next(turns))]
            sessions[chosen].advance(min(TURN, left), deadline)
    few, over = negligible(standings, least_share), "trials" if left <= 0 else "time_budget"
    return [s.stopped_by or ("negligible" if i in few else over) for i, s in enumerate(sessions)]


class _GainTeller:
    """Tells what all workloads come to, once each has its default and whenever that changes."""

    def __init__(self, groups: Sequence[Sequence[Session]], weights: Sequence[float]) -> None:
        self._sessions, self._weights = [group[0] for group in groups], weights
        self._last: GainSoFar | None = None

    def __call__(self) -> None:
        if not all(session.ledger.tried_default for session in self._sessions):
            return
        known = [(s.ledger, w) for s, w in zip(self._sessions, self._weights, strict=True)]
        # What has no right default counts for nothing before and after.
        times = [
            (weight * trial_seconds(ledger.default), weight * ledger.best_s)
            for ledger, weight in known
            if ledger.default and isfinite(ledger.best_s)
        ]
        gain = GainSoFar(sum(before for before, _ in times), sum(after for _, after in times))
        if times and gain != self._last:
            self._sessions[0].options.progress(gain)
        self._last = gain
