"""How the next candidates are chosen: one strategy a file, each with ``ask`` and ``tell``."""

from __future__ import annotations

from collections.abc import Callable

from ...schedules.space import KnobSpace
from .evolutionary import COST_MODELS, Evolutionary
from .ordered import grid, random
from .strategy import Strategy
from .xgb import XGB

KNOB_STRATEGIES: dict[str, Callable[[KnobSpace, int], Strategy]] = {
    "grid": grid,
    "random": random,
    "xgb": XGB,
}
"""Strategies for knob spaces, made from the space and a seed."""

SKETCH_STRATEGIES: dict[str, type[Evolutionary]] = {"evolutionary": Evolutionary}
"""Strategies for the sketch space."""

STRATEGIES: dict[str, str] = {
    "grid": "knob spaces: every point, in the order of the knobs' values",
    "random": "knob spaces: points in a random order, none twice",
    "xgb": "knob spaces: gradient-boosted trees trained on the trials so far rank the rest",
    "evolutionary": "sketch space: MetaSchedule's evolutionary search with its cost model",
}
"""Every strategy, with a line for people."""

__all__ = ["COST_MODELS", "KNOB_STRATEGIES", "SKETCH_STRATEGIES", "STRATEGIES", "Evolutionary", "Strategy"]
