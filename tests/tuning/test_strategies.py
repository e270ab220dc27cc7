import sys
from collections import deque
from zlib import crc32

import numpy as np
import pytest
from tunesmith.machine.errors import InputError
from tunesmith.schedules.space import Constraint, Knob, KnobSpace
from tunesmith.tuning.records.candidate import knob_candidate, knob_key
from tunesmith.tuning.records.record import Record, Status
from tunesmith.tuning.strategies import AHEAD, ALIASES, KNOB_STRATEGIES, STRATEGIES

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


SHAPE = {"m": 64, "n": 96, "layout": "NHWC"}
# The default and the rest are no neighbours of each other.
ISLANDS = KnobSpace(
    tuple(Knob(name, (9, 1, 3, 5, 7), "unordered") for name in "abcd"),
    (Constraint("all small or all large", lambda k: len({v < 4 for v in k.values()}) == 1),),
    {"a": 1, "b": 3, "c": 1, "d": 3},
)
ONE_POINT = KnobSpace((Knob("a", (3,), "fixed"), Knob("b", (7,), "fixed")), (), {"a": 3, "b": 7})


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
        run_secs=(run_s, run_s * 1.01) if status is Status.OK else (),
        build_s=None,
        message="",
        tvm_version="",
        tunesmith_version="",
    )


def answer(candidate):
    return record_of(candidate, seconds(candidate.knobs))


def guess(candidate):
    """Give a candidate a time that depends on nothing but itself."""
    return record_of(candidate, 1e-3 * (1 + crc32(candidate.key.encode()) % 1000 / 1000))


def search(strategy, trials, answer=answer, ahead=0):
    """Ask and tell, each answer ``ahead`` candidates late; return what was tried."""
    tried, unanswered = [], deque()
    while len(tried) < trials:
        candidates = strategy.ask(min(strategy.batch, trials - len(tried)))
        if not candidates and not unanswered:
            break
        tried += candidates
        unanswered += candidates
        while unanswered and (len(unanswered) > ahead or not candidates):
            candidate = unanswered.popleft()
            strategy.tell(candidate, answer(candidate))
    return tried


# The Gaussian process takes a second a question; it has a test of its own.
QUICK = [name for name in KNOB_STRATEGIES if name != "optuna-gp"]


@pytest.fixture(params=QUICK)
def make(request):
    if request.param.startswith("optuna"):
        pytest.importorskip("optuna")
    factory = KNOB_STRATEGIES[request.param]
    return lambda space, seed: factory(space, seed, SHAPE)


def test_gaussian_process_reproduces_and_repeats_nothing():
    pytest.importorskip("optuna")
    pytest.importorskip("torch")
    make = KNOB_STRATEGIES["optuna-gp"]
    # Its first ten are random.
    first = search(make(SPACE, 5, SHAPE), 13)
    assert len({c.key for c in first}) == 13
    assert search(make(SPACE, 5, SHAPE), 13) == first


@pytest.mark.parametrize(("name", "package"), [("optuna-tpe", "optuna"), ("optuna-cmaes", "cmaes")])
def test_missing_sampler_is_named_before_anything_is_measured(name, package, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"needs {package}, which is not installed: pip install"):
        KNOB_STRATEGIES[name](SPACE, 1, SHAPE)


@pytest.mark.parametrize("ahead", [0, AHEAD])
def test_seed_reproduces(make, ahead):
    first = search(make(SPACE, 5), 40, ahead=ahead)
    assert len(first) == 40 and search(make(SPACE, 5), 40, ahead=ahead) == first


@pytest.mark.parametrize("ahead", [0, AHEAD])
@pytest.mark.parametrize("space", [SPACE, ISLANDS, ONE_POINT], ids=["space", "islands", "one point"])
def test_space_is_exhausted_and_no_point_left_or_repeated(make, space, ahead):
    tried = search(make(space, 1), 10_000, guess, ahead)
    assert sorted(c.key for c in tried) == sorted(map(knob_key, space.points))


def test_no_more_candidates_than_asked_for(make):
    strategy = make(SPACE, 1)
    assert all(len(strategy.ask(count)) <= count for count in (1, 3, 1, 2))


def test_known_points_are_not_proposed(make):
    strategy = make(SPACE, 1)
    known = [knob_candidate(p) for p in SPACE.points[:60]]
    for candidate in known:
        strategy.tell(candidate, answer(candidate))
    tried = {c.key for c in search(strategy, 10_000)}
    assert len(tried) == len(SPACE) - 60 and not tried & {c.key for c in known}


def test_points_told_in_between_are_not_proposed(make):
    strategy = make(SPACE, 1)
    tried = search(strategy, 20)
    others = [knob_candidate(p) for p in SPACE.points if knob_candidate(p) not in tried][::2]
    for candidate in others:
        strategy.tell(candidate, answer(candidate))
    tried += search(strategy, 10_000)
    assert len({c.key for c in tried}) == len(tried) == len(SPACE) - len(others)


def test_failing_trials_are_survived(make):
    tried = search(make(SPACE, 1), 60, lambda c: record_of(c, 1.0, Status.CRASHED), ahead=3)
    assert len({c.key for c in tried}) == 60


def test_points_that_left_the_space_are_survived(make):
    strategy = make(SPACE, 1)
    for knobs in ({"rows": 3, "other": 7}, {**SPACE.default, "rows": 3}, {**SPACE.default, "rows": 999}):
        gone = knob_candidate(knobs)
        strategy.tell(gone, record_of(gone, 1e-9))
    assert len(search(strategy, 20)) == 20


@pytest.mark.parametrize("name", sorted(n for n in QUICK if n != "grid"))
def test_other_seed_is_another_search(name):
    make = KNOB_STRATEGIES[name]
    assert search(make(SPACE, 1, SHAPE), 90) != search(make(SPACE, 2, SHAPE), 90)


def trials_to_best(make, seed):
    strategy, tried = make(SPACE, seed, SHAPE), []
    while not any(seconds(c.knobs) == 1e-3 for c in tried):
        tried += search(strategy, strategy.batch)
    return 1 + next(i for i, c in enumerate(tried) if seconds(c.knobs) == 1e-3)


@pytest.mark.parametrize("name", sorted(n for n in QUICK if n not in ("grid", "random")))
def test_what_is_told_makes_the_search_shorter(name):
    needed = {
        n: np.median([trials_to_best(KNOB_STRATEGIES[n], s) for s in range(9)]) for n in ("random", name)
    }
    assert needed[name] < needed["random"] * 0.9


def test_table_describes_every_strategy():
    assert set(KNOB_STRATEGIES) <= set(STRATEGIES)
    assert all(line.startswith(("knob spaces: ", "sketch space: ")) for line in STRATEGIES.values())


def test_aliases_name_strategies():
    assert set(ALIASES.values()) <= set(STRATEGIES) and not set(ALIASES) & set(STRATEGIES)
