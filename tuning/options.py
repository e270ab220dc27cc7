"""What a tuning was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .measuring.measurement import Timing
from .reporting.events import Progress
from .reporting.pace import Pace
from .running.device import Device


@dataclass(frozen=True)
class Options:
    """What a tuning was asked for; see `tune`. ``number`` of ``of``: which of the call's workloads it is."""

    target: Any
    device: Device
    strategy: str
    cost_model: str | None
    seed: int
    early_stopping: int | None
    roofline: float | None
    deadline: float
    timing: Timing
    give_up_factor: float
    transfer: bool
    progress: Progress
    pace: Pace
    number: int
    of: int
