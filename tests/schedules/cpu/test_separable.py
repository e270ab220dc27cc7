"""Windows along lines in two steps: which are found, and that every block of lines is right."""

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.algorithms import in_form
from tunesmith.schedules.code_generation import generate_code
from tunesmith.schedules.cpu.separable import SEPARABLE
from tunesmith.schedules.forms.separable import find_separable, restate
from tvm import te

IMAGE = {"n": 2, "h": 12, "w": 15, "c": 3, "layout": "NCHW"}
POOL = {**IMAGE, "kernel": 3, "stride": 2, "padding": 1}


def taken(*tensors):
    """Return a workload of TE tensors, inputs first."""
    func = te.create_prim_func(list(tensors), index_dtype_override="int64")
    return ts.Workload("mine", {}, "float32", func.with_attr("global_symbol", "main"), flops=1)


def reduced_cubes():
    """Minima of cubes along two axes, of values that are computed before, with an epilogue."""
    x = te.placeholder((2, 6, 7, 18), name="x")
    a, i, j = (te.reduce_axis((0, n), name=name) for name, n in (("a", 2), ("i", 3), ("j", 4)))
    half = te.compute(x.shape, lambda *at: x(*at) * 0.5, name="half")
    least = te.compute(
        (2, 5, 3, 8),
        lambda n, d, p, q: te.min(half[n, d + a, 2 * p + i, 2 * q + j], axis=[a, i, j]),
        name="least",
    )
    return taken(x, te.compute(least.shape, lambda *at: least(*at) + 1.0, name="more"))


def dilated_sums():
    """Sums of every third column, of squares."""
    x = te.placeholder((9, 40), name="x")
    i, j = te.reduce_axis((0, 3), name="i"), te.reduce_axis((0, 5), name="j")
    value = lambda p, q: x[p + i, q + 3 * j]  # noqa: E731
    total = te.compute((7, 28), lambda p, q: te.sum(value(p, q) * 2.0, axis=[i, j]), name="total")
    return taken(x, total)


WORKLOADS = {
    "max_pool": ts.workload("max_pool2d", **POOL),
    "max_pool_unpadded": ts.workload("max_pool2d", **{**POOL, "padding": 0, "kernel": 2}),
    "max_pool_int8": ts.workload("max_pool2d", dtype="int8", **POOL),
    "avg_pool": ts.workload("avg_pool2d", **POOL),
    "avg_pool_half": ts.workload("avg_pool2d", dtype="float16", **{**POOL, "stride": 1}),
    "large_window": ts.workload("max_pool2d", **{**POOL, "kernel": 11, "stride": 1, "padding": 5}),
    "large": ts.workload("max_pool2d", **{**POOL, "h": 60, "w": 61, "c": 16}),
    "cubes": reduced_cubes(),
    "dilated": dilated_sums(),
}


def weighted():
    """A window with a weight: no sum of one operand."""
    x, w = te.placeholder((9, 20), name="x"), te.placeholder((3, 3), name="w")
    i, j = te.reduce_axis((0, 3), name="i"), te.reduce_axis((0, 3), name="j")
    return taken(
        x, w, te.compute((7, 18), lambda p, q: te.sum(x[p + i, q + j] * w[i, j], axis=[i, j]), name="y")
    )


def placed():
    """A sum that counts its elements by their place."""
    x = te.placeholder((9, 20), name="x")
    i, j = te.reduce_axis((0, 3), name="i"), te.reduce_axis((0, 3), name="j")
    value = lambda p, q: x[p + i, q + j] * i.astype("float32")  # noqa: E731
    return taken(x, te.compute((7, 18), lambda p, q: te.sum(value(p, q), axis=[i, j]), name="y"))


def diagonal():
    """Windows that lean: the columns are not those of the lines."""
    x = te.placeholder((9, 30), name="x")
    i, j = te.reduce_axis((0, 3), name="i"), te.reduce_axis((0, 3), name="j")
    return taken(x, te.compute((7, 18), lambda p, q: te.max(x[p + i, q + j + i], axis=[i, j]), name="y"))


def leaning():
    """Windows that go down along the line."""
    x = te.placeholder((30, 20), name="x")
    i, j = te.reduce_axis((0, 3), name="i"), te.reduce_axis((0, 3), name="j")
    return taken(x, te.compute((7, 18), lambda p, q: te.max(x[p + q + i, q + j], axis=[i, j]), name="y"))


def begun():
    """Sums that begin with 1: in two steps it would be added more than once."""
    more = te.comm_reducer(lambda a, b: a + b, lambda dtype: tvm.tirx.const(1, dtype))
    x = te.placeholder((9, 20), name="x")
    i, j = te.reduce_axis((0, 3), name="i"), te.reduce_axis((0, 3), name="j")
    return taken(x, te.compute((7, 18), lambda p, q: more(x[p + i, q + j], axis=[i, j]), name="y"))


OTHERS = {
    "channels_last": ts.workload("max_pool2d", **{**POOL, "layout": "NHWC"}),
    "short_lines": ts.workload("max_pool2d", **{**POOL, "w": 5}),
    "one_line": ts.workload("max_pool2d", **{**POOL, "w": 8, "kernel": 8, "padding": 0}),
    "of_one_pixel": ts.workload("max_pool2d", **{**POOL, "kernel": 1, "padding": 0}),
    "global": ts.workload("global_avg_pool2d", **IMAGE),
    "product": ts.workload("matmul", m=8, n=8, k=8),
    "softmax": ts.workload("softmax", m=8, n=8),
    "weighted": weighted(),
    "placed": placed(),
    "diagonal": diagonal(),
    "leaning": leaning(),
    "begun": begun(),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_found_and_every_block_of_lines_is_right(name, target, assert_points_right):
    workload = WORKLOADS[name]
    assert SEPARABLE in rules_for(workload.func, target)[:2]
    assert_points_right(SEPARABLE, workload, SEPARABLE.space(workload.func, target).points)


@pytest.mark.parametrize(
    ("mcpu", "dtype", "stride", "side", "lanes", "lines"),
    [
        ("x86-64-v4", "float32", 1, 7, 16, 7),
        ("x86-64-v4", "float32", 1, 112, 16, 16),  # 7 KiB of columns, a quarter of 32
        ("x86-64-v4", "float32", 2, 112, 1, 56),
        ("x86-64-v4", "float16", 1, 112, 1, 112),
        ("x86-64-v4", "float64", 1, 14, 1, 14),
        ("haswell", "float32", 1, 7, 1, 7),
        ("haswell", "float32", 1, 112, 1, 112),
    ],
)
def test_lines_are_masked_vectors_where_windows_move_by_one(mcpu, dtype, stride, side, lanes, lines):
    shape = {**POOL, "n": 1, "c": 64, "h": side, "w": side, "stride": stride, "dtype": dtype}
    machine = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    default = SEPARABLE.space(ts.workload("max_pool2d", **shape).func, machine).default
    assert (default["lanes"], default["lines"]) == (lanes, lines)


def test_masked_lines_are_vectors_only():
    cpu = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    workload = ts.workload("max_pool2d", n=1, h=7, w=7, c=64, kernel=3, padding=1, layout="NCHW")
    code = generate_code(SEPARABLE.scheduled(workload.func, cpu).mod, cpu).mod.inspect_source("asm")
    assert "vmaxps" in code and "vmaxss" not in code and "{%k" in code


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_alone(name, target):
    assert SEPARABLE.space(OTHERS[name].func, target) is None


def test_columns_are_reduced_before_lines():
    found = find_separable(WORKLOADS["cubes"].func)
    assert found.axis == 3 and int(found.along.dom.extent) == 4
    assert [int(v.dom.extent) for v in found.down] == [2, 3]
    script = restate(WORKLOADS["cubes"].func, 3).script()
    assert script.index("separable_down") < script.index("separable_along")
    assert "(T.int64(2), T.int64(5), T.int64(3), T.int64(18))" in script


@pytest.mark.parametrize("lowest", [-np.inf, np.finfo("float32").min, 0.5])
def test_what_a_maximum_begins_with_stays_what_it_was(lowest, target):
    at_least = te.comm_reducer(lambda a, b: tvm.tirx.Max(a, b), lambda dtype: tvm.tirx.const(lowest, dtype))
    x = te.placeholder((6, 16), name="x")
    i, j = te.reduce_axis((0, 2), name="i"), te.reduce_axis((0, 2), name="j")
    workload = taken(
        x, te.compute((5, 15), lambda p, q: at_least(x[p + i, q + j], axis=[i, j]), name="greatest")
    )
    run = tvm.compile(SEPARABLE.scheduled(workload.func, target).mod, target)
    values = np.random.default_rng(0).uniform(-1, 1, (6, 16)).astype("float32")
    found = tvm.runtime.tensor(np.zeros((5, 15), "float32"))
    run["main"](tvm.runtime.tensor(values), found)
    want = np.lib.stride_tricks.sliding_window_view(values, (2, 2)).max((2, 3))
    np.testing.assert_array_equal(found.numpy(), np.maximum(want, np.float32(lowest)))


def test_a_trace_that_names_another_axis_is_refused():
    func = WORKLOADS["max_pool"].func
    with pytest.raises(InputError, match="no window that is reduced along dimension 2 last"):
        in_form(func, '"tunesmith.algorithm.separable_2"')
    assert in_form(func, '"tunesmith.algorithm.separable_3"').script() == restate(func, 3).script()


def test_tiny_windows_stay_on_one_thread_and_large_ones_are_shared_evenly(target):
    assert "T.parallel" not in SEPARABLE.scheduled(WORKLOADS["max_pool"].func, target).mod.script()
    assert "T.parallel" in SEPARABLE.scheduled(WORKLOADS["large"].func, target).mod.script()
    one_image = ts.workload("max_pool2d", **{**POOL, "n": 1, "c": 1, "h": 224, "w": 224})
    assert SEPARABLE.space(one_image.func, target).default["lines"] == 56
