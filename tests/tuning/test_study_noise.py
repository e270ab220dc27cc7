import pytest
import tvm
from tunesmith.machine.errors import InputError
from tunesmith.tuning.measuring.library import export_kernel
from tunesmith.tuning.measuring.measurement import Timing
from tunesmith.tuning.study import noise

QUICK = Timing(repeat=1, min_repeat_ms=0.1, budget_s=0.0)


def quiet(line):
    pass


def test_each_process_measures_the_schedule_anew(small):
    said = []
    row = noise.study_noise(small, processes=4, timing=QUICK, say=said.append)
    assert len(said) == len(row.seconds) == row.processes == 4
    # The clock is coarse: two of them may be equal.
    assert len(set(row.seconds)) > 1
    assert row.schedule == "default schedule (matmul)" and row.q25_s <= row.median_s <= row.q75_s


def test_a_spread_needs_two_processes(small):
    with pytest.raises(InputError, match="at least 2 processes: processes=1"):
        noise.study_noise(small, processes=1)


def test_a_schedule_that_is_wrong_is_not_timed(small, monkeypatch):
    def wrong(schedule, target, path):
        export_kernel(small.func.with_body(tvm.tirx.Evaluate(0)), target, path)

    monkeypatch.setattr(noise, "export_kernel", wrong)
    with pytest.raises(InputError, match="cannot be timed: wrong_result"):
        noise.study_noise(small, processes=2, say=quiet)
