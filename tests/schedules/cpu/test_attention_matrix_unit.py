"""Attention by a matrix unit: that every point is right, exact, and where it applies."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.kernels.attention import vary
from tunesmith.kernels.operator import as_prim_func
from tunesmith.machine.arrays import aligned_empty
from tunesmith.machine.facts import facts, has_feature
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.c_source import c_source
from tunesmith.schedules.code_generation import finished
from tunesmith.schedules.cpu import attention_matrix_unit
from tunesmith.schedules.cpu.attention import ATTENTION
from tunesmith.schedules.cpu.attention_matrix_unit import ATTENTION_MATRIX_UNIT
from tunesmith.tuning.measuring.verdict import compare
from tunesmith.tuning.measuring.verification import expected_output, inputs_of, workload_tolerance
from tunesmith.tuning.records.compilation import replay_trace, trace_text
from tvm import te, tirx

CPU = {"kind": "llvm", "mcpu": "sapphirerapids", "mtriple": "x86_64-linux", "num-cores": 2}
SHAPES = {
    "whole": {"heads": 2, "m": 64, "n": 96, "d": 32},
    "ragged_queries": {"heads": 2, "m": 75, "n": 64, "d": 64},
    "odd_keys": {"heads": 2, "m": 37, "n": 77, "d": 32},
    "one_panel": {"heads": 3, "m": 40, "n": 32, "d": 32},
    "fewer_keys_than_a_panel": {"heads": 3, "m": 33, "n": 19, "d": 32},
    "few_queries": {"heads": 2, "m": 5, "n": 64, "d": 96},
    "causal": {"heads": 2, "m": 64, "n": 160, "d": 32, "causal": 1},
    "causal_square": {"heads": 1, "m": 128, "n": 128, "d": 32, "causal": 1},
    "odd_keys_causal": {"heads": 2, "m": 37, "n": 41, "d": 32, "causal": 1},
    "grouped": {"heads": 6, "m": 48, "n": 64, "d": 32, "kv_heads": 2},
    "odd_grouped": {"heads": 6, "m": 17, "n": 31, "d": 64, "kv_heads": 3},
    "causal_for_all": {"heads": 4, "m": 40, "n": 70, "d": 32, "kv_heads": 1, "causal": 1},
    "parallel": {"heads": 4, "m": 64, "n": 128, "d": 64},
}

permitted = pytest.mark.skipif(
    not has_feature(ts.host_target(), "amx-bf16"), reason="this machine has no AMX, or no leave to use it"
)


@pytest.fixture(scope="module")
def amx():
    return as_target(CPU)


@pytest.fixture
def always(monkeypatch):
    """Let it apply to what is small, and quickly tested."""
    monkeypatch.setattr(attention_matrix_unit, "_share_of_vectors", lambda *_: 0.0)


def of(name, **more):
    return ts.workload("attention", **SHAPES[name], **more)


@permitted
@pytest.mark.parametrize("name", SHAPES)
def test_points_of_the_space_are_right(name, always, target, assert_points_right):
    workload = of(name)
    space = ATTENTION_MATRIX_UNIT.space(workload.func, target)
    drawn = np.random.default_rng(7).choice(len(space.points), min(2, len(space.points)), replace=False)
    assert_points_right(ATTENTION_MATRIX_UNIT, workload, [space.points[i] for i in drawn])


@permitted
@pytest.mark.parametrize("name", [name for name in SHAPES if SHAPES[name]["heads"] > 1])
def test_each_head_decides_by_lengths_whether_it_needs_maxima(name, always, target, run):
    """The last head has long queries and keys, though no large scores; the first has not."""
    workload = of(name)
    inputs = inputs_of(workload, 0)
    vary(*(array[-1:] for array in inputs))
    (got,) = run(
        ATTENTION_MATRIX_UNIT.scheduled(workload.func, target, {"bounded": 1}), inputs, optimized=False
    )
    verdict = compare(got, expected_output(workload, inputs), workload_tolerance(workload))
    assert verdict.ok, verdict.message


@permitted
@pytest.mark.parametrize("bounded", [0, 1])
@pytest.mark.parametrize("factor", [1, 30])
def test_results_are_no_less_exact_than_those_of_vectors(factor, bounded, always, target, run):
    workload = ts.workload("attention", heads=4, m=128, n=256, d=64)
    inputs = inputs_of(workload, 0)
    inputs[0] *= factor  # by 30, scores are too large to do without maxima
    exact = expected_output(workload, [array.astype("float64") for array in inputs])
    by_unit, by_vectors = (
        np.abs(run(rule.scheduled(workload.func, target, {"bounded": bounded}), inputs, 0)[0] - exact).mean()
        for rule in (ATTENTION_MATRIX_UNIT, ATTENTION)
    )
    assert by_unit < by_vectors


@permitted
@pytest.mark.parametrize("hidden", [-1e30, -inf])
def test_scores_that_a_mask_hides_have_no_weight(hidden, always, target, assert_same_outputs):
    """Also where it hides them by an infinity, which is no sum of parts."""
    shape, scores = (2, 48, 32), (2, 48, 48)
    Q, K, V = (te.placeholder(shape, name=name) for name in "QKV")
    c, t, u, j = (te.reduce_axis((0, extent)) for extent in (32, 48, 48, 48))
    product = te.compute(scores, lambda h, i, k: te.sum(Q[h, i, c] * K[h, k, c], axis=c), name="product")
    score = te.compute(
        scores,
        lambda h, i, k: tirx.Select(
            k % 3 != i % 3, product[h, i, k] * tirx.const(2.0, "float32"), tirx.const(hidden, "float32")
        ),
        name="score",
    )
    top = te.compute((2, 48), lambda h, i: te.max(score[h, i, t], axis=t), name="top")
    weight = te.compute(scores, lambda h, i, k: tirx.exp2(score[h, i, k] - top[h, i]), name="weight")
    total = te.compute((2, 48), lambda h, i: te.sum(weight[h, i, u], axis=u), name="total")
    mixed = te.compute(shape, lambda h, i, e: te.sum(weight[h, i, j] * V[h, j, e], axis=j), name="mixed")
    func = as_prim_func([Q, K, V, te.compute(shape, lambda h, i, e: mixed[h, i, e] / total[h, i])])
    schedule = ATTENTION_MATRIX_UNIT.scheduled(func, target)
    assert ATTENTION_MATRIX_UNIT.space(func, target).default["bounded"] == (hidden > -inf)
    assert_same_outputs(func, schedule)


@permitted
@pytest.mark.parametrize("name", ["whole", "odd_keys"])
@pytest.mark.parametrize("bounded", [0, 1])
def test_a_trace_makes_the_same_schedule(name, bounded, always, target):
    func = of(name).func
    schedule = ATTENTION_MATRIX_UNIT.scheduled(func, target, {"bounded": bounded})
    again = replay_trace(trace_text(schedule), func)
    assert finished(again.mod, target).script() == finished(schedule.mod, target).script()


def test_products_are_the_units_and_weights_go_to_it_from_registers(amx):
    """One configuration for both products; where scores are little, no pass over them is made."""
    func = ts.workload("attention", heads=8, m=1024, n=1024, d=64).func
    schedule = ATTENTION_MATRIX_UNIT.scheduled(func, amx)
    text = finished(schedule.mod, amx).script()
    assert text.count("ldtilecfg") == 1
    assert text.count("tilezero") == 8
    assert text.count("tdpbf16ps") == 2 * 24
    score = text.index("tilestored64")
    assert "attention_parts" in text[score : text.index("tilezero", score)]


def test_heads_that_share_keys_share_their_panels(amx):
    func = ts.workload("attention", heads=8, m=256, n=256, d=64, kv_heads=2).func
    space = ATTENTION_MATRIX_UNIT.space(func, amx)
    assert space.default["group"] == 4
    assert {point["group"] for point in space.points} == {1, 4}
    for group, heads in ((1, 8), (4, 2)):
        text = finished(ATTENTION_MATRIX_UNIT.scheduled(func, amx, {"group": group}).mod, amx).script()
        assert f"in T.parallel(T.int64({heads}))" in text


@permitted
@pytest.mark.parametrize(
    ("shape", "block", "parts"),
    [
        ({"heads": 1, "m": 75, "n": 96, "d": 32}, 25, 3),
        ({"heads": 3, "m": 70, "n": 77, "d": 32}, 16, 5),  # the last block is cut
        ({"heads": 1, "m": 100, "n": 100, "d": 32, "causal": 1}, 25, 2),
        ({"heads": 4, "m": 64, "n": 64, "d": 64, "kv_heads": 1}, 16, 2),
    ],
)
def test_parts_of_queries_are_right(shape, block, parts, always, target, assert_right):
    workload, heads = ts.workload("attention", **shape), shape["heads"]
    knobs = {"block": block, "mr": block, "parts": parts, "group": heads // shape.get("kv_heads", heads)}
    assert_right(workload, ATTENTION_MATRIX_UNIT.scheduled(workload.func, target, knobs))


@pytest.mark.parametrize(
    ("m", "cores", "rows", "block", "parts"),
    [
        (197, 2, 25, 100, 2),
        (197, 8, 29, 116, 1),  # too few for each thread
        (1030, 16, 13, 13, 16),  # 80 tiles, 5 a part
        (4096, 2, 32, 128, 2),
        (2080, 2, 31, 62, 2),  # 68 tiles, 34 a part
    ],
)
def test_a_single_head_is_shared_in_even_tiles(m, cores, rows, block, parts, always, monkeypatch):
    target = as_target({**CPU, "num-cores": cores})
    machine = replace(facts(target), l2_bytes=1 << 20)
    monkeypatch.setattr(attention_matrix_unit, "facts", lambda _: machine)
    func = ts.workload("attention", heads=1, m=m, n=4096, d=64).func
    default = ATTENTION_MATRIX_UNIT.space(func, target).default
    assert (default["mr"], default["block"], default["parts"]) == (rows, block, parts)


@pytest.mark.parametrize("name", ["odd_keys", "causal"])
def test_c_source_says_in_float32_what_is_computed(name, always, amx, compiled_c):
    workload = of(name)
    source = c_source(ATTENTION_MATRIX_UNIT.scheduled(workload.func, amx), "kernel")
    function, _ = compiled_c(source, "kernel")
    inputs = inputs_of(workload, 0)
    out = aligned_empty(inputs[0].shape, "float32")
    function(*inputs, out)
    verdict = compare(out, expected_output(workload, inputs), workload_tolerance(workload))
    assert verdict.ok, verdict.message


@pytest.mark.parametrize(
    ("shape", "block"),
    [({"m": 1024, "n": 1024}, 32), ({"m": 4096, "n": 4096}, 128), ({"m": 75, "n": 4096}, 75)],
)
def test_panels_from_beyond_l2_are_read_once_for_several_tiles(shape, block, always, amx, monkeypatch):
    machine = replace(facts(amx), l2_bytes=2 << 20)
    monkeypatch.setattr(attention_matrix_unit, "facts", lambda _: machine)
    func = ts.workload("attention", heads=8, d=64, **shape).func
    assert ATTENTION_MATRIX_UNIT.space(func, amx).default["block"] == block
    causal = ts.workload("attention", heads=8, d=64, causal=1, **shape).func
    default = ATTENTION_MATRIX_UNIT.space(causal, amx).default
    assert default["block"] == default["mr"]


@pytest.mark.parametrize(
    ("shape", "applies"),
    [
        ({"heads": 8, "m": 1024, "n": 1024, "d": 128}, True),
        ({"heads": 8, "m": 1024, "n": 1024, "d": 64}, True),
        ({"heads": 12, "m": 32, "n": 32, "d": 64}, False),  # too few to repay splitting
        ({"heads": 12, "m": 1024, "n": 1024, "d": 128, "kv_heads": 2}, True),
        ({"heads": 32, "m": 1, "n": 1024, "d": 128}, False),
        ({"heads": 8, "m": 1024, "n": 1024, "d": 40}, False),  # no whole steps
    ],
)
def test_where_it_applies_it_leaves_the_default_to_vectors(shape, applies, amx):
    """Where the host throttles the unit, attention of 64 elements takes 1.5 of the time of vectors."""
    rules = rules_for(ts.workload("attention", **shape).func, amx)
    assert (ATTENTION_MATRIX_UNIT in rules, rules[0] is ATTENTION) == (applies, True)


@permitted
@pytest.mark.parametrize(
    ("name", "factor"),
    [("ragged_queries", 1), ("odd_keys_causal", 30), ("odd_grouped", 1), ("one_panel", 30)],
)
def test_bfloat16_is_right(name, factor, target, run):
    workload = of(name, dtype="bfloat16")
    assert rules_for(workload.func, target)[0] is ATTENTION_MATRIX_UNIT
    inputs = inputs_of(workload, 0, factor > 1)
    inputs[0] = (inputs[0].astype("float32") * factor).astype(inputs[0].dtype)
    (got,) = run(ATTENTION_MATRIX_UNIT.scheduled(workload.func, target), inputs, 0)
    verdict = compare(got, expected_output(workload, inputs), workload_tolerance(workload))
    assert verdict.ok, verdict.message


def test_bfloat16_is_multiplied_as_it_is_and_weights_have_two_parts(amx):
    schedule = ATTENTION_MATRIX_UNIT.scheduled(of("whole", dtype="bfloat16").func, amx)
    text = finished(schedule.mod, amx).script()
    assert text.count("tdpbf16ps") == 4 * (1 + 2)
    space = ATTENTION_MATRIX_UNIT.space(of("whole", dtype="bfloat16").func, amx)
    assert {point["bounded"] for point in space.points} == {0}  # scores have no two parts


@pytest.mark.parametrize(("result", "applies"), [("bfloat16", True), ("float32", False)])
def test_results_that_show_more_bits_than_weights_have_are_left_to_others(result, applies, amx):
    shape, scores = (2, 64, 32), (2, 64, 64)
    Q, K, V = (te.placeholder(shape, "bfloat16", name=name) for name in "QKV")
    c, t, u, j = (te.reduce_axis((0, extent)) for extent in (32, 64, 64, 64))
    q, k, v = (lambda *at, x=x: x(*at).astype("float32") for x in (Q, K, V))
    score = te.compute(scores, lambda h, i, n: te.sum(q(h, i, c) * k(h, n, c), axis=c), name="product")
    score = te.compute(scores, lambda h, i, n: score[h, i, n] * tirx.const(2.0, "float32"), name="score")
    top = te.compute((2, 64), lambda h, i: te.max(score[h, i, t], axis=t), name="top")
    weight = te.compute(scores, lambda h, i, n: tirx.exp2(score[h, i, n] - top[h, i]), name="weight")
    total = te.compute((2, 64), lambda h, i: te.sum(weight[h, i, u], axis=u), name="total")
    mixed = te.compute(shape, lambda h, i, e: te.sum(weight[h, i, j] * v(h, j, e), axis=j), name="mixed")
    output = te.compute(shape, lambda h, i, e: (mixed[h, i, e] / total[h, i]).astype(result), name="output")
    func = as_prim_func([Q, K, V, output])
    assert (ATTENTION_MATRIX_UNIT.space(func, amx) is not None) == applies


def test_a_product_of_float32_by_bfloat16_is_left_to_others(amx):
    A, B = te.placeholder((256, 256), "float32", name="A"), te.placeholder((256, 256), "bfloat16", name="B")
    k = te.reduce_axis((0, 256), name="k")
    product = te.compute((256, 256), lambda i, j: te.sum(A[i, k] * B[k, j].astype("float32"), axis=k))
    names = [rule.name for rule in rules_for(as_prim_func([A, B, product]), amx)]
    assert names[0] == "widened_matmul"


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types_are_left_to_others(dtype, amx):
    func = ts.workload("attention", dtype=dtype, heads=8, m=512, n=512, d=64).func
    assert ATTENTION_MATRIX_UNIT.space(func, amx) is None


def test_other_machines_have_none(always):
    target = as_target({**CPU, "mcpu": "x86-64-v4"})
    assert ATTENTION_MATRIX_UNIT.space(of("whole").func, target) is None
