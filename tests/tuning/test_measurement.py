import math
import random

import pytest
import tunesmith as ts
from tunesmith.tuning.measuring import measurement
from tunesmith.tuning.measuring.measurement import (
    Timing,
    measure,
    measure_in_turns,
    noise_of,
    quantiles,
    warm_seconds,
)


class Machine:
    """A clock that only calls move, and a kernel whose calls last what a test says."""

    def __init__(self, *seconds):
        self.now, self.calls, self.seconds = 0.0, 0, list(seconds)

    def __call__(self, *tensors):
        self.now += self.seconds[min(self.calls, len(self.seconds) - 1)]
        self.calls += 1

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def machine(monkeypatch):
    def make(*seconds):
        made = Machine(*seconds)
        monkeypatch.setattr(measurement.time, "perf_counter", lambda: made.now)
        monkeypatch.setattr(measurement.time, "sleep", made.sleep)
        return made

    return make


@pytest.mark.parametrize(
    ("timing", "call_s", "calls"),
    [
        (Timing(number=0, min_repeat_ms=10), 1e-3, 10),
        (Timing(number=50, min_repeat_ms=10), 1e-3, 50),
        (Timing(number=5, min_repeat_ms=10), 1e-3, 10),
        (Timing(number=0, min_repeat_ms=0), 1e-3, 1),
        (Timing(number=0, min_repeat_ms=10), 1.0, 1),
        # In floating point the quotient is more than 100.
        (Timing(number=0, min_repeat_ms=30), 0.0002, 150),
        (Timing(number=0, min_repeat_ms=10), 100 * 1e-6, 100),
        (Timing(number=0, min_repeat_ms=30), 0.000199, 151),
    ],
)
def test_number_is_raised_to_the_least_duration(timing, call_s, calls):
    assert timing.calls(call_s) == calls


def test_kernel_runs_as_often_as_stated(machine):
    kernel = machine(2e-3)
    found = measure(kernel, ["x"], Timing(number=4, repeat=3, min_repeat_ms=0))
    assert found.run_secs == pytest.approx([2e-3] * 3) and found.calls == 4
    # One that does not count, one estimate, three repetitions.
    assert kernel.calls == 1 + 1 + 3 * 4


def test_first_call_is_not_counted(machine):
    assert warm_seconds(machine(0.04, 0.002), []) == pytest.approx(0.002)
    assert measure(machine(0.04, 0.002), [], Timing(), give_up_s=0.003).note == ""


def test_short_calls_are_repeated_until_the_clock_can_tell(machine):
    kernel = machine(1e-4)
    assert warm_seconds(kernel, []) == pytest.approx(1e-4)
    assert kernel.calls == 1 + 1 + 4 + 16


def test_far_slower_than_the_best_is_one_value(machine):
    kernel = machine(0.2)
    found = measure(kernel, [], Timing(), give_up_s=0.1)
    assert found == ((0.2,), 1, "timed once: far slower than the best so far") and kernel.calls == 1
    kernel = machine(0.04, 0.02)
    assert measure(kernel, [], Timing(), give_up_s=0.01).run_secs == (pytest.approx(0.02),)
    assert kernel.calls == 2


@pytest.mark.parametrize(("seconds", "calls"), [(6.0, 1), (1.5, 2), (0.7, 4)])
def test_slow_kernel_is_called_less_often(machine, seconds, calls):
    kernel = machine(seconds)
    assert max(measure(kernel, [], Timing()).run_secs) == pytest.approx(seconds)
    assert kernel.calls == calls


def test_a_larger_budget_allows_slow_kernels_their_repetitions(machine):
    timing = Timing(repeat=4, min_repeat_ms=0, budget_s=math.inf, noise=math.inf)
    assert len(measure(machine(6.0), [], timing).run_secs) == 4


def noisy(spread):
    rng = random.Random(1)
    return [0.01 * (1 + spread * rng.uniform(-1, 1)) for _ in range(100)]


def test_noisy_times_are_repeated_until_the_noise_is_small(machine):
    timing = Timing(number=1, min_repeat_ms=0, budget_s=100, noise=0.02)
    found = measure(machine(*noisy(0.2)), [], timing).run_secs
    assert len(found) > 3 and noise_of(found) <= 0.02 < noise_of(found[:-1])
    assert len(measure(machine(*noisy(0.001)), [], timing).run_secs) == 3


def test_noisy_times_are_repeated_until_the_budget_is_spent(machine):
    timing = Timing(number=1, min_repeat_ms=0, budget_s=0.3, noise=0.0)
    found = measure(machine(*noisy(0.2)), [], timing).run_secs
    assert sum(found[:-1]) < 0.3 <= sum(found)


@pytest.mark.parametrize(("best_s", "repetitions"), [(0.01, 5), (0.0095, 5), (0.0085, 3), (0.007, 1)])
def test_only_contenders_are_measured_longer(machine, best_s, repetitions):
    timing = Timing(number=1, min_repeat_ms=0, budget_s=0.05, noise=0.0)
    kernel = machine(0.01, 0.01, *[0.01, 0.0101] * 9)
    assert len(measure(kernel, [], timing, best_s=best_s).run_secs) == repetitions


def test_cold_cache_flushes_before_every_timed_call(machine, monkeypatch):
    kernel, flushes = machine(0.002), []

    def flush():
        assert len(flushes) == kernel.calls
        flushes.append(1)
        kernel.now += 0.003

    monkeypatch.setattr("tunesmith.machine.flush.cache_flush", lambda: flush)
    found = measure(kernel, [], Timing(cold_cache=True))
    assert found.run_secs == pytest.approx([0.002] * 3)
    # A flush and a call last 5 ms together, and a repetition 10 ms.
    assert found.calls == 2 and len(flushes) == kernel.calls == 2 + 3 * 2


def test_kernels_take_turns(machine, monkeypatch):
    clock, done = machine(0.0), []

    def kernel(name, seconds):
        def call():
            clock.now += seconds
            done.append(name)

        return call, ()

    calls = [kernel("a", 0.006), kernel("b", 0.02)]
    found = measure_in_turns(calls, Timing(), 2)
    assert found == [pytest.approx([0.006] * 2), pytest.approx([0.02] * 2)]
    # Two calls of each before; then two of the shorter one last as long as a repetition.
    assert "".join(done) == "aabb" + "aab" * 2
    done.clear()
    monkeypatch.setattr("tunesmith.machine.flush.cache_flush", lambda: lambda: done.append("-"))
    measure_in_turns(calls, Timing(cold_cache=True, cooldown_ms=1), 1)
    assert "".join(done) == "-a-a-b-b" + "a-a-a" + "b-b"


def test_pauses_are_not_timed(machine):
    kernel = machine(0.02)
    found = measure(kernel, [], Timing(cooldown_ms=500))
    assert found.run_secs == pytest.approx([0.02] * 3)
    assert kernel.now == pytest.approx(2 * 0.02 + 3 * (0.5 + 2 * 0.02))


def test_quantiles_are_interpolated():
    assert quantiles([5, 1, 3, 2, 4, 6]) == (3.5, 2, 5)
    assert quantiles([7.0]) == (7, 7, 7)


def test_noise_is_the_standard_error_of_the_median():
    rng = random.Random(0)
    samples = [[rng.gauss(1, 0.1) for _ in range(15)] for _ in range(400)]
    medians = [quantiles(s).median for s in samples]
    middle = quantiles(medians).median
    spread = math.sqrt(sum((m - middle) ** 2 for m in medians) / len(medians))
    estimate = sum(map(noise_of, samples)) / len(samples)
    assert estimate == pytest.approx(spread, rel=0.15)
    assert noise_of([1.0]) == math.inf and noise_of([2.0, 2.0]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"number": -1}, "number must be an integer of at least 0: number=-1"),
        ({"number": 1.5}, "number must be an integer of at least 0: number=1.5"),
        ({"repeat": 0}, "repeat must be an integer of at least 1: repeat=0"),
        ({"repeat": True}, "repeat must be an integer of at least 1: repeat=True"),
        (
            {"min_repeat_ms": -1},
            "min_repeat_ms must be at least 0 milliseconds, and finite: min_repeat_ms=-1",
        ),
        ({"min_repeat_ms": math.inf}, "and finite: min_repeat_ms=inf"),
        ({"cooldown_ms": "1"}, "cooldown_ms must be at least 0 milliseconds, and finite: cooldown_ms='1'"),
        ({"budget_s": -0.1}, "budget_s must be at least 0 seconds: budget_s=-0.1"),
        ({"noise": math.nan}, r"noise must be a fraction of at least 0 \(0.02 is 2 %\): noise=nan"),
        ({"cold_cache": 1}, "cold_cache must be True or False: cold_cache=1"),
    ],
)
def test_wrong_timing_is_one_line(options, message):
    with pytest.raises(ts.InputError, match=message):
        Timing(**options)
