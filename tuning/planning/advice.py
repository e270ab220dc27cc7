"""Advice: options of a tuning that cannot have the effect that was meant, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..measuring.arithmetic import seconds_of_trial
from ..measuring.measurement import Timing

if TYPE_CHECKING:
    from .plan import WorkloadPlan


@dataclass(frozen=True)
class Asked:
    """What was asked for; see `tune`."""

    trials: int | None
    early_stopping: int | None
    time_budget: float | None
    timeout: float
    timing: Timing
    seed: int
    weights: Sequence[float] | None


def advice(asked: Asked, plans: Sequence[WorkloadPlan], trials: int) -> list[str]:
    """Say which options cannot have an effect, or not the one that they seem to have.

    Parameters
    ----------
    asked : Asked
        The options.
    plans : sequence of WorkloadPlan
        What they lead to.
    trials : int
        New trials in all.
    """
    found = [*_about_trials(asked, plans, trials), *_about_timing(asked.timing)]
    for plan in plans:
        whose = f"{plan.workload.label}: " if len(plans) > 1 else ""
        found += [f"{whose}{line}" for line in _about_one(asked, plan)]
    return found


def _about_trials(asked: Asked, plans: Sequence[WorkloadPlan], trials: int) -> Iterator[str]:
    if trials == 0:
        yield "all trials are in the database: nothing will be measured; raise trials to go on"
    elif asked.early_stopping is not None and asked.early_stopping >= trials:
        yield f"early_stopping={asked.early_stopping} cannot have an effect: {trials} trials follow at most"
    points = [plan.points for plan in plans]
    known = sum(count for count in points if count is not None)
    if asked.trials is not None and None not in points and asked.trials > known:
        has = "the space has" if len(plans) == 1 else "the spaces have"
        yield f"trials={asked.trials} is more than {has} points: {known}"
    if asked.seed and all(plan.strategy == "grid" for plan in plans):
        yield f"seed={asked.seed} cannot have an effect: grid leaves nothing to chance"
    if asked.weights is not None and len(plans) == 1:
        yield "weights cannot have an effect: there is one workload"


def _about_timing(timing: Timing) -> Iterator[str]:
    usual = Timing()
    set_by_hand = (timing.noise, timing.budget_s) != (usual.noise, usual.budget_s)
    repetitions_s = timing.repeat * timing.min_repeat_ms / 1000
    if set_by_hand and timing.repeat > 1 and repetitions_s >= timing.budget_s:
        yield (
            f"noise={timing.noise:g} cannot have an effect: repeat={timing.repeat} times "
            f"min_repeat_ms={timing.min_repeat_ms:g} use up budget_s={timing.budget_s:g}"
        )


def _about_calls(asked: Asked, call_s: float, flush_s: float) -> Iterator[str]:
    timing, whole_s = asked.timing, call_s + flush_s
    length = f"{whole_s * 1000:.3g} ms" + (", caches emptied before" if flush_s else "")
    if 0 < timing.number < timing.calls(whole_s):
        yield (
            f"number={timing.number} is overruled: min_repeat_ms={timing.min_repeat_ms:g} takes "
            f"{timing.calls(whole_s)} calls of {length}; min_repeat_ms=0 keeps number"
        )
    seconds = seconds_of_trial(call_s, timing, flush_s)
    if seconds > asked.timeout:
        yield (
            f"timing takes {seconds:.2g} s at calls of {length}, but timeout={asked.timeout:g}: "
            "most trials will time out; raise timeout or lower number"
        )


def _about_one(asked: Asked, plan: WorkloadPlan) -> Iterator[str]:
    call_s, trial_s = plan.estimate.call_s, plan.estimate.trial_s
    if call_s is not None:
        yield from _about_calls(asked, call_s, plan.estimate.flush_s)
    if trial_s is not None and asked.time_budget is not None and asked.time_budget < trial_s:
        yield (
            f"time_budget={asked.time_budget:g} is less than a trial takes, about {trial_s:.2g} s: "
            "the default schedule is measured and little else"
        )
