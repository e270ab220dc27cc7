"""The arithmetic of the studies' rows: ratios, quartiles, searches that did not arrive, promises."""

from dataclasses import replace
from pathlib import Path

import pytest
import tunesmith as ts
from tunesmith.tuning.study.endurance import GOAL_BYTES, EnduranceRow, files_left
from tunesmith.tuning.study.engine import GOALS, OWN, STOCK, Run, engine_rows, promised
from tunesmith.tuning.study.noise import noise_row
from tunesmith.tuning.study.strategy_rows import StrategyRow, quantile, strategy_row, with_goals
from tunesmith.tuning.study.turns import Turns


def run(implementation, seconds, best, trials=64):
    return Run(implementation, seconds, trials, trials, "a trace", Turns([best] * 3))


RUNS = [run(OWN, 6.0, 0.9), run(STOCK, 60.0, 1.0), run(OWN, 4.0, 0.7)]


def test_rates_are_records_over_the_whole_time_and_ours_a_median(small):
    own, stock = engine_rows(small, RUNS, None)
    assert (own.implementation, own.runs, own.seconds) == (OWN, 2, 5.0)
    assert own.trials_per_minute == pytest.approx((640 + 960) / 2)
    assert stock.trials_per_minute == pytest.approx(64) and stock.rate_ratio == 1
    assert own.rate_ratio == pytest.approx(12.5)
    assert own.best_s == pytest.approx(0.8) and own.best_ratio == pytest.approx(1.25)
    assert own.met is None and own.goal == ""


@pytest.mark.parametrize(("times", "met"), [(10.0, True), (13.0, False)])
def test_a_promise_of_speed_is_judged_by_the_ratio(small, times, met):
    own, stock = engine_rows(small, RUNS, times)
    assert own.met is met and f"{times:g} times" in own.goal and stock.met is None


@pytest.mark.parametrize(("best", "met"), [(1.005, True), (1.05, False)])
def test_a_best_schedule_may_be_slower_by_no_more_than_noise(small, best, met):
    runs = [run(OWN, 1.0, best), run(STOCK, 60.0, 1.0), run(OWN, 1.0, best)]
    assert engine_rows(small, runs, 10.0)[0].met is met


def test_without_a_right_schedule_nothing_is_shown(small):
    wrong = replace(RUNS[0], best=Turns((), "wrong_result: all NaN"))
    own, _ = engine_rows(small, [wrong, *RUNS[1:]], 2.0)
    assert own.best_s is None and own.best_ratio is None and own.met is False
    assert own.note == "wrong_result: all NaN"


def test_beating_a_run_that_found_nothing_shows_nothing(small):
    own, _ = engine_rows(small, [RUNS[0], replace(RUNS[1], best=Turns(()))], 2.0)
    assert own.rate_ratio > 2 and own.met is False


def test_of_an_implementation_without_trials_nothing_is_said(small):
    none = Run(STOCK, 60.0, 0, 0, None, Turns((), "no right schedule was found"))
    own, stock = engine_rows(small, [RUNS[0], none], 2.0)
    assert own.rate_ratio is None and own.best_ratio is None and stock.best_s is None and not own.met


def test_promises_hold_for_64_trials_of_the_named_workloads_only(small):
    (name, shape), times = GOALS[0]
    workload = ts.workload(name, **shape)
    assert promised(workload, 64) == times
    assert promised(workload, 63) is None and promised(small, 64) is None


def test_noise_is_the_distance_between_quartiles(small):
    row = noise_row(small, "default", [1.0, 1.01, 1.02, 1.04, 1.5])
    assert (row.median_s, row.q25_s, row.q75_s) == pytest.approx((1.02, 1.01, 1.04))
    assert row.spread == pytest.approx(0.03 / 1.02) and row.met
    assert not noise_row(small, "default", [1.0, 1.0, 1.02, 1.04, 1.5]).met


@pytest.mark.parametrize(
    ("counts", "q", "found"),
    [
        ([3, 1, 2], 0.5, 2),
        ([1, 2, 3, 4], 0.5, 2.5),
        ([1, 2, 3, 9], 0.5, 2.5),  # one of four did not arrive: the median does not depend on it
        ([1, 2, 9, 9], 0.5, None),
        ([1, 2, 9, 9], 0.25, 1.75),
        ([9, 9, 9], 0.25, None),
        ([8, 8, 8], 0.5, 8),
    ],
)
def test_quantiles_know_no_more_than_the_searches(counts, q, found):
    assert quantile(counts, q, limit=8) == found


def test_searches_that_were_given_up_are_none(small):
    row = strategy_row(small, "tiles", "xgb", 7, 0.97, 0.5, [3, 9, 5], limit=8)
    assert row.trials == (3, None, 5) and (row.seeds, row.reached, row.learned_from) == (3, 2, 7)
    assert (row.q25, row.median, row.q75) == (4, 5, None)


def needed(strategy, median, limit=256):
    row = StrategyRow(
        "matmul", {}, "float32", "matmul", strategy, 0, 0.97, 1.0, 10, 10, limit, median, 1, 2, ()
    )
    return row


@pytest.mark.parametrize(
    ("xgb", "random", "met"),
    [
        (32, 65, True),
        (33, 200, False),
        (32, 64, False),
        (None, None, False),
        (32, None, True),
        (30, 20, False),
    ],
)
def test_xgb_needs_few_trials_and_less_than_half_of_random(xgb, random, met):
    control, row = with_goals([needed("random", random), needed("xgb", xgb)])
    assert row.met is met and control.met is None


def test_a_control_that_was_given_up_early_proves_little():
    assert not with_goals([needed("xgb", 30, limit=50), needed("random", None, limit=50)])[0].met


@pytest.mark.parametrize(("median", "met"), [(8, True), (8.5, False), (None, False)])
def test_a_warm_start_needs_eight(median, met):
    (row,) = with_goals([needed("xgb+transfer", median)])
    assert row.met is met


LONG = EnduranceRow("matmul", {}, "matmul", "random", 9, 9, "trials", 1.0, 1, GOAL_BYTES - 1, 1, 1, (), ())


@pytest.mark.parametrize(
    "change",
    [
        {"rss_max_bytes": GOAL_BYTES},
        {"records": 8},
        {"processes_left": ("7 python",)},
        {"files_left": ("x",)},
    ],
)
def test_endurance_is_memory_records_processes_and_files(change):
    assert LONG.met and not replace(LONG, **change).met


def test_files_that_are_left_are_named_but_for_the_lock(tmp_path):
    Path(tmp_path, "tunesmith-0-cpu.lock").touch()
    assert files_left(tmp_path) == ()
    Path(tmp_path, "tunesmith-123-abc").mkdir()
    assert files_left(tmp_path) == ("tunesmith-123-abc",)
