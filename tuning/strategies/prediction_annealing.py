"""The best point by a model's predictions, found by annealing: for spaces too large to predict whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..learning.knob_features import Matrix
from .points import Points, Positions

_WALKS = 64
_STEPS = 40
# As a share of how far the first predictions spread.
_FIRST_TEMPERATURE = 1.0


def best_by_annealing(
    points: Points, predict: Callable[[Positions], Matrix], start: Positions, rng: np.random.Generator
) -> int:
    """Return the untried point with the highest prediction that walks through the space come across.

    Parameters
    ----------
    points : Points
        The space; at least one point is untried.
    predict : callable
        Gives the predictions of points by their numbers.
    start : array of int
        Points that some walks start from; the others start anywhere.
    rng : Generator
        Where chance comes from.
    """
    anywhere = rng.integers(0, len(points), max(0, _WALKS - len(start)))
    here = np.concatenate([start[:_WALKS], anywhere]).astype(np.int64)
    value = predict(here)
    spread = float(np.std(value)) or 1.0
    best, best_value = -1, -np.inf
    for step in range(_STEPS):
        untried = np.where(points.untried[here], value, -np.inf)
        if untried.max() > best_value:
            best, best_value = int(here[untried.argmax()]), float(untried.max())
        there = _neighbours(points, here, rng)
        found = predict(there)
        temperature = spread * _FIRST_TEMPERATURE * (1 - step / _STEPS) + 1e-9
        moves = np.log(rng.random(len(here)) + 1e-300) * temperature < found - value
        here, value = np.where(moves, there, here), np.where(moves, found, value)
    return best if best >= 0 else points.random_untried(rng)


def _neighbours(points: Points, here: Positions, rng: np.random.Generator) -> Positions:
    """Change one knob of each point to any of its values; where that is not legal, the point stays."""
    positions = points.positions[here].copy()
    knobs = rng.integers(0, len(points.sizes), len(here))
    positions[np.arange(len(here)), knobs] = rng.integers(0, np.array(points.sizes)[knobs])
    found = points.find(positions)
    return np.where(found >= 0, found, here)
