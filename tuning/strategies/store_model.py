"""The cost model of the sketch space: gradient-boosted trees on MetaSchedule's features of stores.

A program has a row of features for each store in it: operations, loops around, bytes touched and reused of
each buffer. The trees score a row; a program's score, the sum over its stores, predicts its throughput as a
share of the best of its workload. Shares, unlike seconds, compare between workloads: trials of one shape
teach about another.

A saved model is what it has learnt from, as plain arrays: trees are grown from it in milliseconds, and
loading it executes nothing.

References
----------
L. Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning", OSDI 2020 (features
of stores, their scores summed, errors weighted by the throughput).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ...machine.errors import InputError
from ...machine.files import bytes_written_aside
from .sketch import Features
from .store_features import FEATURE_NAMES

Scores = np.ndarray[Any, np.dtype[np.float64]]
"""A number for each program."""

MODEL_SUFFIX = ".npz"
"""How the names of files with a saved model end."""

_FORMAT = "tunesmith store model 1"
# The model ranks only when it has seen this many programs.
_LEAST_PROGRAMS = 16
# It is trained again when it has seen a fifth more.
_NEWS = 0.2
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
    """Predict the throughput of programs from the features of their stores.

    Parameters
    ----------
    target : str
        What the programs are compiled for, as records say it.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._groups: list[str] = []
        self._features: list[Features] = []
        self._throughput: list[float] = []
        self._booster: Any = None
        self._trained_on = 0

    def __len__(self) -> int:
        """Count the programs it has seen."""
        return len(self._features)

    @property
    def ready(self) -> bool:
        """Tell whether there is enough to learn from."""
        return len(self) >= _LEAST_PROGRAMS and any(self._throughput)

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

    def predict(self, programs: Sequence[Features]) -> Scores:
        """Return each program's predicted share of the best of its workload; it must be `ready`."""
        import xgboost

        self._train()
        rows = self._booster.predict(xgboost.DMatrix(np.concatenate(programs), nthread=1))
        return np.bincount(_owners(programs), weights=rows).astype(np.float64)

    def shares(self) -> Scores:
        """Return each seen program's throughput as a share of the best of its group."""
        groups, members = np.unique(self._groups, return_inverse=True)
        throughput = np.array(self._throughput)
        best = np.zeros(len(groups))
        np.maximum.at(best, members, throughput)
        return throughput / np.where(best == 0, 1, best)[members]

    def importance(self) -> dict[str, float]:
        """Return what each feature contributes to the fit, as a share of all; the largest first."""
        self._train()
        gains = self._booster.get_score(importance_type="total_gain")
        named = {FEATURE_NAMES[int(column[1:])]: float(gain) for column, gain in gains.items()}
        whole = sum(named.values()) or 1.0
        return {name: gain / whole for name, gain in sorted(named.items(), key=lambda item: -item[1])}

    def save(self, path: str | Path) -> None:
        """Write what the model has learnt from to a file, whole or not at all.

        Raises
        ------
        InputError
            The file cannot be written, or its name does not end as it must.
        """
        path = Path(path)
        if path.suffix != MODEL_SUFFIX:
            raise InputError(f"a cost model's file must end in {MODEL_SUFFIX}: {path}")
        with bytes_written_aside(path) as file:
            np.savez_compressed(
                file,
                format=np.array(_FORMAT),
                target=np.array(self.target),
                groups=np.array(self._groups, dtype=np.str_),
                stores=np.array([len(f) for f in self._features], dtype=np.int64),
                features=np.concatenate([*self._features, np.zeros((0, len(FEATURE_NAMES)))]),
                throughput=np.array(self._throughput),
            )

    def _train(self) -> None:
        if len(self) < self._trained_on + max(1, _NEWS * self._trained_on):
            return
        import xgboost

        owners = _owners(self._features)
        shares = self.shares()[owners]

        def gradient(rows: Any, _: Any) -> tuple[Any, Any]:
            errors = np.bincount(owners, weights=rows)[owners] - shares
            return errors * shares, shares

        data = xgboost.DMatrix(np.concatenate(self._features), nthread=1)
        self._booster = xgboost.train(_PARAMETERS, data, _ROUNDS, obj=gradient)
        self._trained_on = len(self)


def load(path: str | Path, target: str) -> StoreModel:
    """Read a model that `StoreModel.save` wrote.

    Raises
    ------
    InputError
        The file cannot be read, is something else, or was saved for another target.
    """
    advice = "give a file that was saved as one"
    try:
        # No pickle: nothing that came with the file is executed.
        with np.load(path, allow_pickle=False) as saved:
            content = {name: saved[name] for name in saved.files}
        if str(content["format"]) != _FORMAT:
            raise InputError(f"{path} is no cost model of this tunesmith ({_FORMAT!r}); {advice}")
        if str(content["target"]) != target:
            raise InputError(
                f"the cost model {path} was trained for the target {content['target']}, not for {target}; "
                "train one on records of it, or leave the model out"
            )
        return _model(content)
    except OSError as error:
        raise InputError(f"cannot read the cost model {path}: {error.strerror or error}") from error
    except (AttributeError, BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is no cost model, or damaged ({error}); {advice}") from error


def _model(content: dict[str, Any]) -> StoreModel:
    features, stores = content["features"].astype(np.float32), content["stores"]
    programs, throughput = len(stores), content["throughput"].astype(np.float64)
    if features.shape != (stores.sum(), len(FEATURE_NAMES)) or not np.isfinite(features).all():
        raise ValueError("its features are not those of stores")
    if len(throughput) != programs or len(content["groups"]) != programs or stores.min(initial=1) < 1:
        raise ValueError("its arrays are not of the same programs")
    if not (np.isfinite(throughput).all() and (throughput >= 0).all()):
        raise ValueError("its throughputs are not numbers from 0 on")
    model = StoreModel(str(content["target"]))
    split = np.split(features, np.cumsum(stores)[:-1]) if programs else []
    for group, rows, value in zip(content["groups"], split, throughput, strict=True):
        # Another name: what is measured from now on is in no common unit with what was saved.
        model.learn(f"saved {group}", rows, float(value))
    return model


def _owners(programs: Sequence[Features]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return for each row of the concatenated features which program it is of."""
    return np.repeat(np.arange(len(programs)), [len(p) for p in programs])
