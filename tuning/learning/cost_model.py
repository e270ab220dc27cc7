"""The cost model of knob spaces: gradient-boosted trees that predict how near to the best a point is.

A model is an ensemble: its members are trained on random parts of the trials, and where they disagree, nobody
knows. Trained on several workloads of an operator it predicts for further ones. A saved model is one JSON
file of numbers and names: loading it executes nothing.

References
----------
T. Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018 (rank and regression loss; transfer).
T. Chen, C. Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import __version__
from ...machine.errors import InputError, unknown_name
from ...machine.files import written_aside
from .knob_features import KnobFeatures, Matrix, dimensions, open_knobs

if TYPE_CHECKING:
    from ..strategies.strategy import Experience

LOSSES = {"regression": "reg:squarederror", "rank": "rank:pairwise"}
"""What training makes small, as XGBoost calls it: errors of the predicted throughput, or of the order."""

KNOB_MODEL_SUFFIX = ".json"
"""How the names of files with a saved model end."""

_FORMAT = "tunesmith cost model 1"
_MEMBERS = 4
# A search asks which of the good points is best, not which of the bad ones is worst.
_LEAST_WEIGHT = 0.1
_ROUNDS = 150
_PARAMETERS = {
    "max_depth": 4,
    "subsample": 0.8,
    "colsample_bytree": 0.5,
    # More threads add in another order: the same seed would not give the same model.
    "nthread": 1,
    "verbosity": 0,
}


def train(data: Any, rounds: int, seed: int, loss: str, eta: float = 0.1) -> Any:
    """Train one member on an XGBoost ``DMatrix``; equal seeds give equal members."""
    import xgboost

    objective = {"objective": LOSSES[loss], "seed": seed, "eta": eta}
    return xgboost.train({**_PARAMETERS, **objective}, data, rounds)


@dataclass(frozen=True)
class Origin:
    """What a model was trained for and on.

    Parameters
    ----------
    operator, target, space : str
        What its trials have in common, as records say it.
    loss : str
        One of `LOSSES`.
    trials, workloads : int
        How many it has seen, and of how many workloads.
    tunesmith_version : str
        Which version trained it.
    """

    operator: str
    target: str
    space: str
    loss: str
    trials: int
    workloads: int
    tunesmith_version: str = __version__


@dataclass(frozen=True)
class CostModel:
    """A trained model.

    Parameters
    ----------
    origin : Origin
        What it was trained for.
    features : KnobFeatures
        What it sees of a point.
    members : tuple of xgboost.Booster
        The ensemble.
    """

    origin: Origin
    features: KnobFeatures
    members: tuple[Any, ...]

    def predict(
        self,
        points: Sequence[Mapping[str, int]],
        shape: Mapping[str, int | str],
        only: int | None = None,
    ) -> Matrix:
        """Return (members, points): throughput as a share of the best, or with loss ``rank`` a score.

        Parameters
        ----------
        points : sequence of mapping
            The points of a knob space.
        shape : mapping
            The workload's dimensions.
        only : int or None
            The one member to ask.
        """
        import xgboost

        seen = xgboost.DMatrix(self.features.of(points, shape), nthread=1)
        members = self.members if only is None else self.members[only : only + 1]
        return np.stack([member.predict(seen) for member in members])

    def importance(self) -> dict[str, float]:
        """Return what each feature contributes to the fit, as a share of all; the largest first."""
        totals: dict[str, float] = dict.fromkeys(self.features.names, 0.0)
        for member in self.members:
            for column, gain in member.get_score(importance_type="total_gain").items():
                totals[self.features.names[int(column[1:])]] += float(gain)
        whole = sum(totals.values()) or 1.0
        return {name: gain / whole for name, gain in sorted(totals.items(), key=lambda item: -item[1])}

    def require_fit(self, operator: str, target: str, space: str) -> None:
        """Raise InputError where the model was trained for something else."""
        wanted = {"operator": operator, "target": target, "space": space}
        for name, value in wanted.items():
            if (trained := getattr(self.origin, name)) != value:
                raise InputError(
                    f"the cost model was trained for the {name} {trained!r}, not for {value!r}; "
                    "train one on records of it, or leave the model out"
                )

    def save(self, path: str | Path) -> None:
        """Write the model to a file, whole or not at all.

        Raises
        ------
        InputError
            The file cannot be written, or its name would not be known for a cost model's.
        """
        if Path(path).suffix != KNOB_MODEL_SUFFIX:
            raise InputError(f"a cost model's file ends with {KNOB_MODEL_SUFFIX}: {path}")
        content = {
            "format": _FORMAT,
            **asdict(self.origin),
            "features": asdict(self.features),
            "feature_names": self.features.names,
            "members": [json.loads(member.save_raw("json")) for member in self.members],
        }
        with written_aside(Path(path)) as file:
            json.dump(content, file)


def fit(
    trials: Sequence[Experience],
    *,
    operator: str = "",
    target: str = "",
    space: str = "",
    loss: str = "regression",
    seed: int = 0,
) -> CostModel:
    """Train a model on trials of one operator, target and knob space.

    Parameters
    ----------
    trials : sequence of Experience
        At least one; each with knobs, all with the same ones.
    operator, target, space : str
        What they are trials of; kept with the model.
    loss : str
        One of `LOSSES`.
    seed : int
        Equal seeds and equal trials give equal models.

    Raises
    ------
    InputError
        The loss is unknown, or there is nothing to learn from.
    """
    import xgboost

    if loss not in LOSSES:
        raise unknown_name("loss", loss, LOSSES)
    if not trials:
        raise InputError("a cost model needs at least one trial: there is none; tune first")
    # A loss on the order compares trials within their workload.
    by_workload: dict[str, list[Experience]] = {}
    for trial in trials:
        by_workload.setdefault(trial.workload_hash, []).append(trial)
    groups = list(by_workload.values())
    points = [[dict(t.knobs or {}) for t in group] for group in groups]
    features = KnobFeatures(
        open_knobs([p for group in points for p in group]),
        dimensions([group[0].shape for group in groups]),
        len(groups),
    )
    seen = np.concatenate([features.of(p, g[0].shape) for p, g in zip(points, groups, strict=True)])
    shares = np.array([t.share for group in groups for t in group])
    data = xgboost.DMatrix(seen, shares)
    if loss == "rank":
        data.set_group([len(group) for group in groups])
    else:
        weights = _LEAST_WEIGHT + (1 - _LEAST_WEIGHT) * shares
        data.set_weight(weights / weights.mean())
    members = tuple(train(data, _ROUNDS, seed * _MEMBERS + i, loss) for i in range(_MEMBERS))
    return CostModel(Origin(operator, target, space, loss, len(trials), len(groups)), features, members)


def load(path: str | Path) -> CostModel:
    """Read a model that `CostModel.save` wrote.

    Raises
    ------
    InputError
        The file cannot be read, or is something else.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the cost model {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(
            f"{path} is no cost model: it is not JSON text; give a file that was saved as one"
        ) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise InputError(
            f"{path} is no cost model of this tunesmith ({_FORMAT!r}); give a file that was saved as one"
        )
    try:
        return _model(content)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"the cost model {path} is damaged ({type(error).__name__}: {error}); train it again"
        ) from error


def _model(content: dict[str, Any]) -> CostModel:
    import xgboost

    origin = Origin(**{name: content[name] for name in Origin.__dataclass_fields__})
    saved = content["features"]
    features = KnobFeatures(tuple(saved["knobs"]), tuple(saved["dims"]), int(saved["workloads"]))
    members = []
    for text in content["members"]:
        member = xgboost.Booster({"nthread": 1})
        try:
            member.load_model(bytearray(json.dumps(text), "utf-8"))
        except xgboost.core.XGBoostError as error:
            # Its own message is a stack of addresses.
            raise ValueError("XGBoost cannot read its trees") from error
        if member.num_features() != len(features.names):
            raise ValueError("the trees see other features than the file names")
        members.append(member)
    if not members:
        raise ValueError("it has no trees")
    return CostModel(origin, features, tuple(members))
