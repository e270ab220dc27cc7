"""The strategies guided by a cost model: what they do beside the contract of test_strategies.py."""

import dataclasses
from unittest.mock import Mock

import numpy as np
import pytest
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import host_target, target_text
from tunesmith.schedules.space import Constraint, Knob, KnobSpace
from tunesmith.tuning.learning import cost_model
from tunesmith.tuning.records.candidate import knob_candidate, knob_key
from tunesmith.tuning.records.record import Record, Status
from tunesmith.tuning.search import make_strategy, search_for, strategy_name
from tunesmith.tuning.strategies import KNOB_STRATEGIES, Experience, LearnsFromOthers, xgb
from tunesmith.tuning.strategies.points import Points
from tunesmith.tuning.strategies.prediction_annealing import best_by_annealing

VALUES = (1, 2, 4, 8, 16, 32)
SPACE = KnobSpace(
    (Knob("rows", VALUES, "rows"), Knob("columns", VALUES, "columns"), Knob("step", (1, 2, 3), "step")),
    (Constraint("step <= rows", lambda k: k["step"] <= k["rows"]),),
    {"rows": 1, "columns": 1, "step": 1},
)
SHAPE = {"m": 256, "layout": "NHWC"}
NAMES = ("xgb", "xgb-rank")
LOSS = {"xgb": "regression", "xgb-rank": "rank"}


def share(knobs, m):
    """Have the best tile grow with the workload."""
    return 1 / (1 + abs(np.log2(knobs["rows"] * knobs["columns"] / m)) + (knobs["step"] != 2))


def others(sizes=(64, 128, 512)):
    return [Experience({**SHAPE, "m": m}, p, None, str(m), share(p, m)) for m in sizes for p in SPACE.points]


def changed(trial, **knobs):
    return dataclasses.replace(trial, knobs={**trial.knobs, **knobs})


def record(candidate, status=Status.OK):
    seconds = (1e-3 / share(candidate.knobs, SHAPE["m"]),) if status is Status.OK else ()
    return Record(
        id="", created="", operator="", shape=SHAPE, dtype="", workload_hash="", workload_ir="", target="",
        machine_fingerprint="", space="", strategy="", seed=0, knobs=candidate.knobs, trace=None,
        status=status, verified=True, max_error=None, run_secs=seconds, build_s=None, message="",
        tvm_version="", tunesmith_version="",
    )  # fmt: skip


def asked(strategy, trials, status=Status.OK):
    found = []
    while len(found) < trials and (candidates := strategy.ask(4)):
        for candidate in candidates:
            strategy.tell(candidate, record(candidate, status))
        found += candidates
    return found


@pytest.mark.parametrize("name", NAMES)
def test_trials_of_other_shapes_lead_to_the_best_at_once(name):
    strategy = KNOB_STRATEGIES[name](SPACE, 1, SHAPE)
    assert isinstance(strategy, LearnsFromOthers)
    strategy.learn_from(others())
    assert max(share(c.knobs, SHAPE["m"]) for c in asked(strategy, 8)) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_model_starts_as_the_trials_it_was_trained_on_do(name):
    model = cost_model.fit(others(), loss=LOSS[name], seed=1)
    learned = KNOB_STRATEGIES[name](SPACE, 1, SHAPE)
    learned.learn_from(others())
    started = xgb.XGB(SPACE, 1, SHAPE, model, LOSS[name])
    assert asked(started, 30) == asked(learned, 30)


@pytest.mark.parametrize("name", NAMES)
def test_a_search_that_knows_nothing_begins_around_the_default_and_elsewhere(name):
    space = dataclasses.replace(SPACE, default={"rows": 8, "columns": 4, "step": 2})
    opening = [c.knobs for seed in (1, 2) for c in KNOB_STRATEGIES[name](space, seed, SHAPE).ask(8)]
    near, elsewhere = opening[::2], opening[1::2]
    assert near[0] == near[4] == space.default and elsewhere[:4] != elsewhere[4:]
    assert all(sum(np.log2(p[k] / space.default[k]) != 0 for k in p) <= 1 for p in near)


def test_trials_of_this_workload_correct_what_others_say():
    strategy = KNOB_STRATEGIES["xgb"](SPACE, 1, SHAPE)
    strategy.learn_from([dataclasses.replace(t, share=1 - t.share) for t in others()])
    assert max(share(c.knobs, SHAPE["m"]) for c in asked(strategy, 48)) == 1


def test_what_others_say_still_counts_beside_trials_of_this_workload():
    strategy = KNOB_STRATEGIES["xgb"](SPACE, 1, SHAPE)
    strategy.learn_from(others())
    for point in [p for p in SPACE.points if p["rows"] * p["columns"] <= 4]:
        strategy.tell(knob_candidate(point), record(knob_candidate(point)))
    assert max(share(c.knobs, SHAPE["m"]) for c in strategy.ask(2)) > 0.4


def test_where_all_fails_other_shapes_still_lead():
    strategy = KNOB_STRATEGIES["xgb"](SPACE, 1, SHAPE)
    strategy.learn_from(others())
    failed = asked(strategy, 12, Status.CRASHED)
    assert len({c.key for c in failed}) == 12 and share(failed[11].knobs, SHAPE["m"]) > 0.3


def test_trials_of_other_knobs_teach_nothing():
    strategy = KNOB_STRATEGIES["xgb"](SPACE, 1, SHAPE)
    strategy.learn_from([dataclasses.replace(t, knobs={"other": 1}) for t in others()])
    assert asked(strategy, 20) == asked(KNOB_STRATEGIES["xgb"](SPACE, 1, SHAPE), 20)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (cost_model.fit(others(), loss="rank"), "the cost model has the loss 'rank'"),
        (cost_model.fit([dataclasses.replace(t, shape={"w": 3}) for t in others()]), "knows w, which"),
        (cost_model.fit([changed(t, u=i) for i, t in enumerate(others())]), "knows u, which"),
    ],
    ids=["loss", "dimension", "knob"],
)
def test_a_model_of_something_else_is_refused(model, message):
    with pytest.raises(InputError, match=message):
        xgb.XGB(SPACE, 1, SHAPE, model)


@pytest.mark.parametrize("warm", [False, True])
def test_a_space_too_large_to_predict_is_searched_and_exhausted(monkeypatch, warm):
    monkeypatch.setattr(xgb, "_MOST_PREDICTED", 10)
    anneal = Mock(side_effect=xgb.best_by_annealing)
    monkeypatch.setattr(xgb, "best_by_annealing", anneal)

    def search(trials):
        strategy = KNOB_STRATEGIES["xgb"](SPACE, 1, SHAPE)
        if warm:
            strategy.learn_from(others())
        return asked(strategy, trials)

    first = search(32)
    assert anneal.call_count == (32 if warm else 24)
    everything = search(1000)
    assert everything[:32] == first and max(share(c.knobs, SHAPE["m"]) for c in first) == 1
    assert sorted(c.key for c in everything) == sorted(map(knob_key, SPACE.points))


def test_annealing_finds_the_best_prediction_among_untried_points():
    knobs = tuple(Knob(n, tuple(range(16)), n) for n in "abcd")
    even = Constraint("a is even or b is", lambda k: k["a"] * k["b"] % 2 == 0)
    space = KnobSpace(knobs, (even,), dict.fromkeys("abcd", 0))
    points, predicted = Points(space), []

    def predict(at):
        assert min(at) >= 0
        predicted.extend(at)
        return -np.abs(points.positions[at] - [3, 14, 0, 9]).sum(axis=1).astype(np.float32)

    best = points.index({"a": 3, "b": 14, "c": 0, "d": 9})
    points.told(knob_candidate(space.points[best]))
    found = best_by_annealing(points, predict, np.array([best]), np.random.default_rng(0))
    assert found != best and predict([found]) >= -3 and len(predicted) < 0.1 * len(space)


def test_a_saved_model_is_what_a_tuning_starts_from(small, tmp_path):
    path, target = str(tmp_path / "model.json"), host_target()
    search = search_for(small, target, None)
    knobs = [dict(p) for p in search.knobs.points[:40]]
    known = [Experience(small.shape, p, None, "h", i / 40) for i, p in enumerate(knobs)]
    origin = {"operator": "matmul", "target": target_text(target), "space": search.name}
    cost_model.fit(known, **origin).save(path)
    assert strategy_name(search, "xgb", path) == "xgb"
    warm = make_strategy(search, "xgb", small, target, 0, path)
    assert warm.ask(4) != make_strategy(search, "xgb", small, target, 0, None).ask(4)
    cost_model.fit(known, **{**origin, "operator": "conv2d"}).save(path)
    with pytest.raises(InputError, match="trained for the operator 'conv2d', not for 'matmul'"):
        make_strategy(search, "xgb", small, target, 0, path)
    with pytest.raises(InputError, match="unknown cost model"):
        strategy_name(search, "random", path)
