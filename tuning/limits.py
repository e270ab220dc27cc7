"""The limits of a tuning: what they must be, and which of them contradict each other."""

from __future__ import annotations

from collections.abc import Sequence

from ..machine.errors import InputError
from .measuring.arithmetic import seconds_of_trial
from .measuring.measurement import Timing

# A call of no length: what is left of a trial's time is what its settings demand.
_INSTANT_S = 1e-9


def check_limits(
    trials: int,
    workloads: int,
    weights: Sequence[float] | None,
    early_stopping: int | None,
    time_budget: float | None,
    roofline: float | None,
    timeout: float,
    timing: Timing,
    give_up_factor: float,
    least_share: float = 0.0,
) -> None:
    """Refuse limits that make no sense, alone or together; see `tune` for each.

    Raises
    ------
    InputError
        Names the limit, its value, and what it must be.
    """
    if workloads < 1:
        raise InputError("there is no workload to tune: give at least one")
    least = {
        "trials": (trials, 1),
        "early_stopping": (early_stopping, 1),
        "give_up_factor": (give_up_factor, 1),
    }
    for name, (value, limit) in least.items():
        if value is not None and not value >= limit:
            raise InputError(f"{name} must be at least {limit}: {name}={value}")
    for name, seconds in (("timeout", timeout), ("time_budget", time_budget)):
        if seconds is not None and not seconds > 0:
            raise InputError(f"{name} must be more than 0 seconds: {name}={seconds}")
    if roofline is not None and not 0 < roofline <= 1:
        raise InputError(f"roofline is a share, more than 0 and at most 1: roofline={roofline}")
    if not 0 <= least_share < 1:
        raise InputError(f"least_share is a share, at least 0 and less than 1: least_share={least_share}")
    if trials < workloads:
        raise InputError(
            f"trials={trials} cannot be shared by {workloads} workloads: give at least {workloads}"
        )
    if weights is not None and (len(weights) != workloads or not all(weight > 0 for weight in weights)):
        raise InputError(
            f"weights must be a number above 0 for each of {workloads} workloads: weights={weights}"
        )
    trial_s = seconds_of_trial(_INSTANT_S, timing)
    if trial_s > timeout:
        raise InputError(
            f"timing a candidate takes {trial_s:.3g} s at least, but timeout={timeout:g}: every trial would "
            "time out; raise timeout, or lower repeat, min_repeat_ms, budget_s or cooldown_ms"
        )
