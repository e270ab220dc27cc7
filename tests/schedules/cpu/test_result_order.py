"""Results that are sums in another order: which of them tiles write themselves, and that they are right."""

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.machine.facts import facts
from tunesmith.schedules import rules_for
from tunesmith.schedules.analysis import block_names
from tunesmith.schedules.cpu.matmul import MATMUL
from tunesmith.schedules.nests.contraction import find_contraction
from tunesmith.tuning.records.compilation import replay_trace, trace_text
from tvm import te

UP = {"n": 2, "h": 8, "w": 12, "ci": 32, "co": 32, "kh": 2, "kw": 2, "stride": 2}
IMAGE = {"n": 1, "h": 8, "w": 12, "ci": 32, "co": 32, "kh": 1, "kw": 1}
LANES = facts(ts.host_target()).lanes("float32")
# Operators, and whether their tiles write the result.
WORKLOADS = {
    "up": (ts.workload("conv2d_transpose", **UP), True),
    "bias_relu": (ts.workload("conv2d_transpose", **UP, bias=1, relu=1), True),
    "rows_left": (ts.workload("conv2d_transpose", **{**UP, "h": 7, "w": 13}, bias=1), True),
    "cut_short": (ts.workload("conv2d_transpose", **{**UP, "kh": 3, "kw": 2, "stride": 3}), False),
    "thirds": (ts.workload("conv2d_transpose", **{**UP, "kh": 3, "kw": 3, "stride": 3}, relu=1), True),
    # Nine phases of one vector, in panels of two.
    "panels_filled_up": (
        ts.workload("conv2d_transpose", **{**UP, "kh": 3, "kw": 3, "stride": 3, "co": LANES}, bias=1),
        True,
    ),
    "zeros_between": (
        ts.workload("conv2d_transpose", **{**UP, "stride": 3, "output_padding": 1}, bias=1),
        True,
    ),
    "cropped": (ts.workload("conv2d_transpose", **{**UP, "kh": 4, "kw": 4, "padding": 1}), False),
    "no_vectors": (ts.workload("conv2d_transpose", **{**UP, "co": 5}), False),
    "blocked": (ts.workload("conv2d", **IMAGE, layout="NCHW16c", bias=1, relu=1), True),
    "blocked_residual": (
        ts.workload("conv2d", **{**IMAGE, "kh": 3, "kw": 5}, padding=2, residual=1, layout="NCHW16c"),
        True,
    ),
}


def outermost_loop(schedule, block):
    return schedule.get(schedule.get_loops(schedule.get_sblock(block))[0])


def product_then(shape, place):
    """Return a function that multiplies matrices of 48 x 32 and 32 x 64, and rearranges the product."""
    a, b = te.placeholder((48, 32), "float32", "a"), te.placeholder((32, 64), "float32", "b")
    k = te.reduce_axis((0, 32), "k")
    c = te.compute((48, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    out = te.compute(shape, lambda *indices: c(*place(*indices)), name="out")
    return te.create_prim_func([a, b, out], index_dtype_override="int64")


# Rearranged products, whether tiles write them, and what NumPy makes of the product.
REARRANGED = {
    "halves": (
        (2, 48, 32),
        lambda h, i, j: (i, h * 32 + j),
        True,
        lambda c: c.reshape(48, 2, 32).swapaxes(0, 1),
    ),
    "turned": ((64, 48), lambda j, i: (i, j), False, lambda c: c.T),
    "part": ((40, 64), lambda i, j: (i, j), False, lambda c: c[:40]),
    "twice": ((2, 48, 64), lambda h, i, j: (i, j), False, lambda c: np.stack([c, c])),
}


@pytest.mark.parametrize("name", REARRANGED)
def test_a_product_that_is_rearranged(name, target, run):
    shape, place, by_tiles, arranged = REARRANGED[name]
    func = product_then(shape, place)
    schedule = MATMUL.scheduled(func, target)
    assert outermost_loop(schedule, "out").same_as(outermost_loop(schedule, "product_update")) == by_tiles
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, extents).astype(np.float32) for extents in ((48, 32), (32, 64)))
    (got,) = run(schedule, [a, b])
    np.testing.assert_allclose(got, arranged(a.astype(np.float64) @ b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", WORKLOADS)
def test_tiles_write_results_that_are_each_of_their_sums_once(name, target, assert_right):
    workload, by_tiles = WORKLOADS[name]
    rule = rules_for(workload.func, target)[0]
    schedule = rule.scheduled(workload.func, target)
    last, sums = block_names(schedule)[-1], find_contraction(workload.func).block
    result = schedule.get(schedule.get_sblock(last)).writes[0].source
    assert result.same_as(schedule.mod["main"].params[-1])
    assert outermost_loop(schedule, last).same_as(outermost_loop(schedule, f"{sums}_update")) == by_tiles
    assert_right(workload, schedule)
    assert replay_trace(trace_text(schedule), workload.func).mod.script() == schedule.mod.script()
