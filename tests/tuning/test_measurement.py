import pytest
from tunesmith.tuning.measurement import Timing, measure, warm_seconds


@pytest.mark.parametrize(
    ("timing", "call_s", "calls"),
    [
        (Timing(number=0, min_repeat_ms=10), 1e-3, 10),
        (Timing(number=50, min_repeat_ms=10), 1e-3, 50),
        (Timing(number=5, min_repeat_ms=10), 1e-3, 10),
        (Timing(number=0, min_repeat_ms=0), 1e-3, 1),
        (Timing(number=0, min_repeat_ms=10), 1.0, 1),
    ],
)
def test_number_is_raised_to_the_least_duration(timing, call_s, calls):
    assert timing.calls(call_s) == calls


def test_kernel_runs_as_often_as_stated():
    calls = []
    found = measure(calls.append, ["x"], Timing(number=4, repeat=3, min_repeat_ms=0), call_s=1e-6)
    assert len(found) == 3 and calls == ["x"] * 12


def test_first_call_is_not_counted():
    calls = []
    warm_seconds(lambda: calls.append(1), [], at_least_s=0.0)
    assert len(calls) == 2


def test_slow_kernel_is_measured_less_often():
    found = measure(lambda: None, [], Timing(number=1, repeat=5, min_repeat_ms=0, limit_s=0.0), call_s=1.0)
    assert len(found) == 1
