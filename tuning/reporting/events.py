"""Events: what a tuning tells while it runs, whoever listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...kernels.operator import Workload
from ..records.record import Record, Status


@dataclass(frozen=True)
class Started:
    """A workload's tuning begins.

    Parameters
    ----------
    workload : Workload
        What is tuned.
    space, strategy : str
        Where candidates come from and how they are chosen.
    points : int or None
        Legal points of the space, where they can be counted.
    trials, resumed : int
        Trials wanted in all, of all workloads of the call together, and how many of this workload the
        database holds already.
    workload_number, workloads : int
        Which of how many workloads of the call it is, counted from 1.
    """

    workload: Workload
    space: str
    strategy: str
    points: int | None
    trials: int
    resumed: int
    workload_number: int = 1
    workloads: int = 1


@dataclass(frozen=True)
class Learned:
    """A workload's strategy has learned from others, and asks for its first candidate.

    Parameters
    ----------
    workload : Workload
        What is tuned.
    records : int
        How many records of other workloads there are.
    """

    workload: Workload
    records: int


@dataclass(frozen=True)
class TrialEnded:
    """One trial ended and is in the database.

    Parameters
    ----------
    number, trials : int
        Which trial of the call it was, and how many are wanted; earlier sessions' count.
    record : Record
        Its outcome.
    best_s : float or None
        Seconds of the fastest right trial so far.
    gflops : float or None
        10^9 operations a second; None where there is no time.
    roofline_fraction : float or None
        The least time that the machine's peaks allow, divided by the time.
    elapsed_s, eta_s : float
        Seconds since the call began, and until its end, see `pace.Pace`.
    """

    number: int
    trials: int
    record: Record
    best_s: float | None
    gflops: float | None
    roofline_fraction: float | None
    elapsed_s: float
    eta_s: float


@dataclass(frozen=True)
class TuneResult:
    """What the tuning of a workload came to: the last event, and what `tune` returns.

    Parameters
    ----------
    workload : Workload
        What was tuned.
    best : Record or None
        The record that `Database.best` returns from now on.
    default : Record or None
        The default schedule's record.
    counts : mapping
        How many trials of this session ended in which status.
    trials : int
        Trials of the spaces searched that the database holds.
    stopped_by : str
        ``trials``, ``exhausted``, ``early_stopping``, ``time_budget``, ``roofline``, ``dead_end``,
        ``negligible`` or ``interrupted``.
    seconds : mapping
        Where the time went: search, build, run, verify, confirm, other.
    """

    workload: Workload
    best: Record | None
    default: Record | None
    counts: dict[Status, int]
    trials: int
    stopped_by: str
    seconds: dict[str, float]


@dataclass(frozen=True)
class GainSoFar:
    """What all workloads of a call come to, each with its weight, by the times that its trials had.

    Parameters
    ----------
    default_s, best_s : float
        Seconds with the default schedules, and with the best so far.
    """

    default_s: float
    best_s: float


Event = Started | Learned | TrialEnded | GainSoFar | TuneResult
Progress = Callable[[Event], None]


def quiet(event: Event) -> None:
    """Report nothing."""
