"""Cost models as a report sees them: trained on some of the trials, and asked about others.

Points of knob spaces have a model of their knobs and dimensions, sketches one of their stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...machine.errors import InputError
from ...machine.target import as_target
from ..records.plain_text import read_program
from ..records.record import Record
from ..strategies.sketch import SketchSpace
from ..strategies.store_model import StoreModel
from ..strategies.strategy import Experience
from .cost_model import fit
from .experience import as_experiences

Numbers = np.ndarray[Any, np.dtype[np.float64]]


class Learner(Protocol):
    """A kind of cost model, with the trials that it can learn from."""

    @property
    def trials(self) -> Sequence[Experience]:
        """The trials, in the order by which they are chosen below."""
        ...

    def predict(self, seen: Sequence[int], unseen: Sequence[int]) -> Numbers:
        """Train a model on the trials of some numbers, and ask it about those of others."""
        ...

    def importance(self) -> Mapping[str, float]:
        """Return what each feature contributes to a model of all trials, as a share; the largest first."""
        ...

    def save(self, path: Path) -> None:
        """Train a model on all trials and write it to a file.

        Raises
        ------
        InputError
            The file cannot be written, or its name does not end as that of such a model.
        """
        ...


def learner_for(records: Sequence[Record], loss: str = "regression", seed: int = 0) -> Learner:
    """Return the kind of cost model that fits some records.

    Parameters
    ----------
    records : sequence of Record
        Trials of one operator, target and space, failed ones included.
    loss : str
        What the model learns: ``regression``, or of knobs ``rank``.
    seed : int
        Equal seeds and equal records give equal models.

    Raises
    ------
    InputError
        The records differ in operator, target or space, or have no such loss.
    """
    of = {(r.operator, r.target, r.space) for r in records}
    if len(of) > 1:
        raise InputError(
            f"a cost model is of one operator, target and space: these records are of {len(of)}; "
            "choose an operator and a space"
        )
    if any(record.knobs is not None for record in records):
        return KnobLearner(records, loss, seed)
    if loss != "regression":
        raise InputError(f"a cost model of sketches has no loss {loss!r}: it learns by regression")
    return SketchLearner(records)


class KnobLearner:
    """A model of knobs and dimensions: see `cost_model`."""

    def __init__(self, records: Sequence[Record], loss: str, seed: int) -> None:
        self.trials = [t for t in as_experiences(records) if t.knobs is not None]
        self._names = {name: getattr(records[0], name) for name in ("operator", "target", "space")}
        self._loss, self._seed = loss, seed

    def predict(self, seen: Sequence[int], unseen: Sequence[int]) -> Numbers:
        """See `Learner.predict`."""
        model, predicted = self._fit(seen), np.zeros(len(unseen))
        places = np.array([self.trials[i].workload_hash for i in unseen])
        for workload in np.unique(places):
            at = np.flatnonzero(places == workload).tolist()
            trials = [self.trials[unseen[i]] for i in at]
            predicted[at] = model.predict([t.knobs or {} for t in trials], trials[0].shape).mean(axis=0)
        return predicted

    def importance(self) -> Mapping[str, float]:
        """See `Learner.importance`."""
        return self._fit(range(len(self.trials))).importance()

    def save(self, path: Path) -> None:
        """See `Learner.save`."""
        self._fit(range(len(self.trials))).save(path)

    def _fit(self, chosen: Sequence[int]) -> Any:
        trials = [self.trials[i] for i in chosen]
        return fit(trials, **self._names, loss=self._loss, seed=self._seed)


class SketchLearner:
    """A model of stores: see `StoreModel`. Sketches that can no longer be made are left out."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._target = records[0].target
        # Of any function: a trace is replayed on its own.
        space = SketchSpace(read_program(records[0].workload_ir), as_target(self._target), seed=0)
        made = [(t, space.of_other(t.trace, t.workload_ir)) for t in as_experiences(records)]
        self._described = [(t, space.features(sketch)) for t, sketch in made if sketch is not None]
        self.trials = [trial for trial, _ in self._described]

    def predict(self, seen: Sequence[int], unseen: Sequence[int]) -> Numbers:
        """See `Learner.predict`."""
        return self._fit(seen).predict([self._described[i][1] for i in unseen])

    def importance(self) -> Mapping[str, float]:
        """See `Learner.importance`."""
        return self._fit(range(len(self.trials))).importance()

    def save(self, path: Path) -> None:
        """See `Learner.save`."""
        self._fit(range(len(self.trials))).save(path)

    def _fit(self, chosen: Sequence[int]) -> StoreModel:
        if not chosen:
            raise InputError("a cost model needs at least one trial: there is none; tune first")
        model = StoreModel(self._target)
        for trial, features in (self._described[i] for i in chosen):
            model.learn(trial.workload_hash, features, trial.share)
        return model
