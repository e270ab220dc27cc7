import pytest
from tunesmith.tuning.measuring import measurement
from tunesmith.tuning.measuring.arithmetic import calls_of_trial, seconds_of_trial
from tunesmith.tuning.measuring.cases import check_runs
from tunesmith.tuning.measuring.measurement import Timing, measure


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when a kernel runs or someone sleeps."""
    now = [0.0]
    monkeypatch.setattr(measurement.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(measurement.time, "sleep", lambda seconds: None)
    return now


TIMINGS = [
    {"budget_s": 0.3},
    {"budget_s": 0.05, "number": 100},
    {"budget_s": 0.05, "repeat": 1, "min_repeat_ms": 2.0},
    {"budget_s": 0.3, "repeat": 50, "min_repeat_ms": 100.0},
    {"budget_s": 0.1, "cooldown_ms": 5.0},
    {"budget_s": 0.0},
]


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("call_s", [3e-5, 0.35e-3, 0.004, 0.06, 0.7, 1.5])
def test_a_steady_kernel_has_the_least_calls(clock, call_s, timing):
    calls = []

    def kernel():
        calls.append(call_s)
        clock[0] += call_s

    # Of equal times the noise is zero, but for rounding.
    timing = Timing(**timing, noise=1e-9)
    measure(kernel, [], timing)
    assert check_runs(call_s) + len(calls) == calls_of_trial(call_s, timing).total[0]


@pytest.mark.parametrize("timing", [timing for timing in TIMINGS if "cooldown_ms" not in timing])
@pytest.mark.parametrize("call_s", [3e-5, 0.004, 0.06, 1.5])
def test_emptying_the_caches_takes_time_before_each_timed_call(clock, monkeypatch, call_s, timing):
    calls, flush_s = [], 0.005

    def kernel():
        calls.append(call_s)
        clock[0] += call_s

    def flush():
        clock[0] += flush_s

    monkeypatch.setattr(measurement, "_flush_for", lambda kernel, timing: flush)
    timing = Timing(**timing, noise=1e-9, cold_cache=True)
    measure(kernel, [], timing)
    checks = check_runs(call_s)
    assert checks + len(calls) == calls_of_trial(call_s, timing, flush_s).total[0]
    assert seconds_of_trial(call_s, timing, flush_s) == pytest.approx(checks * call_s + clock[0])


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("call_s", [0.35e-3, 0.06, 1.5])
def test_a_restless_kernel_has_the_most_calls(clock, monkeypatch, call_s, timing):
    calls = []

    def kernel():
        calls.append(call_s)
        clock[0] += call_s

    monkeypatch.setattr(measurement, "noise_of", lambda seconds: 1.0)
    timing = Timing(**timing)
    measure(kernel, [], timing)
    # Sums of many times are not exact: one repetition more or less at the end of the budget.
    counted = calls_of_trial(call_s, timing)
    assert abs(check_runs(call_s) + len(calls) - counted.total[1]) <= counted.number + counted.waking


def test_the_sum_is_spelled_out():
    timing = Timing(repeat=3, min_repeat_ms=10.0, budget_s=0.3)
    assert str(calls_of_trial(0.001, timing)) == ("6 checks + 2 to estimate + 3 to 30 x 10 timed = 38 to 308")
    paused = Timing(repeat=3, min_repeat_ms=0.0, budget_s=0.0, cooldown_ms=100.0)
    assert str(calls_of_trial(0.06, paused)) == "3 checks + 1 to estimate + 3 x (1 + 1) timed = 10"
    assert seconds_of_trial(0.06, paused) == pytest.approx(10 * 0.06 + 0.3)
    assert str(calls_of_trial(0.001, Timing(budget_s=float("inf")))).endswith(" to inf")
