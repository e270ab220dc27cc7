"""Rows of a few elements: which are taken, that columns of them are right, and past the caches."""

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target, host_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.algorithms import begin
from tunesmith.schedules.code_generation import generate_code
from tunesmith.schedules.cpu.rows import ROWS
from tunesmith.schedules.cpu.short_rows import SHORT_ROWS
from tunesmith.schedules.forms import vector_columns
from tunesmith.schedules.forms.short_rows import find_short_rows, restate
from tvm import te, tirx
from tvm.script import tirx as T

AVX512, AVX2 = (
    as_target({"kind": "llvm", "mcpu": f"x86-64-{level}", "mtriple": "x86_64-linux", "num-cores": 2})
    for level in ("v4", "v3")
)
NEON = as_target({"kind": "llvm", "mcpu": "neoverse-n1", "mtriple": "aarch64-linux-gnu", "num-cores": 2})


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
def test_columns_of_rows_and_back(lanes, monkeypatch):
    monkeypatch.setattr(vector_columns, "shuffled", lambda v, places: np.concatenate(v)[[*places]])
    steps = []

    def named(vector):
        steps.append(vector)
        return vector

    for n in range(1, 41):
        rows = np.arange(lanes * n).reshape(lanes, n)
        columns = vector_columns.columns_of_rows(list(rows.reshape(n, lanes)), lanes, named)
        assert np.array_equal(columns, rows.T)
        back = vector_columns.rows_of_columns(columns, lanes, named)
        assert np.array_equal(np.concatenate(back), np.arange(lanes * n))
        assert len(steps) <= 2 * n * (1 + n.bit_length())
        steps.clear()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("op", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
@pytest.mark.parametrize(("m", "n"), [(16, 2), (35, 3), (64, 10), (129, 7)])
def test_columns_are_right(op, m, n, dtype, assert_right):
    workload = ts.workload(op, dtype=dtype, m=m, n=n)
    for lanes, stream in ((4, 0), (16, m * n % 16 == 0)):
        schedule = begin(workload.func, f"short_rows_{lanes}_{int(stream)}")
        SHORT_ROWS.rewrite(schedule, lanes=lanes, parallel=1, stream=stream)
        assert_right(workload, schedule)


@pytest.mark.parametrize(("op", "dtype"), [("sum", "float32"), ("mean", "float16"), ("max", "int8")])
@pytest.mark.parametrize("shape", [{"c": 50, "d": 7}, {"a": 3, "b": 11, "c": 3, "d": 2, "axes": "cd"}])
def test_reductions_of_several_axes_are_right(op, shape, dtype, assert_right):
    workload = ts.workload(op, dtype=dtype, **shape)
    schedule = begin(workload.func, "short_rows_8_0")
    SHORT_ROWS.rewrite(schedule, lanes=8, parallel=1, stream=0)
    assert_right(workload, schedule)


@pytest.mark.parametrize(
    ("op", "target", "longest"),
    [("softmax", AVX512, 23), ("layer_norm", AVX512, 15), ("softmax", AVX2, 11), ("rms_norm", NEON, 3)],
)
def test_rows_of_fewer_elements_than_lanes_are_taken(op, target, longest):
    taken = [n for n in range(1, 40) if SHORT_ROWS.space(ts.workload(op, m=100, n=n).func, target)]
    lanes = facts(target).lanes("float32")
    assert taken == [n for n in range(2, longest + 1) if n != lanes]


def test_bytes_have_more_lanes_than_columns_have_registers():
    taken = [
        n for n in range(28, 40) if SHORT_ROWS.space(ts.workload("max", dtype="int8", c=64, d=n).func, AVX512)
    ]
    assert taken == [28, 29, 30, 31, 32]


def test_rows_fewer_than_lanes_are_left():
    default = {m: rules_for(ts.workload("softmax", m=m, n=3).func, AVX512)[0] for m in (15, 16)}
    assert default == {15: ROWS, 16: SHORT_ROWS}


@pytest.mark.parametrize(
    "workload",
    [
        ts.workload("softmax", dtype="bfloat16", m=64, n=3),
        ts.workload("argmax", c=64, d=3),
        ts.workload("sum", c=64, d=3, axes="c"),
        ts.workload("group_norm", n=64, h=1, w=1, c=6, groups=2),
        ts.workload("relu", m=64, n=3),
        ts.workload("matmul", m=64, n=3, k=3),
    ],
    ids=lambda w: w.label,
)
def test_others_are_left_alone(workload):
    assert find_short_rows(workload.func) is None and SHORT_ROWS.space(workload.func, AVX512) is None


def test_a_form_that_does_not_fit_is_refused():
    few, others = ts.workload("softmax", m=15, n=3), ts.workload("relu", m=64, n=3)
    for workload, lanes in ((few, 16), (others, 16), (few, 6)):
        with pytest.raises(InputError, match=f"does not work on {lanes} rows or more"):
            restate(workload.func, lanes, 0)
    with pytest.raises(InputError, match="no multiple of 16"):
        restate(ts.workload("softmax", m=31, n=3).func, 16, 1)


def test_an_output_beyond_the_caches_is_written_past_them_where_vectors_are_aligned():
    machine = facts(AVX512)
    rows = 16 * (machine.kept_by_l3 // 64)
    spaces = [SHORT_ROWS.space(ts.workload("softmax", m=m, n=3).func, AVX512) for m in (rows, rows + 1)]
    assert [space.default["stream"] for space in spaces] == [1, 0]
    with pytest.raises(InputError, match="stream"):
        spaces[1].check({"stream": 1})


@pytest.mark.parametrize("target", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
def test_no_lane_is_computed_by_itself(target):
    schedule = SHORT_ROWS.scheduled(ts.workload("softmax", m=4096, n=3).func, target)
    text = generate_code(schedule.mod, target).mod.inspect_source("s")
    scalar = [line for line in text.splitlines() if line.split()[:1] in (["vmulss"], ["expf"], ["vmaxss"])]
    fmul = [line for line in text.splitlines() if "fmul\ts" in line or "fmaxnm\ts" in line]
    assert not scalar and not fmul


def masked_softmax(masks, follow=None):
    """Return a softmax of 64 x 6 as a model has it: some columns left out, and something after it."""
    x = te.placeholder((64, 6), "float32", name="x")
    k, r = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 6), "r")
    kept = te.compute(
        (64, 6), lambda i, j: T.if_then_else(j < 4, x[i, j], -1e9) if masks else x[i, j] * 2, name="kept"
    )
    top = te.compute((64,), lambda i: te.max(kept[i, k], axis=k), name="top")
    e = te.compute((64, 6), lambda i, j: te.exp(kept[i, j] - top[i]), name="e")
    total = te.compute((64,), lambda i: te.sum(e[i, r], axis=r), name="total")
    y = te.compute((64, 6), lambda i, j: (follow or (lambda v: v))(e[i, j] / total[i]), name="y")
    return te.create_prim_func([x, y])


@pytest.mark.parametrize("follow", [None, te.tanh, te.sigmoid, tirx.erf, te.sqrt])
def test_steps_of_a_model_are_right(follow, assert_same_outputs):
    func = masked_softmax(masks=False, follow=follow)
    assert_same_outputs(func, SHORT_ROWS.scheduled(func, AVX512 if facts(host_target()).has_masks else AVX2))


def test_a_step_that_chooses_is_left_to_rows():
    assert rules_for(masked_softmax(masks=True), AVX512)[0] is ROWS
