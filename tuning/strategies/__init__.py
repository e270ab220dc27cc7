"""How the next candidates are chosen: one strategy a file, each with ``ask`` and ``tell``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...schedules.space import KnobSpace
from .annealing import Annealing
from .droplet import Droplet
from .evolutionary import COST_MODELS, Evolutionary
from .genetic import Genetic
from .optuna_samplers import SAMPLERS
from .ordered import grid, random
from .replay import replay_func, replay_trace
from .store_model import MODEL_SUFFIX
from .strategy import AHEAD, Experience, LearnsFromOthers, Strategy
from .xgb import XGB, xgb_rank

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
    "xgb": XGB,
    "xgb-rank": xgb_rank,
    **{name: _of_any_shape(make) for name, make in SAMPLERS.items()},
}
"""Strategies for knob spaces."""

SketchStrategy = Callable[[Any, Any, int, str | None], Strategy]
"""Makes a strategy from the PrimFunc, the target, a seed and the name of a cost model."""

SKETCH_STRATEGIES: dict[str, SketchStrategy] = {
    "evolutionary": Evolutionary,
    "replay-trace": replay_trace,
    "replay-func": replay_func,
}
"""Strategies for the sketch space."""

WITH_COST_MODEL = ("evolutionary",)
"""Those whose cost model one may choose."""

WITH_SAVED_MODEL = {"xgb": XGB, "xgb-rank": xgb_rank}
"""Those of knob spaces that may start from a saved cost model."""

STRATEGIES: dict[str, str] = {
    "grid": "knob spaces: every point, in the order of the knobs' values",
    "random": "knob spaces: points in a random order, none twice",
    "genetic": "knob spaces: children of the best trials so far",
    "annealing": "knob spaces: a walk that goes uphill the less the longer it lasts",
    "droplet": "knob spaces: coordinate descent from the default that moves only beyond the noise",
    "xgb": "knob spaces: gradient-boosted trees trained on the trials so far rank the rest",
    "xgb-rank": "knob spaces: the same, trained to predict the order instead of the throughput",
    "optuna-tpe": "knob spaces: Optuna's tree-structured Parzen estimator (needs the extra optuna)",
    "optuna-cmaes": "knob spaces: Optuna's CMA-ES (needs the extra optuna)",
    "optuna-gp": "knob spaces: Optuna's Gaussian process (needs the extra optuna, and torch)",
    "evolutionary": "sketch space: the fastest sketches are changed, a cost model picks among the changed",
    "replay-trace": "sketch space: MetaSchedule's designs with random decisions, none twice",
    "replay-func": "sketch space: the sketch rules run again for each candidate, none twice",
}
"""Every strategy, with a line for people."""

ALIASES: dict[str, str] = {
    "ga": "genetic",
    "gridsearch": "grid",
    "xgb_knob": "xgb",
    "xgb_rank": "xgb-rank",
    "xgb_rank_knob": "xgb-rank",
}
"""What AutoTVM's users call some of them."""

__all__ = [
    "AHEAD",
    "ALIASES",
    "COST_MODELS",
    "KNOB_STRATEGIES",
    "MODEL_SUFFIX",
    "SKETCH_STRATEGIES",
    "STRATEGIES",
    "WITH_COST_MODEL",
    "WITH_SAVED_MODEL",
    "Evolutionary",
    "Experience",
    "LearnsFromOthers",
    "Strategy",
]
