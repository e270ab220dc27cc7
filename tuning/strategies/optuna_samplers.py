"""The ``optuna-...`` strategies: samplers of Optuna, asked and told.

A sampler sees each open knob as the rank of its value. What it proposes may break a constraint or be a point
that was tried: then the nearest untried legal point is tried for it, and that one's time is what it is told.

References
----------
T. Akiba et al., "Optuna: A Next-generation Hyperparameter Optimization Framework", KDD 2019.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from math import log
from typing import Any

import numpy as np

from ...machine.errors import InputError
from ...schedules.space import KnobSpace
from ..records.candidate import Candidate, throughput
from ..records.record import Record
from .points import Points

_BATCH = 4
_INSTALL = "pip install 'tunesmith[optuna]'"
# What a sampler imports only when it is first used.
_NEEDED = {"CmaEsSampler": "cmaes", "GPSampler": "torch"}


class OptunaSampler:
    """Propose what a sampler of Optuna proposes.

    Parameters
    ----------
    sampler : str
        The class in ``optuna.samplers``.
    space : KnobSpace
        The points to choose from.
    seed : int
        Equal seeds and equal measurements propose equal points.

    Raises
    ------
    InputError
        Optuna, or what the sampler needs besides, is not installed.
    """

    batch = _BATCH

    def __init__(self, sampler: str, space: KnobSpace, seed: int) -> None:
        optuna = _imported("optuna")
        if sampler in _NEEDED:
            _imported(_NEEDED[sampler])
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._points = Points(space)
        self._names = [knob.name for knob in space.knobs]
        self._open = {
            name: optuna.distributions.IntDistribution(0, size - 1)
            for name, size in zip(self._names, self._points.sizes, strict=True)
            if size > 1
        }
        with _quiet():
            made = getattr(optuna.samplers, sampler)(seed=seed % 2**32)
            self._study = optuna.create_study(sampler=made)
        self._create_trial = optuna.trial.create_trial
        self._failed = optuna.trial.TrialState.FAIL
        self._asked: dict[str, Any] = {}

    def ask(self, count: int) -> list[Candidate]:
        """Propose points."""
        return [self._next() for _ in range(min(count, self._points.left))]

    def tell(self, candidate: Candidate, record: Record) -> None:
        """Tell the sampler the logarithm of a time; a trial that failed has none."""
        index = self._points.told(candidate)
        trial = self._asked.pop(candidate.key, None)
        speed = throughput(record)
        with _quiet():
            if trial is not None:
                self._study.tell(trial, -log(speed)) if speed else self._study.tell(trial, state=self._failed)
            elif index is not None and speed:
                self._study.add_trial(self._known(index, -log(speed)))

    def _next(self) -> Candidate:
        with _quiet():
            trial = self._study.ask(self._open)
        position = np.array([trial.params.get(name, 0) for name in self._names])
        index = int(self._points.find(position))
        if index < 0 or not self._points.untried[index]:
            index = self._points.nearest_untried(position)
        candidate = self._points.take(index)
        self._asked[candidate.key] = trial
        return candidate

    def _known(self, index: int, value: float) -> Any:
        ranks = dict(zip(self._names, map(int, self._points.positions[index]), strict=True))
        params = {name: ranks[name] for name in self._open}
        return self._create_trial(params=params, distributions=self._open, value=value)


def _imported(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise InputError(f"this strategy needs {package}, which is not installed: {_INSTALL}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna's warnings (of experimental features) from people who chose nothing experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


SAMPLERS: dict[str, Callable[[KnobSpace, int], OptunaSampler]] = {
    "optuna-tpe": partial(OptunaSampler, "TPESampler"),
    "optuna-cmaes": partial(OptunaSampler, "CmaEsSampler"),
    "optuna-gp": partial(OptunaSampler, "GPSampler"),
}
"""The samplers offered, by strategy name."""
