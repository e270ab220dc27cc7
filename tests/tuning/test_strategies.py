import dataclasses

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.machine.target import host_target
from tunesmith.schedules.space import Constraint, Knob, KnobSpace
from tunesmith.tuning.candidate import knob_candidate, knob_key
from tunesmith.tuning.record import Record, Status
from tunesmith.tuning.strategies import KNOB_STRATEGIES, STRATEGIES, Evolutionary
from tunesmith.tuning.strategies.xgb import knob_features

SPACE = KnobSpace(
    (
        Knob("rows", (1, 2, 4, 8, 16), "rows"),
        Knob("columns", (1, 2, 4, 8, 16), "columns"),
        Knob("one", (3,), "fixed"),
        Knob("step", (1, 2, 3, 4, 5, 6), "step"),
    ),
    (Constraint("rows * columns <= 64", lambda k: k["rows"] * k["columns"] <= 64),),
    {"rows": 1, "columns": 1, "one": 3, "step": 1},
)


def seconds(knobs):
    """Have one best point: rows 8, columns 8, step 4."""
    distance = (
        abs(np.log2(knobs["rows"] / 8)) + abs(np.log2(knobs["columns"] / 8)) + abs(knobs["step"] - 4) / 3
    )
    return 1e-3 * (1 + distance)


def record_of(candidate, run_s, status=Status.OK):
    return Record(
        id="",
        created="",
        operator="",
        shape={},
        dtype="",
        workload_hash="",
        workload_ir="",
        target="",
        machine_fingerprint="",
        space="",
        strategy="",
        seed=0,
        knobs=candidate.knobs,
        trace=candidate.trace,
        status=status,
        verified=status is Status.OK,
        max_error=None,
        run_secs=(run_s,) if status is Status.OK else (),
        build_s=None,
        message="",
        tvm_version="",
        tunesmith_version="",
    )


def search(strategy, trials, answer=lambda c: record_of(c, seconds(c.knobs))):
    """Ask and tell; return what was tried."""
    tried = []
    while len(tried) < trials:
        candidates = strategy.ask(min(strategy.batch, trials - len(tried)))
        if not candidates:
            break
        for candidate in candidates:
            strategy.tell(candidate, answer(candidate))
        tried += candidates
    return tried


@pytest.fixture(params=list(KNOB_STRATEGIES))
def make(request):
    return KNOB_STRATEGIES[request.param]


def test_seed_reproduces(make):
    assert search(make(SPACE, 5), 40) == search(make(SPACE, 5), 40)


def test_space_is_exhausted_and_no_point_left_or_repeated(make):
    tried = search(make(SPACE, 1), 10_000)
    assert sorted(c.key for c in tried) == sorted(map(knob_key, SPACE.points))


def test_known_points_are_not_proposed(make):
    strategy = make(SPACE, 1)
    known = [knob_candidate(p) for p in SPACE.points[:100]]
    for candidate in known:
        strategy.tell(candidate, record_of(candidate, 1.0))
    tried = {c.key for c in search(strategy, 10_000)}
    assert len(tried) == len(SPACE) - 100 and not tried & {c.key for c in known}


def test_failing_trials_are_survived(make):
    tried = search(make(SPACE, 1), 60, lambda c: record_of(c, 1.0, Status.CRASHED))
    assert len({c.key for c in tried}) == 60


def test_points_that_left_the_space_are_survived(make):
    strategy = make(SPACE, 1)
    gone = knob_candidate({"rows": 3, "other": 7})
    strategy.tell(gone, record_of(gone, 1.0))
    assert len(search(strategy, 20)) == 20


@pytest.mark.parametrize("name", ["random", "xgb"])
def test_other_seed_is_another_search(name):
    make = KNOB_STRATEGIES[name]
    assert search(make(SPACE, 1), 20) != search(make(SPACE, 2), 20)


def trials_to_best(make, seed):
    strategy, tried = make(SPACE, seed), []
    while not any(seconds(c.knobs) == 1e-3 for c in tried):
        tried += search(strategy, strategy.batch)
    return 1 + next(i for i, c in enumerate(tried) if seconds(c.knobs) == 1e-3)


def test_xgb_learns():
    needed = {
        n: np.median([trials_to_best(KNOB_STRATEGIES[n], s) for s in range(7)]) for n in ("random", "xgb")
    }
    assert needed["xgb"] < needed["random"] / 2


def test_features_hold_products_and_ratios():
    features = knob_features([{"a": 1, "b": 3, "c": 7}, {"a": 3, "b": 3, "c": 1}])
    # a, c; a + c; a - c of the logarithms of the value plus one: the knob that never changes is left out.
    assert features.tolist() == [[1, 3, 4, -2], [2, 1, 3, 1]]
    assert knob_features([{"a": 1}, {"a": 1}]).shape == (2, 1)


def test_table_describes_every_strategy():
    assert set(KNOB_STRATEGIES) | {"evolutionary"} == set(STRATEGIES)


def guess(candidate):
    """Give a trace a time that depends on nothing but itself."""
    return record_of(candidate, 1e-3 * (1 + int(candidate.key, 16) % 1000 / 1000))


def evolve(func, trials, seed=3, known=()):
    strategy = Evolutionary(func, host_target(), seed)
    for candidate in known:
        strategy.tell(candidate, guess(candidate))
    return search(strategy, trials, guess)


def test_evolutionary_search_is_reproduced_whatever_numpys_global_state(small):
    np.random.seed(1)
    first = evolve(small.func, 40)
    np.random.seed(2)
    before = np.random.get_state()[1].copy()
    assert evolve(small.func, 40) == first
    assert np.array_equal(np.random.get_state()[1], before)
    assert len({c.key for c in first}) == 40


def test_evolutionary_search_does_not_propose_what_is_known(small):
    known = evolve(small.func, 32)
    assert not {c.key for c in evolve(small.func, 32, known=known)} & {c.key for c in known}


def test_evolutionary_search_ends_with_its_space():
    # A sketch of one element leaves nothing to choose.
    tried = evolve(ts.workload("relu", m=1, n=1).func, 64)
    assert 1 <= len(tried) < 64


def test_evolutionary_survives_failures_and_foreign_traces(small):
    strategy = Evolutionary(small.func, host_target(), 1, cost_model="random")
    for candidate in strategy.ask(16):
        strategy.tell(
            dataclasses.replace(candidate, key="x", trace="[[],[]"), record_of(candidate, 1.0, Status.CRASHED)
        )
        strategy.tell(candidate, record_of(candidate, 1.0, Status.CRASHED))
    assert len(strategy.ask(16)) == 16
