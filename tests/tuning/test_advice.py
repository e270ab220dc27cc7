from dataclasses import replace

import pytest
import tunesmith as ts
from tunesmith.tuning.measuring.measurement import Timing
from tunesmith.tuning.planning.advice import Asked, advice
from tunesmith.tuning.planning.estimate import Estimate
from tunesmith.tuning.planning.plan import WorkloadPlan

RELU = ts.workload("relu", m=8, n=8)
PLAN = WorkloadPlan(
    workload=RELU,
    space="general",
    strategy="xgb",
    combinations=100,
    points=90,
    designs=None,
    recorded=0,
    trials=64,
    estimate=Estimate(0.001, 0.5, ""),
    calls=None,
)
ASKED = Asked(
    trials=64, early_stopping=None, time_budget=None, timeout=10.0, timing=Timing(), seed=0, weights=None
)


def test_sound_options_need_no_advice():
    asked = replace(ASKED, early_stopping=63, time_budget=0.5, trials=90)
    assert advice(asked, [PLAN], 64) == []
    exact = Timing(number=5, min_repeat_ms=0.0, repeat=10)
    assert advice(replace(ASKED, timing=exact, seed=3), [PLAN], 64) == []
    assert advice(ASKED, [replace(PLAN, strategy="grid")], 64) == []
    assert advice(replace(ASKED, timing=Timing(repeat=50)), [PLAN], 64) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"early_stopping": 64}, "early_stopping=64 cannot have an effect: 64 trials follow at most"),
        ({"trials": 91}, "trials=91 is more than the space has points: 90"),
        ({"time_budget": 0.4}, "time_budget=0.4 is less than a trial takes, about 0.5 s"),
        ({"weights": [2.0]}, "weights cannot have an effect: there is one workload"),
        (
            {"timing": Timing(number=5)},
            "number=5 is overruled: min_repeat_ms=10 takes 10 calls of 1 ms; min_repeat_ms=0 keeps number",
        ),
        ({"timing": Timing(number=20_000)}, "but timeout=10: most trials will time out"),
        (
            {"timing": Timing(noise=0.01, repeat=30)},
            "noise=0.01 cannot have an effect: repeat=30 times min_repeat_ms=10 use up budget_s=0.3",
        ),
    ],
)
def test_an_option_without_effect_is_named(options, message):
    (line,) = advice(replace(ASKED, **options), [PLAN], 64)
    assert message in line


def test_a_call_with_cold_caches_lasts_as_long_as_emptying_them_too():
    cold = replace(PLAN, estimate=Estimate(0.001, 0.5, "", flush_s=0.005))
    asked = replace(ASKED, timing=Timing(number=5, cold_cache=True))
    assert advice(asked, [cold], 64) == []
    (line,) = advice(replace(asked, timing=Timing(number=1, cold_cache=True)), [cold], 64)
    assert "min_repeat_ms=10 takes 2 calls of 6 ms, caches emptied before;" in line


def test_a_seed_means_nothing_to_grid():
    (line,) = advice(replace(ASKED, seed=3), [replace(PLAN, strategy="grid")], 64)
    assert line == "seed=3 cannot have an effect: grid leaves nothing to chance"


def test_where_all_is_done_that_is_said():
    (line,) = advice(replace(ASKED, early_stopping=100), [replace(PLAN, recorded=64)], 0)
    assert line.startswith("all trials are in the database: nothing will be measured")


def test_what_is_unknown_leads_to_no_advice():
    unknown = replace(PLAN, points=None, estimate=Estimate(None, None, ""))
    asked = replace(ASKED, trials=1000, time_budget=1e-6, timing=Timing(number=5))
    assert advice(asked, [unknown], 64) == []


def test_of_several_workloads_each_is_named():
    other = replace(PLAN, workload=ts.workload("relu", m=16, n=16), estimate=Estimate(None, None, ""))
    (line,) = advice(replace(ASKED, timing=Timing(number=5), weights=[1, 2]), [PLAN, other], 91)
    assert line.startswith("relu m=8,n=8: number=5 is overruled")


def test_several_workloads_share_their_points():
    two = [PLAN, replace(PLAN, workload=ts.workload("relu", m=16, n=16))]
    assert advice(replace(ASKED, trials=180), two, 180) == []
    (line,) = advice(replace(ASKED, trials=181), two, 181)
    assert line == "trials=181 is more than the spaces have points: 180"
    assert advice(replace(ASKED, trials=181), [PLAN, replace(PLAN, points=None)], 181) == []
