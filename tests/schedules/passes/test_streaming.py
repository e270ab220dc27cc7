"""Outputs written past the caches: where that is the default, in which instructions, and that it is right."""

import re
from dataclasses import replace

import pytest
import tunesmith as ts
import tvm
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import rule, rules_for
from tunesmith.schedules.passes import streaming
from tunesmith.schedules.passes.streaming import STREAM_MARK, exceeds_caches, stream_vectors
from tunesmith.tuning.records.compilation import build, replay_trace, trace_text
from tvm.script import tirx as T

WORKLOADS = [
    ts.workload("relu", m=33, n=64),
    ts.workload("relu", m=33, n=63),
    ts.workload("add", dtype="float64", m=7, n=48),
    ts.workload("relu", dtype="int8", m=5, n=128),
    ts.workload("softmax", m=12, n=96),
    ts.workload("layer_norm", m=9, n=64),
    ts.workload("transpose", c=32, d=64, order="abdc"),
    ts.workload("transpose", a=2, b=8, c=16, d=32, order="acbd"),
    ts.workload("conv2d", n=1, h=9, w=12, ci=32, co=32, groups=32, kh=3, kw=3, padding=1, bias=1, relu=1),
    ts.workload("max_pool2d", dtype="int8", n=2, h=9, w=9, c=64, kernel=2, stride=1),
]


def rule_of(workload, target):
    return rules_for(workload.func, target)[0]


def assembly(schedule, target):
    return build(schedule, target).mod.inspect_source("s")


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: f"{w.label} {w.dtype}")
def test_it_is_right_and_uses_stores_of_its_own(workload, target, assert_right):
    rule = rule_of(workload, target)
    ordinary, streamed = (rule.scheduled(workload.func, target, {"stream": s}) for s in (0, 1))
    assert_right(workload, streamed)
    assert "vmovnt" not in assembly(ordinary, target)
    if target.attrs["mtriple"].startswith("x86_64"):
        assert "vmovnt" in assembly(streamed, target)


@pytest.mark.parametrize(
    "workload",
    [
        ts.workload("batch_norm", n=1, h=3, w=11, c=31),  # short rows that are no whole vectors
        ts.workload("sum", c=64, d=64),  # the output is a reduction
        ts.workload("max_pool2d", dtype="bfloat16", n=1, h=6, w=6, c=32, kernel=2, stride=1),
    ],
    ids=lambda w: f"{w.label} {w.dtype}",
)
def test_what_cannot_be_streamed_is_right_as_well(workload, target, assert_right):
    streamed = rule_of(workload, target).scheduled(workload.func, target, {"stream": 1})
    assert_right(workload, streamed)
    assert "vmovnt" not in assembly(streamed, target)


def test_halves_are_right_and_have_no_such_store_in_avx512(target, assert_right):
    workload = ts.workload("relu", dtype="float16", m=33, n=64)
    avx512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2})
    here, there = (rule_of(workload, t).scheduled(workload.func, t, {"stream": 1}) for t in (target, avx512))
    assert_right(workload, here)
    assert "vmovnt" not in assembly(there, avx512)


@pytest.mark.parametrize(
    "workload",
    [
        ts.workload("relu", m=32, n=63),
        ts.workload("add", m=24, n=77, dtype="float64"),
        ts.workload("silu", m=192, n=67),
        # Rows of 28 floats are whole vectors of 128 bits; each channel has its scale, so they stay rows.
        ts.workload("batch_norm", n=1, h=3, w=5, c=28),
        ts.workload("concat", b=3, c=5, d=12, more=20),
    ],
    ids=lambda w: f"{w.label} {w.dtype}",
)
def test_rows_that_are_no_whole_vectors_are_streamed_together_or_in_narrower_ones(workload, assert_right):
    avx512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2})
    rule = rule_of(workload, avx512)
    ordinary, streamed = (rule.scheduled(workload.func, avx512, {"stream": s}) for s in (0, 1))
    stores = [build(each, avx512).mod.inspect_source("s").count("vmovntp") for each in (ordinary, streamed)]
    assert stores[0] == 0 < stores[1]
    assert_right(workload, streamed)


def test_a_marked_loop_that_computes_more_than_a_vector_stays_a_loop():
    @T.prim_func(s_tir=True)
    def two(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32"), c: T.Buffer((64,), "float32")):
        for i in T.serial(8):
            for j in T.vectorized(8, annotations={STREAM_MARK: 1}):
                b[i * 8 + j] = a[i * 8 + j]
                c[i * 8 + j] = a[i * 8 + j]

    mod = stream_vectors(tvm.IRModule({"main": two}))
    text = mod.script()
    assert "tunesmith_stream" not in text and STREAM_MARK not in text and text.count("T.vectorized") == 1


def test_a_mark_on_vectors_that_lie_otherwise_is_not_believed():
    @T.prim_func(s_tir=True)
    def elsewhere(
        a: T.Buffer((72,), "float32"), b: T.Buffer((72,), "float32"), c: T.Buffer((64, 8), "float32")
    ):
        for i in T.serial(8):
            for j in T.vectorized(8, annotations={STREAM_MARK: 1}):
                b[i * 8 + j + 1] = a[i * 8 + j]
            for j in T.vectorized(8, annotations={STREAM_MARK: 1}):
                c[i * 8 + j, 0] = a[i * 8 + j]

    text = stream_vectors(tvm.IRModule({"main": elsewhere})).script()
    assert "tunesmith_stream" not in text and text.count("T.vectorized") == 2


@pytest.mark.parametrize(
    ("operator", "columns", "lanes"),
    [
        ("layer_norm", 48, 16),
        # Longer ones are written in lines, see `test_aligned_rows`.
        ("layer_norm", 24, 8),
        ("layer_norm", 28, 4),
        ("softmax", 104, 8),
        # An exponential's vector is not cut that small, and two or single elements are not streamed.
        ("softmax", 108, 0),
        ("log_softmax", 198, 0),
        ("layer_norm", 45, 0),
    ],
)
def test_rows_are_streamed_in_vectors_that_divide_them(operator, columns, lanes, assert_same_outputs):
    avx512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2})
    func = ts.workload(operator, m=5, n=columns).func
    streamed = rule("rows").scheduled(func, avx512, {"stream": 1})
    names = set(re.findall(r"tunesmith_stream_(\d+)_float32", streamed.mod.script()))
    assert names == ({str(lanes)} if lanes else set())
    assert_same_outputs(func, streamed)


def test_what_exceeds_the_caches_is_streamed_by_default(target):
    rows = facts(target).l3_bytes // (4 * 1024) + 8
    large, small = (ts.workload("relu", m=m, n=1024) for m in (rows, 64))
    assert (exceeds_caches(large.func, target), exceeds_caches(small.func, target)) == (1, 0)
    assert rule_of(large, target).space(large.func, target).default["stream"] == 1
    assert rule_of(small, target).space(small.func, target).default["stream"] == 0


@pytest.mark.parametrize(("share", "streams"), [(0.4, 0), (0.6, 1)])
def test_of_a_table_counts_what_is_gathered(share, streams):
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2})
    rows = facts(target).l3_bytes // (4 * 1024)
    gather = ts.workload("gather", v=4 * rows, d=1024, m=int(share * rows))
    assert exceeds_caches(gather.func, target) == streams


def test_a_trace_with_a_streaming_store_is_replayed(target, assert_right):
    workload = WORKLOADS[0]
    trace = trace_text(rule_of(workload, target).scheduled(workload.func, target, {"stream": 1}))
    assert "tunesmith_stream" in trace and "define void" not in trace
    assert_right(workload, replay_trace(trace, workload.func))


@pytest.mark.parametrize(
    ("operator", "shape", "l3", "past"),
    [
        ("relu", {"m": 3136, "n": 256}, 480, 1),
        ("relu", {"m": 3136, "n": 256}, 32, 0),
        ("relu", {"m": 784, "n": 512}, 480, 0),  # L2 holds it
        ("silu", {"m": 3136, "n": 256}, 480, 0),  # exponentials take longer than stores
        ("silu", {"m": 4096, "n": 1000}, 480, 0),
        ("silu", {"m": 4096, "n": 1100}, 480, 1),  # the L3 has other cores' lines as well
        ("silu", {"m": 4096, "n": 1100}, 64, 0),
        ("gather", {"v": 30522, "d": 768, "m": 3072}, 480, 0),
        ("gather", {"v": 30522, "d": 768, "m": 8192}, 480, 1),
        ("concat", {"a": 1, "b": 256, "c": 256, "d": 128, "more": 128, "axis": "d"}, 480, 1),
    ],
)
def test_an_l3_far_away_is_written_past_as_well(operator, shape, l3, past, monkeypatch):
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    machine = replace(facts(target), l2_bytes=2 << 20, l3_bytes=l3 << 20)
    monkeypatch.setattr(streaming, "facts", lambda _: machine)
    func = ts.workload(operator, **shape).func
    space = rule("general").space(func, target)
    assert space.default["stream"] == past
