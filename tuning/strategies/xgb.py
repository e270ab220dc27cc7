"""The ``xgb`` strategies: gradient-boosted trees, trained on the trials so far, rank the rest.

The first trials are drawn at random. From then on an ensemble of models, each trained on a random part of the
trials, predicts the throughput of every point not yet tried; each model in turn proposes its best. Where
the models disagree, their proposals differ: that is what makes the search explore. A share of the proposals
is random all the same. In a space too large to rank, each model's best is found by simulated annealing on
its predictions.

Where trials of other workloads are known, or a saved model, what they predict ranks the first candidates, and
the trials of this workload only correct it.

References
----------
T. Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018 (statistical cost model, epsilon-greedy,
annealing on predictions, transfer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...schedules.space import KnobSpace
from ..candidate import Candidate, throughput
from ..cost_model import CostModel, fit, train
from ..knob_features import KnobFeatures, Matrix, dimensions, open_knobs
from ..record import Record
from .points import Points
from .strategy import Experience

_FIRST_RANDOM = 8
_BATCH = 4
_MODELS = 4
_ROUNDS = 30
_ETA = 0.3
_RANDOM_SHARE = 0.05


class XGB:
    """Propose the points that models of the trials so far think fastest.

    Parameters
    ----------
    space : KnobSpace
        The points to choose from.
    seed : int
        Equal seeds and equal measurements propose equal points.
    shape : mapping
        The workload's dimensions.
    loss : str
        What the models learn: ``regression`` (the throughput) or ``rank`` (the order).
    model : CostModel or None
        A model to start from, of other workloads of this operator, target and space.
    """

    batch = _BATCH

    def __init__(
        self,
        space: KnobSpace,
        seed: int,
        shape: Mapping[str, int | str],
        loss: str = "regression",
        model: CostModel | None = None,
    ) -> None:
        import xgboost

        self._space, self._shape, self._loss, self._seed = space, shape, loss, seed
        self._points = Points(space)
        features = KnobFeatures(open_knobs(space.points), dimensions([shape]) if shape else ())
        # Dimensions of the same length say the same.
        self._features = np.unique(features.of(space.points, shape), axis=1)
        self._every = xgboost.DMatrix(self._features, nthread=1)
        self._prior = None if model is None else model.predict(space.points, shape)
        self._tried: list[int] = []
        self._throughput: list[float] = []
        self._rng = np.random.default_rng(seed)

    def learn_from(self, others: Sequence[Experience]) -> None:
        """Rank the first candidates by a model of trials of other workloads."""
        names = {k.name for k in self._space.knobs}
        fitting = [t for t in others if t.knobs is not None and set(t.knobs) == names]
        if fitting:
            model = fit(fitting, loss=self._loss, seed=self._seed)
            self._prior = model.predict(self._space.points, self._shape)

    def ask(self, count: int) -> list[Candidate]:
        """Propose points: at random at first, then by the models."""
        count = min(count, self._points.left)
        rankings = self._rankings(min(count, _MODELS))
        return [self._propose(rankings[i % len(rankings)] if rankings else None) for i in range(count)]

    def tell(self, candidate: Candidate, record: Record) -> None:
        """Add a trial to what the models learn from; one that failed has no throughput."""
        index = self._points.told(candidate)
        # A point that the space no longer has teaches nothing about those it has.
        if index is not None:
            self._tried.append(index)
            self._throughput.append(throughput(record))

    def _propose(self, ranking: Matrix | None) -> Candidate:
        if ranking is None or self._rng.random() < _RANDOM_SHARE:
            return self._points.take(self._points.random_untried(self._rng))
        untried = np.flatnonzero(self._points.untried)
        return self._points.take(int(untried[np.argmax(ranking[untried])]))

    def _rankings(self, count: int) -> list[Matrix]:
        """Predict every point's throughput, as a share of the best, by each of ``count`` models."""
        if self._prior is None and len(self._tried) < _FIRST_RANDOM:
            return []
        first = int(self._rng.integers(_MODELS))
        seeds = [int(s) for s in self._rng.integers(0, 2**31, count)]
        priors = [
            None if self._prior is None else self._prior[(first + i) % len(self._prior)] for i in range(count)
        ]
        if not any(self._throughput):
            return [p for p in priors if p is not None]
        return [self._ranking(seed, prior) for seed, prior in zip(seeds, priors, strict=True)]

    def _ranking(self, seed: int, prior: Matrix | None) -> Matrix:
        import xgboost

        labels = np.array(self._throughput)
        known = xgboost.DMatrix(self._features[self._tried], labels / labels.max(), nthread=1)
        if prior is not None:
            known.set_base_margin(prior[self._tried])
            self._every.set_base_margin(prior)
        if self._loss == "rank":
            known.set_group([len(labels)])
        return train(known, _ROUNDS, seed, self._loss, _ETA).predict(self._every)
