"""The ``xgb`` and ``xgb-rank`` strategies: gradient-boosted trees rank the points not yet tried.

The first trials are, in turns, points around the space's default, which follows from the machine's facts and
is seldom far from the best, and points drawn at random. From then on several models, each trained on random
parts of the trials and features, predict the throughput of every point not yet tried, and each in turn
proposes its best. Where they disagree, their proposals differ: that is what makes the search explore. In a
space too large to predict every point, a model's best is found by simulated annealing on its predictions.

Where trials of other workloads are known, or a saved model, what they predict ranks the first candidates; the
trials of this workload correct it, and every other proposal then comes from a model of these alone.

References
----------
T. Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018 (rank loss, annealing on predictions,
transfer).
O. Chapelle, L. Li, "An Empirical Evaluation of Thompson Sampling", NeurIPS 2011 (proposals from models drawn
at random).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...machine.errors import InputError
from ...schedules.space import KnobSpace
from ..learning.cost_model import CostModel, fit, train
from ..learning.knob_features import KnobFeatures, Matrix, dimensions, open_knobs
from ..records.candidate import Candidate, throughput
from ..records.record import Record
from .points import Points, Positions
from .prediction_annealing import best_by_annealing
from .strategy import Experience

_FIRST = 8
_BATCH = 4
# Few rounds and large steps: a question takes tens of milliseconds, and more did not find the best sooner.
_ROUNDS = 30
_ETA = 0.3
# Predicting more than this many points takes longer than annealing among them.
_MOST_PREDICTED = 50_000

Predict = Callable[[Positions | None], Matrix]
"""Gives the predictions of points by their numbers, of all points for None."""


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
    model : CostModel or None
        A model to start from, of this operator, target and space, trained with the same loss.
    loss : str
        What the models learn: ``regression`` (the throughput) or ``rank`` (the order).

    Raises
    ------
    InputError
        The model is of another space or loss.
    """

    batch = _BATCH

    def __init__(
        self,
        space: KnobSpace,
        seed: int,
        shape: Mapping[str, int | str],
        model: CostModel | None = None,
        loss: str = "regression",
    ) -> None:
        self._space, self._shape, self._loss, self._seed = space, shape, loss, seed
        self._points = Points(space)
        # Dimensions of the same length say the same.
        dims = {shape[name]: name for name in dimensions([shape])}
        self._features = KnobFeatures(open_knobs(space.points), tuple(dims.values()))
        few = len(self._points) <= _MOST_PREDICTED
        self._whole = self._data(range(len(self._points))) if few else None
        self._tried: list[int] = []
        self._throughput: list[float] = []
        self._rng = np.random.default_rng(seed)
        self._models: list[CostModel] = []
        self._prior: Matrix | None = None
        if model is not None:
            self._start_from(model)

    def learn_from(self, others: Sequence[Experience]) -> None:
        """Rank the first candidates by a model of trials of other workloads, beside the one given."""
        names = {k.name for k in self._space.knobs}
        fitting = [t for t in others if t.knobs is not None and set(t.knobs) == names]
        if fitting:
            self._start_from(fit(fitting, loss=self._loss, seed=self._seed))

    def ask(self, count: int) -> list[Candidate]:
        """Propose points: near the default and at random at first, then by the models."""
        return [self._propose() for _ in range(min(count, self._points.left))]

    def tell(self, candidate: Candidate, record: Record) -> None:
        """Add a trial to what the models learn from; one that failed has no throughput."""
        index = self._points.told(candidate)
        # A point that the space no longer has teaches nothing about those it has.
        if index is not None:
            self._tried.append(index)
            self._throughput.append(throughput(record))

    def _start_from(self, model: CostModel) -> None:
        unknown = set(model.features.knobs) - {k.name for k in self._space.knobs}
        unknown |= set(model.features.dims) - set(self._shape)
        if unknown or model.origin.loss != self._loss:
            what = f"knows {', '.join(sorted(unknown))}" if unknown else f"has the loss {model.origin.loss!r}"
            raise InputError(f"the cost model {what}, which this search has not; train one on records of it")
        self._models.append(model)
        if self._whole is not None:
            every = [m.predict(self._space.points, self._shape) for m in self._models]
            self._prior = np.concatenate(every)

    def _propose(self) -> Candidate:
        ready = len(self._tried) >= _FIRST and any(self._throughput)
        if not self._models and not ready:
            return self._points.take(self._opening())
        predict = self._predictor()
        if self._whole is not None:
            untried = np.flatnonzero(self._points.untried)
            index = int(untried[np.argmax(predict(None)[untried])])
        else:
            fastest = np.argsort(self._throughput)[::-1]
            start = np.array(self._tried, dtype=np.int64)[fastest]
            index = best_by_annealing(self._points, predict, start, self._rng)
        return self._points.take(index)

    def _opening(self) -> int:
        """Return the next of the points with which a search begins that knows nothing."""
        default = self._points.index(self._space.default)
        if default is None or (len(self._points) - self._points.left) % 2:
            return self._points.random_untried(self._rng)
        return self._points.nearest_untried(self._points.positions[default])

    def _predictor(self) -> Predict:
        """Train a model; return what gives its predictions of points, of all for None."""
        turn, alone = divmod(len(self._points) - self._points.left, 2)
        # Other shapes may be misleading: once there is enough to learn from, every other model does without.
        misled = alone and len(self._tried) >= _FIRST and any(self._throughput)
        prior = partial(self._prior_of, turn) if self._models and not misled else None
        if not any(self._throughput):
            assert prior is not None
            return prior
        known = self._data(self._tried)
        labels = np.array(self._throughput)
        known.set_label(labels / labels.max())
        if prior is not None:
            known.set_base_margin(prior(np.array(self._tried)))
        if self._loss == "rank":
            known.set_group([len(labels)])
        booster = train(known, _ROUNDS, int(self._rng.integers(2**31)), self._loss, _ETA)

        def predict(at: Positions | None) -> Matrix:
            data: Any = self._whole if at is None else self._data(at)
            if prior is not None:
                data.set_base_margin(prior(at))
            predicted: Matrix = booster.predict(data)
            return predicted

        return predict

    def _prior_of(self, turn: int, at: Positions | None) -> Matrix:
        """Return what the member whose turn it is predicts, of the models to start from."""
        if self._prior is not None:
            member: Matrix = self._prior[turn % len(self._prior)]
            return member if at is None else member[at]
        assert at is not None
        members = [(model, i) for model in self._models for i, _ in enumerate(model.members)]
        model, i = members[turn % len(members)]
        return model.predict([self._space.points[j] for j in at], self._shape, only=i)[0]

    def _data(self, at: Iterable[int]) -> Any:
        import xgboost

        points = [self._space.points[i] for i in at]
        return xgboost.DMatrix(self._features.of(points, self._shape), nthread=1)


def xgb_rank(
    space: KnobSpace, seed: int, shape: Mapping[str, int | str], model: CostModel | None = None
) -> XGB:
    """Make the strategy whose models predict the order instead of the throughput."""
    return XGB(space, seed, shape, model, loss="rank")
