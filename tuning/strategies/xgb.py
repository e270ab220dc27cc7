"""The ``xgb`` strategy: a model of gradient-boosted trees, trained on the trials so far, ranks the rest.

The first trials are drawn at random. From then on an ensemble of models, each trained on a random part of the
trials, predicts the throughput of every point not yet tried; each model in turn proposes its best. Where
the models disagree, their proposals differ: that is what makes the search explore. A share of the proposals
is random all the same.

References
----------
T. Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018 (statistical cost model, epsilon-greedy).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ...schedules.space import KnobSpace
from ..candidate import Candidate, knob_candidate, knob_key, throughput
from ..record import Record

_FIRST_RANDOM = 12
_BATCH = 4
_MODELS = 4
_ROUNDS = 60
_RANDOM_SHARE = 0.05
_PARAMETERS = {
    "objective": "reg:squarederror",
    "max_depth": 4,
    "eta": 0.2,
    "min_child_weight": 1,
    "subsample": 0.8,
    "colsample_bytree": 0.5,
    # More threads add in another order: the same seed would not give the same model.
    "nthread": 1,
    "verbosity": 0,
}


class XGB:
    """Propose the points that a model of the trials so far thinks fastest.

    Parameters
    ----------
    space : KnobSpace
        The points to choose from.
    seed : int
        Equal seeds and equal measurements propose equal points.
    """

    batch = _BATCH

    def __init__(self, space: KnobSpace, seed: int) -> None:
        self._points = space.points
        self._index = {knob_key(point): i for i, point in enumerate(self._points)}
        self._features = knob_features(self._points)
        self._untried = np.ones(len(self._points), dtype=bool)
        self._tried: list[int] = []
        self._throughput: list[float] = []
        self._rng = np.random.default_rng(seed)

    def ask(self, count: int) -> list[Candidate]:
        """Propose points: at random at first, then by the models."""
        count = min(count, int(self._untried.sum()))
        rankings = self._rankings() if len(self._tried) >= _FIRST_RANDOM else []
        return [self._propose(rankings[i % len(rankings)] if rankings else None) for i in range(count)]

    def tell(self, candidate: Candidate, record: Record) -> None:
        """Add a trial to what the models learn from; one that failed has no throughput."""
        index = self._index.get(candidate.key)
        # A point that the space no longer has teaches nothing about those it has.
        if index is not None:
            self._untried[index] = False
            self._tried.append(index)
            self._throughput.append(throughput(record))

    def _propose(self, ranking: np.ndarray | None) -> Candidate:
        untried = np.flatnonzero(self._untried)
        if ranking is None or self._rng.random() < _RANDOM_SHARE:
            index = int(self._rng.choice(untried))
        else:
            index = int(untried[np.argmax(ranking[untried])])
        self._untried[index] = False
        return knob_candidate(self._points[index])

    def _rankings(self) -> list[np.ndarray]:
        """Predict every point's throughput, as a share of the best, by each model of the ensemble."""
        import xgboost

        labels = np.array(self._throughput)
        known = xgboost.DMatrix(self._features[self._tried], labels / (labels.max() or 1.0))
        every = xgboost.DMatrix(self._features)
        seeds = self._rng.integers(0, 2**31, _MODELS)
        return [
            xgboost.train({**_PARAMETERS, "seed": int(seed)}, known, _ROUNDS).predict(every) for seed in seeds
        ]


def knob_features(points: Sequence[dict[str, int]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return what the model sees of points: logarithms of the knobs, and of products and ratios of two.

    Tile sizes act by products (a tile's area, the registers it needs) and ratios (its aspect), which trees
    would have to approximate by many splits.
    """
    logs = np.log2(1.0 + np.array([list(p.values()) for p in points], dtype=np.float32))
    varying = logs[:, [i for i in range(logs.shape[1]) if np.ptp(logs[:, i]) > 0]]
    pairs = list(combinations(range(varying.shape[1]), 2))
    columns = [varying]
    columns += [varying[:, [a]] + varying[:, [b]] for a, b in pairs]
    columns += [varying[:, [a]] - varying[:, [b]] for a, b in pairs]
    return np.concatenate(columns, axis=1) if varying.shape[1] else np.zeros((len(points), 1), np.float32)
