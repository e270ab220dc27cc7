"""An intermediate in the place of the output: where there is one, and that nothing else changes."""

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels.operator import as_prim_func
from tunesmith.schedules.cpu.rows import ROWS
from tunesmith.schedules.nests.rows import find_rows
from tunesmith.schedules.passes.in_place import IN_PLACE_MARK, with_shared_buffers
from tvm import te, topi


def of(function, *shapes, dtype="float32"):
    inputs = [te.placeholder(shape, dtype, name=f"x{i}") for i, shape in enumerate(shapes)]
    return as_prim_func([*inputs, function(*inputs)])


def shifted(x):
    """Divide exponentials by the sum of themselves and of those one row further: read at other positions."""
    e = te.compute((32, 64), lambda i, j: te.exp(x[i, j]), name="e")
    j = te.reduce_axis((0, 64), name="j")
    total = te.compute((32,), lambda i: te.sum(e[i, j], axis=j), name="total")
    return te.compute((32, 64), lambda i, k: e[i, 63 - k] / total[i], name="turned")


def widened(x):
    """Return float64: an output of another type than its intermediates."""
    e = te.compute((32, 64), lambda i, j: te.exp(x[i, j]), name="e")
    j = te.reduce_axis((0, 64), name="j")
    total = te.compute((32,), lambda i: te.sum(e[i, j], axis=j), name="total")
    return te.compute((32, 64), lambda i, k: (e[i, k] / total[i]).astype("float64"), name="wide")


@pytest.mark.parametrize(
    ("func", "block"),
    [
        (ts.workload("softmax", m=32, n=64).func, "exp"),
        (of(topi.nn.softmax, (32, 64)), "T_softmax_exp"),
        (ts.workload("softmax", m=32, n=64, dtype="float16").func, ""),
        (ts.workload("log_softmax", m=32, n=64).func, ""),
        (ts.workload("sum", c=32, d=64).func, ""),
        (of(shifted, (32, 64)), ""),
        (of(widened, (32, 64)), ""),
    ],
)
def test_what_is_last_read_where_the_output_is_written_can_be_in_its_place(func, block):
    assert find_rows(func).in_place == block


@pytest.mark.parametrize("shape", [{"m": 32, "n": 64}, {"m": 5, "n": 333}])
def test_buffers_become_one_and_the_result_is_the_same(shape, target, assert_same_outputs):
    workload = ts.workload("softmax", **shape)
    sch = ROWS.scheduled(workload.func, target)
    assert "exp = T.sblock_alloc_buffer" in sch.mod.script()
    shared = with_shared_buffers(sch.mod)
    assert "exp = T.sblock_alloc_buffer" not in shared.script()
    assert with_shared_buffers(shared) is shared
    assert_same_outputs(workload.func, sch)
    # Whoever compiles the schedule by TVM itself has two buffers.
    x = np.random.default_rng(0).standard_normal((shape["m"], shape["n"]), np.float32)
    given, found = tvm.runtime.tensor(x), tvm.runtime.empty(x.shape, "float32")
    tvm.compile(sch.mod, target=target)["main"](given, found)
    assert np.allclose(found.numpy(), workload.reference(x), rtol=1e-5, atol=1e-7)


def test_what_is_written_past_the_caches_is_not_read_again(target):
    func = ts.workload("softmax", m=32, n=64).func
    marks = [IN_PLACE_MARK in ROWS.scheduled(func, target, {"stream": s}).mod.script() for s in (0, 1)]
    assert marks == [True, False]


def test_other_modules_stay_as_they_are():
    mod = tvm.IRModule({"main": ts.workload("relu", m=8, n=8).func})
    assert with_shared_buffers(mod) is mod
