"""How panels of a weight are written."""

import pytest
import tunesmith as ts
from tunesmith.machine.target import as_target
from tunesmith.schedules.cpu.conv2d import CONV2D

AVX512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})


@pytest.mark.parametrize(("outputs", "lanes"), [(32, 16), (40, 8), (12, 4), (33, 16)])
def test_no_vector_of_a_panel_is_of_two_phases(outputs, lanes, assert_right):
    """Those would be copied element by element. Of 33 outputs no vector worth it is of one phase."""
    workload = ts.workload(
        "conv2d_transpose", n=1, h=9, w=9, ci=24, co=outputs, kh=3, kw=3, stride=2, padding=1
    )
    schedule = CONV2D.scheduled(workload.func, AVX512)
    before, *_ = schedule.mod.script().split('with T.sblock("weight_by_phase')
    assert f"T.vectorized(T.int64({lanes}))" in before.splitlines()[-2]
    assert_right(workload, schedule)
