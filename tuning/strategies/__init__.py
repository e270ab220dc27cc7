"""How the next candidates are chosen: one strategy a file, each with ``ask`` and ``tell``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...schedules.space import KnobSpace
from .annealing import Annealing
from .droplet import Droplet
from .evolutionary import COST_MODELS, Evolutionary
from .genetic import Genetic
from .ordered import grid, random
from .strategy import AHEAD, Experience, LearnsFromOthers, Strategy
from .xgb import XGB

KnobStrategy = Callable[[KnobSpace, int, Mapping[str, int | str]], Strategy]
"""Makes a strategy from the space, a seed and the workload's shape."""


def _of_any_shape(make: Callable[[KnobSpace, int], Strategy]) -> KnobStrategy:
    return lambda space, seed, shape: make(space, seed)


KNOB_STRATEGIES: dict[str, KnobStrategy] = {
    "grid": _of_any_shape(grid),
    "random": _of_any_shape(random),
    "genetic": _of_any_shape(Genetic),
    "annealing": _of_any_shape(Annealing),
    "droplet": _of_any_shape(Droplet),
    "xgb": _of_any_shape(XGB),
}
"""Strategies for knob spaces."""

SKETCH_STRATEGIES: dict[str, type[Evolutionary]] = {"evolutionary": Evolutionary}
"""Strategies for the sketch space."""

STRATEGIES: dict[str, str] = {
    "grid": "knob spaces: every point, in the order of the knobs' values",
    "random": "knob spaces: points in a random order, none twice",
    "genetic": "knob spaces: children of the best trials so far",
    "annealing": "knob spaces: a walk that goes uphill the less the longer it lasts",
    "droplet": "knob spaces: coordinate descent from the default that moves only beyond the noise",
    "xgb": "knob spaces: gradient-boosted trees trained on the trials so far rank the rest",
    "evolutionary": "sketch space: MetaSchedule's evolutionary search with its cost model",
}
"""Every strategy, with a line for people."""

ALIASES: dict[str, str] = {"ga": "genetic", "gridsearch": "grid", "sa": "annealing"}
"""What AutoTVM's users call some of them."""

__all__ = [
    "AHEAD",
    "ALIASES",
    "COST_MODELS",
    "KNOB_STRATEGIES",
    "SKETCH_STRATEGIES",
    "STRATEGIES",
    "Evolutionary",
    "Experience",
    "LearnsFromOthers",
    "Strategy",
]
