"""The ``evolutionary`` strategy: the fastest sketches are changed, and a model picks among the changed.

The first sketches are drawn at random, and proposed are those whose code is short and wide. From then on each
question makes some more, most of them by changing one decision of a sketch that was measured as fast, the
others at random, and proposes those that the model thinks fastest of all made so far. A share of the
proposals is random all the same. A sketch that would take as long to compile as several others is set aside
until there is nothing else.

MetaSchedule's own search scores generations of hundreds before every batch; with the few that are made here
a question costs less than building what it proposes, and the model is asked as soon as it has learnt more.

References
----------
L. Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning", OSDI 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from ...kernels.operator import func_hash
from ...machine.target import target_text
from ..records.candidate import Candidate, throughput
from ..records.record import Record
from .sketch import Sketch, SketchSpace
from .store_model import StoreModel, load
from .strategy import Experience

COST_MODELS = ("xgb", "random")
"""What ranks the sketches: gradient-boosted trees on features of their stores, or chance (the control)."""

_BATCH = 4
# Sketches made for each one that is proposed: from the first number on one more for so many seconds that the
# fastest takes, up to the second. Where trials last longer, more thought pays. The third number is for before
# the model knows anything.
_MADE = (2, 8)
_ONE_MORE_S = 1.5e-3
_FIRST_MADE = 2
# How many of them are drawn.
_DRAWN_SHARE = 0.3
# Sketches made at most for each one wanted: others are set aside.
_TRIES = 4
# Proposals that the model has no say in.
_RANDOM_SHARE = 0.15
# How many of the fastest are changed, and how many unproposed sketches are kept.
_PARENTS = 16
_POOL = 128
# At most so many trials of earlier sessions, and of other workloads, are replayed to learn from.
_EARLIER = 256
_OTHERS = 64


class Evolutionary:
    """Propose changed sketches that a model thinks fast.

    Parameters
    ----------
    func : PrimFunc
        The unscheduled computation.
    target : Target
        What to compile for.
    seed : int
        Equal seeds and equal measurements propose equal sketches.
    cost_model : str or None
        One of `COST_MODELS` (None: the first), or the path of a model saved by `StoreModel.save`.

    Raises
    ------
    InputError
        MetaSchedule has no sketch for this function, or the saved model cannot be read.

    Attributes
    ----------
    model : StoreModel or None
        What it has learnt; None where chance ranks.
    """

    batch = _BATCH

    def __init__(self, func: Any, target: Any, seed: int, cost_model: str | None = None) -> None:
        self._space = SketchSpace(func, target, seed)
        self.model = _model(cost_model, target_text(target))
        self._group = func_hash(func)
        self._pool: dict[str, Sketch] = {}
        self._set_aside: dict[str, Sketch] = {}
        self._unanswered: dict[str, Sketch] = {}
        self._answered: set[str] = set()
        self._earlier: list[tuple[float, Candidate]] = []
        self._parents: list[tuple[float, Sketch]] = []

    def ask(self, count: int) -> list[Candidate]:
        """Propose sketches: drawn at random at first, then by the model."""
        self._take_up_earlier()
        if self.model is not None and not self.model.ready:
            self._make(_FIRST_MADE * count, drawn_share=1.0)
            self._sort_by_cost()
        else:
            self._make(count * self._made(), _DRAWN_SHARE)
            self._rank()
        while self._set_aside and len(self._pool) < count:
            key = next(iter(self._set_aside))
            self._pool[key] = self._set_aside.pop(key)
        proposed = [self._propose() for _ in range(min(count, len(self._pool)))]
        self._pool = dict(islice(self._pool.items(), _POOL))
        return proposed

    def tell(self, candidate: Candidate, record: Record) -> None:
        """Let parents and model learn from a trial, from the next question on."""
        key = candidate.key
        if key in self._answered:
            return
        self._answered.add(key)
        sketch = self._unanswered.pop(key, None) or self._dropped(key)
        if sketch is not None:
            self._learn(sketch, throughput(record))
        else:
            self._space.add_known(candidate)
            self._earlier.append((throughput(record), candidate))

    def learn_from(self, others: Sequence[Experience]) -> None:
        """Let the model learn from trials of other workloads."""
        if self.model is None:
            return
        for i in _spread([other.share for other in others], _OTHERS):
            sketch = self._space.of_other(others[i].trace, others[i].workload_ir)
            if sketch is not None:
                self.model.learn(others[i].workload_hash, self._space.features(sketch), others[i].share)

    def _made(self) -> int:
        """Return how many sketches to make for each one that is proposed."""
        least, most = _MADE
        fastest_s = 1 / self._parents[0][0] if self._parents else 0.0
        return min(most, least + int(fastest_s / _ONE_MORE_S))

    def _make(self, count: int, drawn_share: float) -> None:
        """Add sketches to the pool that were never made before; fewer where the space holds no more."""
        space, goal = self._space, len(self._pool) + count
        for _ in range(_TRIES * count):
            if len(self._pool) >= goal:
                break
            drawn = not self._parents or space.chance.random() < drawn_share
            sketch = (None if drawn else space.new(self._changed)) or space.new(space.draw)
            if sketch is None:
                break
            (self._set_aside if space.is_bloated(sketch) else self._pool)[sketch.key] = sketch

    def _dropped(self, key: str) -> Sketch | None:
        """Take a sketch that was not proposed out of where it is."""
        return self._pool.pop(key, None) or self._set_aside.pop(key, None)

    def _changed(self) -> Sketch | None:
        """Change one of the fastest sketches, the faster the likelier."""
        rank = int(len(self._parents) * self._space.chance.random() ** 2)
        return self._space.change(self._parents[rank][1])

    def _sort_by_cost(self) -> None:
        """Put those first whose trials take least: nothing else is known yet, and they run fast as well."""
        made = sorted(self._pool.items(), key=lambda made: self._space.code(made[1]).trial_seconds)
        self._pool = dict(made)

    def _rank(self) -> None:
        """Put those first that the model thinks fastest."""
        if not self._pool:
            return
        made = list(self._pool.items())
        if self.model is None:
            scores = self._space.chance.random(len(made))
        else:
            scores = self.model.predict([self._space.features(sketch) for _, sketch in made])
        self._pool = dict(made[i] for i in np.argsort(-scores, kind="stable"))

    def _propose(self) -> Candidate:
        chance, keys = self._space.chance, list(self._pool)
        key = keys[chance.integers(len(keys)) if chance.random() < _RANDOM_SHARE else 0]
        self._unanswered[key] = sketch = self._pool.pop(key)
        return sketch.candidate()

    def _learn(self, sketch: Sketch, speed: float) -> None:
        if speed > 0:
            self._parents.append((speed, sketch))
            self._parents.sort(key=lambda parent: -parent[0])
            del self._parents[_PARENTS:]
        if self.model is not None:
            self.model.learn(self._group, self._space.features(sketch), speed)

    def _take_up_earlier(self) -> None:
        """Learn from trials that this strategy did not propose, from a part of them where they are many."""
        for i in _spread([speed for speed, _ in self._earlier], _EARLIER):
            speed, candidate = self._earlier[i]
            sketch = self._space.restore(candidate.trace)
            if sketch is not None:
                self._dropped(sketch.key)
                self._learn(sketch, speed)
        self._earlier = []


def _model(name: str | None, target: str) -> StoreModel | None:
    if name == "random":
        return None
    return StoreModel(target) if name in (None, "xgb") else load(name, target)


def _spread(speeds: Sequence[float], count: int) -> list[int]:
    """Choose at most so many of some trials: the fastest half of them, and others of every speed."""
    order = np.argsort(-np.asarray(speeds), kind="stable")
    if len(order) > count:
        fastest = np.arange(count // 2)
        others = np.linspace(count // 2, len(order) - 1, count - count // 2).astype(int)
        order = order[np.concatenate([fastest, others])]
    return [int(i) for i in order]
