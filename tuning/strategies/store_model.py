"""The cost model of the sketch space: gradient-boosted trees on MetaSchedule's features of stores.

A program has a row of features for each store in it: operations, loops around, bytes touched and reused of
each buffer. The trees score a row; a program's score, the sum over its stores, predicts its throughput as a
share of the best of its workload. Shares, unlike seconds, compare between workloads: trials of one shape
teach about another.

References
----------
L. Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning", OSDI 2020 (features
of stores, their scores summed, errors weighted by the throughput).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .sketch import Features

# The model ranks only when it has seen this many programs.
_LEAST_PROGRAMS = 16
# It is trained again when it has seen a tenth more.
_NEWS = 0.1
_ROUNDS = 50
_PARAMETERS = {
    "max_depth": 6,
    "eta": 0.2,
    "min_child_weight": 0,
    "gamma": 1e-3,
    "base_score": 0.0,
    "seed": 0,
    # More threads add in another order: the same seed would not give the same model.
    "nthread": 1,
    "verbosity": 0,
}


class StoreModel:
    """Predict the throughput of programs from the features of their stores."""

    def __init__(self) -> None:
        self._groups: list[str] = []
        self._features: list[Features] = []
        self._throughput: list[float] = []
        self._booster: Any = None
        self._trained_on = 0

    def learn(self, group: str, features: Features, throughput: float) -> None:
        """Add a program.

        Parameters
        ----------
        group : str
            Its workload: throughputs of one group compare.
        features : array
            A row for each store.
        throughput : float
            In any unit, the same within the group; 0 where it failed.
        """
        self._groups.append(group)
        self._features.append(features)
        self._throughput.append(throughput)

    @property
    def ready(self) -> bool:
        """Tell whether there is enough to learn from."""
        return len(self._features) >= _LEAST_PROGRAMS

    def predict(self, programs: Sequence[Features]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return each program's predicted share of the best of its workload; `ready` must be true."""
        import xgboost

        self._train()
        rows = self._booster.predict(xgboost.DMatrix(np.concatenate(programs)))
        return np.bincount(_owners(programs), weights=rows, minlength=len(programs))

    def _train(self) -> None:
        known = len(self._features)
        if known < self._trained_on + max(1, _NEWS * self._trained_on):
            return
        import xgboost

        shares, owners = self.shares()[:, None], _owners(self._features)
        weights = shares[owners, 0]

        def gradient(rows: Any, _: Any) -> tuple[Any, Any]:
            errors = np.bincount(owners, weights=rows)[owners] - weights
            return errors * weights, weights

        data = xgboost.DMatrix(np.concatenate(self._features))
        self._booster = xgboost.train(_PARAMETERS, data, _ROUNDS, obj=gradient)
        self._trained_on = known

    def shares(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return each program's throughput as a share of the best of its group."""
        groups, members = np.unique(self._groups, return_inverse=True)
        throughput = np.array(self._throughput)
        best = np.zeros(len(groups))
        np.maximum.at(best, members, throughput)
        return throughput / np.where(best == 0, 1, best)[members]


def _owners(programs: Sequence[Features]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return for each row of the concatenated features which program it is of."""
    return np.repeat(np.arange(len(programs)), [len(p) for p in programs])
