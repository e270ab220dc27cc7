"""How good a cost model is on the records at hand: predicted against measured, without its own trials.

Each trial is predicted by a model that has not seen it (cross-validation), and each workload by one that has
seen the other workloads only. Chance, as the control, is held to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...machine.errors import InputError
from ..records.record import Record
from .learner import Learner, Numbers, learner_for

_FOLDS = 5
# Fewer trials leave too little to learn from in each fold.
_LEAST_TRIALS = 2 * _FOLDS
RECALL_AT = (1, 8, 32)
"""Of how many of the best points `ModelReport.recall` says which share was found."""

Indices = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]


@dataclass(frozen=True)
class Prediction:
    """A trial, predicted by a model that has not seen it.

    Parameters
    ----------
    record_id : str
        The trial's record.
    shape, knobs : mapping
        What was measured; a sketch has no knobs.
    measured, predicted : float
        Throughput as a share of the best of its workload; with loss ``rank`` the prediction is a score.
    """

    record_id: str
    shape: Mapping[str, int | str]
    knobs: Mapping[str, int]
    measured: float
    predicted: float


@dataclass(frozen=True)
class ModelReport:
    """What a cost model is worth on one operator, target and space.

    Parameters
    ----------
    operator, target, space, loss : str
        What was learnt, and how.
    trials, workloads : int
        From how many.
    rank_correlation : float
        Spearman's, of predicted and measured within each workload, averaged over the trials: 1 is the right
        order, 0 is chance.
    transfer_correlation : float or None
        The same where the model has seen the other workloads only; None with a single workload.
    random_correlation : float
        The same of chance.
    recall : mapping
        For each k of `RECALL_AT`: of the k fastest trials of a workload, the share among the k that were
        predicted fastest. A k that is half of a workload's trials or more is left out.
    importance : mapping
        What each feature contributes to a model of all trials, as a share; the largest first.
    predictions : tuple of Prediction
        Predicted against measured, the best predicted first.
    """

    operator: str
    target: str
    space: str
    loss: str
    trials: int
    workloads: int
    rank_correlation: float
    transfer_correlation: float | None
    random_correlation: float
    recall: Mapping[int, float]
    importance: Mapping[str, float]
    predictions: tuple[Prediction, ...]


def report(records: Sequence[Record], loss: str = "regression", seed: int = 0) -> ModelReport:
    """Judge a cost model on the records of one operator, target and space, of knobs or of sketches.

    Parameters
    ----------
    records : sequence of Record
        The trials, failed ones included.
    loss : str
        What the model learns: ``regression``, or of knobs ``rank``.
    seed : int
        Equal seeds and equal records give equal reports.

    Raises
    ------
    InputError
        The records differ in operator, target or space, are too few, or have no such loss.
    """
    learner = learner_for(records, loss, seed)
    trials = learner.trials
    if len(trials) < _LEAST_TRIALS:
        raise InputError(
            f"a report on a cost model needs at least {_LEAST_TRIALS} trials in workloads with two "
            f"right ones: there are {len(trials)}; tune more"
        )
    rng = np.random.default_rng(seed)
    workloads = np.unique([t.workload_hash for t in trials], return_inverse=True)[1]
    measured = np.array([t.share for t in trials])

    def correlation(predicted: Numbers) -> float:
        return _by_workload(workloads, lambda at: _spearman(predicted[at], measured[at]))

    folds = rng.permutation(len(trials)) % _FOLDS
    predicted = _unseen(learner, folds)
    several = int(workloads.max()) > 0
    return ModelReport(
        operator=records[0].operator,
        target=records[0].target,
        space=records[0].space,
        loss=loss,
        trials=len(trials),
        workloads=int(workloads.max()) + 1,
        rank_correlation=correlation(predicted),
        transfer_correlation=correlation(_unseen(learner, workloads)) if several else None,
        random_correlation=correlation(rng.random(len(trials))),
        recall=_recall(workloads, predicted, measured),
        importance=learner.importance(),
        predictions=tuple(
            Prediction(t.record_id, t.shape, t.knobs or {}, t.share, float(predicted[i]))
            for i, t in sorted(enumerate(trials), key=lambda it: -predicted[it[0]])
        ),
    )


def _unseen(learner: Learner, folds: Indices) -> Numbers:
    """Predict each trial by a model of the trials in the other folds."""
    predicted = np.zeros(len(folds))
    for fold in np.unique(folds):
        unseen = np.flatnonzero(folds == fold)
        predicted[unseen] = learner.predict(np.flatnonzero(folds != fold).tolist(), unseen.tolist())
    return predicted


def _by_workload(workloads: Indices, judge: Callable[[Indices], float]) -> float:
    """Average a figure over workloads, each with the weight of its trials."""
    groups = [np.flatnonzero(workloads == w) for w in np.unique(workloads)]
    return float(np.average([judge(at) for at in groups], weights=[len(at) for at in groups]))


def _spearman(predicted: Numbers, measured: Numbers) -> float:
    """Correlate ranks; 0 where one side is all the same."""
    from scipy.stats import rankdata

    ranks = rankdata(predicted), rankdata(measured)
    if min(np.ptp(r) for r in ranks) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def _recall(workloads: Indices, predicted: Numbers, measured: Numbers) -> dict[int, float]:
    smallest = int(np.unique(workloads, return_counts=True)[1].min())

    def found(k: int, at: Indices) -> float:
        fastest, chosen = (set(at[np.argsort(-v[at], kind="stable")[:k]]) for v in (measured, predicted))
        return len(fastest & chosen) / k

    return {k: _by_workload(workloads, partial(found, k)) for k in RECALL_AT if 2 * k < smallest}
