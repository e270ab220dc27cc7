"""Attention: where it is found, and that blocks, tiles and ragged ends are right."""

import re
from dataclasses import replace
from math import ceil, e, log2, prod

import numpy as np
import pytest
import tunesmith as ts
import tvm_ffi
from tunesmith.kernels.attention import vary
from tunesmith.kernels.operator import as_prim_func
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import apply_default, rules_for
from tunesmith.schedules.algorithms import has_algorithm, in_form
from tunesmith.schedules.assembly import summing_loops
from tunesmith.schedules.code_generation import finished, generate_code
from tunesmith.schedules.cpu import attention_space
from tunesmith.schedules.cpu.attention import ATTENTION
from tunesmith.schedules.expressions import index_variables
from tunesmith.schedules.forms.attention import restate
from tunesmith.schedules.forms.attention_bound import MOST_BITS
from tunesmith.schedules.nests.attention import LITTLE, PADDED_KEYS, find_attention
from tunesmith.schedules.passes.loop_bounds import BOUNDING_MARK
from tunesmith.schedules.restatement import replaced
from tunesmith.tuning.measuring.verdict import compare
from tunesmith.tuning.measuring.verification import expected_output, inputs_of, workload_tolerance
from tunesmith.tuning.records.compilation import replay_trace, trace_text
from tvm import s_tir, te, tirx
from tvm.sym import Analyzer
from tvm.tirx import ForKind
from tvm_ffi import structural_walk

SHAPES = {
    "whole": {"heads": 2, "m": 32, "n": 64, "d": 32},
    "ragged_queries": {"heads": 2, "m": 37, "n": 48, "d": 16},
    "causal": {"heads": 2, "m": 24, "n": 40, "d": 16, "causal": 1},
    "grouped": {"heads": 6, "m": 16, "n": 32, "d": 8, "kv_heads": 2},
    "causal_from_the_first": {"heads": 2, "m": 75, "n": 96, "d": 16, "causal": 1},
    "causal_square": {"heads": 1, "m": 128, "n": 128, "d": 8, "causal": 1},
    "narrow": {"heads": 1, "m": 5, "n": 36, "d": 12},
    "odd_columns": {"heads": 2, "m": 17, "n": 48, "d": 36},
    "odd_columns_causal": {"heads": 2, "m": 33, "n": 48, "d": 20, "causal": 1},
    "all_odd": {"heads": 6, "m": 17, "n": 31, "d": 13, "kv_heads": 3},
    "two_columns": {"heads": 2, "m": 9, "n": 16, "d": 2},
    "one_query": {"heads": 4, "m": 1, "n": 64, "d": 32},
    "one_query_of_many_heads": {"heads": 32, "m": 1, "n": 96, "d": 128, "kv_heads": 8, "causal": 1},
    "one_query_odd_keys": {"heads": 2, "m": 1, "n": 37, "d": 16},
    "few_queries": {"heads": 2, "m": 4, "n": 96, "d": 40},
    "few_queries_odd_keys": {"heads": 6, "m": 3, "n": 101, "d": 24, "kv_heads": 2, "causal": 1},
    "one_query_of_heads_that_share_odd_keys": {"heads": 12, "m": 1, "n": 45, "d": 20, "kv_heads": 4},
    "odd_keys": {"heads": 2, "m": 19, "n": 197, "d": 16},
    "odd_keys_causal": {"heads": 2, "m": 37, "n": 41, "d": 16, "causal": 1},
    "odd_keys_grouped": {"heads": 6, "m": 7, "n": 77, "d": 32, "kv_heads": 2},
    "fewer_keys_than_a_vector": {"heads": 2, "m": 4, "n": 3, "d": 8},
    "parallel": {"heads": 4, "m": 64, "n": 128, "d": 64},
}


def of(shape, dtype="float32"):
    return ts.workload("attention", dtype=dtype, **shape)


@pytest.mark.parametrize("name", SHAPES)
def test_every_kind_of_point_is_right(name, target, assert_points_right):
    workload = of(SHAPES[name])
    assert rules_for(workload.func, target)[0] is ATTENTION
    space = ATTENTION.space(workload.func, target)
    assert_points_right(ATTENTION, workload, space.points[:: max(1, len(space) // 3)])


TWO_HEADS = [name for name, shape in SHAPES.items() if shape["heads"] > 1 and shape["m"] > 1]
BOUNDED = [name for name in TWO_HEADS if SHAPES[name]["d"] % 4 == 0]


def in_panels(workload, target, bounded):
    """Return knobs with which keys are panels, also where few queries would read them as they lie."""
    default = ATTENTION.space(workload.func, target).default
    return {"nr": default["nr"] or default["lanes"], "bounded": bounded}


def output_of(run, workload, target, inputs, bounded):
    """Return what attention computes with keys in panels; LLVM's optimization is not asked about."""
    schedule = ATTENTION.scheduled(workload.func, target, in_panels(workload, target, bounded))
    (output,) = run(schedule, inputs, optimized=False)
    return output


@pytest.mark.parametrize("name", BOUNDED)
def test_each_head_decides_by_lengths_whether_it_needs_maxima(name, target, run):
    """The last head has long queries and keys, though no large scores; the first has not."""
    workload = of(SHAPES[name])
    inputs = inputs_of(workload, 0)
    vary(*(array[-1:] for array in inputs))
    longest = [np.square(array).sum(axis=2).max(axis=1) for array in inputs[:2]]
    first, last = ((longest[0][at] * longest[1][at]) ** 0.5 * log2(e) for at in (0, -1))
    assert first < MOST_BITS * SHAPES[name]["d"] ** 0.5 < last
    got = output_of(run, workload, target, inputs, bounded=1)
    verdict = compare(got, expected_output(workload, inputs), workload_tolerance(workload))
    assert verdict.ok, verdict.message


@pytest.mark.parametrize("name", BOUNDED)
def test_large_scores_take_the_steps_of_before(name, target, run):
    workload = of(SHAPES[name])
    inputs = inputs_of(workload, 0)
    inputs[0] *= 1000
    got, want = (output_of(run, workload, target, inputs, bounded) for bounded in (0, 1))
    assert np.isfinite(want).all()
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e25])
def test_lengths_that_are_no_numbers_are_not_little(value, target, run):
    workload = of(SHAPES["whole"])
    inputs = inputs_of(workload, 0)
    inputs[0][0, 3, 5] = inputs[1][1, 7, 2] = value
    got, want = (output_of(run, workload, target, inputs, bounded) for bounded in (0, 1))
    assert np.isfinite(want).any()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_little_scores_run_no_loops_for_maxima():
    """They are asked for once; sums of a tile stay in registers, and nothing is left beside them in it."""
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    func = of({"heads": 2, "m": 240, "n": 512, "d": 64}).func
    schedule = ATTENTION.scheduled(func, target)
    text = finished(schedule.mod).script()
    for name in ("row_max", "row_sum"):
        skipped, level = [], None
        for line in text.splitlines():
            indent = len(line) - len(line.lstrip())
            level = None if level is not None and indent <= level else level
            if f"if not {LITTLE}" in line:
                level = indent
            if line.strip().startswith(name) and " = " in line and "alloc" not in line.lower():
                skipped.append(level is not None)
        assert skipped and all(skipped)
    loops = summing_loops(generate_code(schedule.mod, target).mod.inspect_source("asm"))
    tiles = [loop for loop in loops if loop.accumulators in (6 * 2, 6 * 4)]
    assert len(tiles) >= 2 and not any(loop.stores for loop in tiles)


@pytest.mark.parametrize(
    ("mcpu", "shape", "tile"),
    [
        ("x86-64-v4", {"m": 1024, "n": 1024, "d": 64}, (1, 6, 32, 64)),
        ("x86-64-v4", {"m": 128, "n": 128, "d": 64}, (0, 8, 32, 32)),
        ("x86-64-v4", {"m": 1024, "n": 1024, "d": 40}, (1, 6, 32, 48)),
        ("x86-64-v4", {"m": 1024, "n": 1024, "d": 13}, (0, 8, 32, 16)),
        ("x86-64-v3", {"m": 1024, "n": 1024, "d": 64}, (0, 6, 16, 16)),
    ],
)
def test_lengths_bound_scores_where_powers_of_two_are_quick_and_products_many(mcpu, shape, tile):
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    space = ATTENTION.space(of({"heads": 2, **shape}).func, target)
    assert tuple(space.default[name] for name in ("bounded", "mr", "nr", "nc")) == tile
    assert {point["bounded"] for point in space.points} == ({0, 1} if shape["d"] % 4 == 0 else {0})


@pytest.mark.parametrize("name", ["ragged_queries", "odd_keys", "odd_columns", "all_odd"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_types(name, dtype, target, assert_right):
    workload = of(SHAPES[name], dtype)
    assert_right(workload, ATTENTION.scheduled(workload.func, target))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_lengths_of_narrow_keys_that_are_padded_bound_scores(dtype, target, assert_right):
    """Keys' lengths are those of the argument: TVM lost the padded ones of bfloat16."""
    workload = of({"heads": 1, "m": 100, "n": 410, "d": 16}, dtype)
    assert_right(workload, ATTENTION.scheduled(workload.func, target, {"bounded": 1}))


@pytest.mark.parametrize("name", ["whole", "few_queries"])
def test_lengths_of_bfloat16_are_those_of_numbers(name, target):
    """TVM takes the bits of what has a name for integers: no scores would be little."""
    workload = of(SHAPES[name], "bfloat16")
    code = generate_code(
        ATTENTION.scheduled(workload.func, target, in_panels(workload, target, 1)).mod, target
    )
    assert "uitofp" not in code.mod.inspect_source("ll")


def test_its_blocks_are_found_by_what_they_compute():
    nest = find_attention(of(SHAPES["causal"]).func)
    assert (nest.product, nest.score, nest.row_max) == ("product", "score", "row_max")
    assert (nest.weight, nest.row_sum, nest.inverse, nest.mixed) == ("weight", "row_sum", "inverse", "mixed")
    assert (nest.output, nest.heads, nest.m, nest.n, nest.d) == ("attention", 2, 24, 40, 16)
    assert find_attention(of(SHAPES["causal"], "float16").func).output == "cast"


@pytest.mark.parametrize(
    "workload",
    [
        of({"heads": 2, "m": 1, "n": 32, "d": 13}),  # one query, whose keys no parts divide
        ts.workload("softmax", m=8, n=16),
        ts.workload("batch_matmul", b=2, m=8, n=8, k=8),
    ],
    ids=lambda w: w.label,
)
def test_others_are_left_alone(workload, target):
    assert ATTENTION.space(workload.func, target) is None


def masked(condition, hidden=-1e30, keys=96, also=None, queries=64, width=16):
    """Attention whose scores are hidden where a condition does not hold."""
    shapes = {"Q": (2, queries, width), "K": (2, keys, width), "V": (2, keys, 16)}
    Q, K, V = (te.placeholder(shape, name=name) for name, shape in shapes.items())
    c, t, u, j = (te.reduce_axis((0, extent)) for extent in (width, keys, keys, keys))
    scores = (2, queries, keys)
    product = te.compute(scores, lambda h, i, k: te.sum(Q[h, i, c] * K[h, k, c], axis=c), name="product")
    more = (lambda i, k: 0.0) if also is None else (lambda i, k: also[i, k])
    score = te.compute(
        scores,
        lambda h, i, k: tirx.Select(
            condition(i, k), product[h, i, k] + more(i, k), tirx.const(hidden, "float32")
        ),
        name="score",
    )
    top = te.compute((2, queries), lambda h, i: te.max(score[h, i, t], axis=t), name="top")
    weight = te.compute(scores, lambda h, i, k: te.exp(score[h, i, k] - top[h, i]), name="weight")
    total = te.compute((2, queries), lambda h, i: te.sum(weight[h, i, u], axis=u), name="total")
    columns = (2, queries, 16)
    mixed = te.compute(columns, lambda h, i, e: te.sum(weight[h, i, j] * V[h, j, e], axis=j), name="mixed")
    result = te.compute(columns, lambda h, i, e: mixed[h, i, e] / total[h, i])
    return as_prim_func([Q, K, V, *([] if also is None else [also]), result])


@pytest.mark.parametrize(
    ("condition", "hidden", "ahead"),
    [
        (lambda i, k: k <= i + 32, -1e30, 32),
        (lambda i, k: k <= i, -1e30, 0),
        # The first queries see nothing: the mean of all values, as the definition has it.
        (lambda i, k: k <= i - 3, -1e30, None),
        # A hidden key that still counts a little, a mask the other way round, and one of something else.
        (lambda i, k: k <= i + 32, -5.0, None),
        (lambda i, k: k >= i, -1e30, None),
        (lambda i, k: i <= k + 32, -1e30, None),
    ],
)
def test_what_a_causal_mask_hides_is_not_computed(condition, hidden, ahead, target, assert_same_outputs):
    func = masked(condition, hidden)
    assert find_attention(func).ahead == ahead
    assert ahead is None or ATTENTION.space(func, target).default["block"] == 64 // 8
    schedule = ATTENTION.scheduled(func, target, {"block": 8})
    assert (BOUNDING_MARK in schedule.mod.script()) == (ahead is not None)
    assert_same_outputs(func, schedule)
    lowered = finished(schedule.mod)
    lengths = []
    structural_walk(lowered["main"].body, [(tirx.For, lambda loop: lengths.append(loop.extent))])
    varying = [length for length in lengths if not isinstance(length, tirx.IntImm)]
    if ahead is None:
        assert not varying
        return
    # What the third block sees: panels of keys, steps as long over maxima, weights and sums; and each key.
    third = dict.fromkeys(index_variables(varying), tirx.IntImm("int64", 2))
    panels = ceil((3 * 8 + ahead) / ATTENTION.space(func, target).default["nr"])
    found = [int(Analyzer().simplify(replaced(length, third))) for length in varying]
    assert found == [panels] * 4 + [3 * 8 + ahead]


@pytest.mark.parametrize(
    "condition",
    [
        lambda i, k: k >= 0,
        lambda i, k: k <= i,
        lambda i, k: k <= i + 32,
        lambda i, k: k >= i,
        lambda i, k: tirx.any(i < 5, k <= i - 3),
    ],
    ids=["none", "causal", "ahead", "after", "but_the_first"],
)
@pytest.mark.parametrize("block", [12, 24])
def test_queries_left_after_whole_blocks_and_tiles_are_right(condition, block, target, assert_same_outputs):
    func = masked(condition)
    assert 64 % block and 64 % block % 6
    assert_same_outputs(func, ATTENTION.scheduled(func, target, {"block": block, "mr": 6}))


def test_tiles_of_queries_left_have_conditions_that_unrolling_decides(target):
    func = masked(lambda i, k: k >= 0)
    lowered = finished(ATTENTION.scheduled(func, target, {"block": 24, "mr": 6}).mod)
    loops, conditions = [], []
    structural_walk(lowered["main"].body, [(tirx.For, loops.append)])
    unrolled = [loop for loop in loops if loop.kind == tirx.ForKind.UNROLLED]
    for loop in unrolled:
        structural_walk(loop.body, [(tirx.IfThenElse, lambda each: conditions.append(each.condition))])
    assert conditions and index_variables(conditions) <= {loop.loop_var for loop in unrolled}


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        ({"m": 1024, "n": 1024, "d": 64}, 1),
        ({"m": 64, "n": 1024, "d": 64}, 0),  # too few tiles for a copy
        ({"m": 1024, "n": 128, "d": 64}, 0),  # they stay in L2, or L1
        ({"m": 1024, "n": 4096, "d": 16}, 0),  # a tile is as wide as they are
    ],
)
def test_many_values_are_copied_into_panels(shape, values):
    target = as_target({"kind": "llvm", "mcpu": "haswell", "mtriple": "x86_64-linux", "num-cores": 2})
    func = of({"heads": 2, **shape}).func
    assert ATTENTION.space(func, target).default["values"] == values
    script = ATTENTION.scheduled(func, target).mod.script()
    assert bool(re.search(r"V_global = \S+\((.+, ){3}T.int64\(16\)\)\)", script)) == bool(values)


@pytest.mark.parametrize(
    ("shape", "queries", "nr"),
    [
        ({"heads": 32, "kv_heads": 8, "n": 1024, "d": 128}, 4, 0),
        ({"heads": 64, "kv_heads": 8, "n": 4095, "d": 128}, 8, 0),
        ({"heads": 64, "kv_heads": 8, "n": 64, "d": 128}, 8, 32),  # worth panels, which are near
        ({"heads": 48, "kv_heads": 3, "n": 1024, "d": 128}, 1, 0),  # threads would have one and two
        ({"heads": 8, "n": 1024, "d": 128}, 1, 0),
    ],
)
def test_heads_that_share_keys_are_queries_of_one(shape, queries, nr):
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    func = of({"m": 1, **shape}).func
    default = ATTENTION.space(func, target).default
    assert (default["mr"], default["nr"], default["shared_keys"]) == (queries, nr, queries > 1)
    script = ATTENTION.scheduled(func, target).mod.script()
    assert f"in T.parallel(T.int64({shape['heads'] // queries}))" in script
    assert ("K_global" in script) == (nr > 0)
    assert PADDED_KEYS not in script  # 4095 keys are read with a condition in the last vector


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_shared_keys_of_other_types_are_right(dtype, target, assert_right):
    workload = of({"heads": 8, "m": 1, "n": 45, "d": 32, "kv_heads": 2}, dtype)
    assert_right(workload, ATTENTION.scheduled(workload.func, target))


def test_shared_keys_are_a_form_that_a_trace_names(target):
    func = of(SHAPES["one_query_of_heads_that_share_odd_keys"]).func
    schedule = ATTENTION.scheduled(func, target)
    text = trace_text(schedule)
    assert "tunesmith.algorithm.shared_keys__padded_attention_" in text
    assert tvm_ffi.structural_equal(replay_trace(text, func).mod, schedule.mod)
    with pytest.raises(InputError, match="no attention of one query a head whose keys other heads read"):
        in_form(of(SHAPES["one_query"]).func, text)


@pytest.mark.parametrize(
    ("shape", "block", "parts"),
    [
        ({"heads": 1, "m": 96, "n": 48, "d": 16}, 16, 3),
        ({"heads": 3, "m": 77, "n": 40, "d": 16}, 16, 5),  # the last block is cut
        ({"heads": 1, "m": 100, "n": 100, "d": 16, "causal": 1}, 24, 5),  # and parts have one each
        ({"heads": 3, "m": 128, "n": 160, "d": 16, "causal": 1}, 16, 2),
        ({"heads": 6, "m": 36, "n": 32, "d": 64, "kv_heads": 2}, 8, 5),
    ],
)
def test_parts_of_queries_are_right(shape, block, parts, target, assert_right):
    workload, heads = of(shape), shape["heads"]
    group = heads // shape.get("kv_heads", heads)
    knobs = {"block": block, "mr": 4, "parts": parts, "group": group}
    assert_right(workload, ATTENTION.scheduled(workload.func, target, knobs))


@pytest.mark.parametrize(
    ("shape", "group", "parts"),
    [
        ({"heads": 1, "m": 192}, 1, 2),
        ({"heads": 1, "m": 197}, 1, 2),
        ({"heads": 3, "m": 192}, 1, 2),
        ({"heads": 3, "m": 197}, 1, 2),  # 50 blocks of 4 queries, where 6 would be 33
        ({"heads": 3, "m": 197, "n": 197, "causal": 1}, 1, 1),  # whose last block each part would ask for
        ({"heads": 3, "m": 160, "n": 197, "causal": 1}, 1, 2),
        ({"heads": 5, "m": 100}, 1, 2),  # only larger blocks are as many for both
        ({"heads": 7, "m": 100}, 1, 1),  # and cost more than one thread waits
        ({"heads": 4, "m": 192, "kv_heads": 1}, 4, 2),
        ({"heads": 6, "m": 192, "kv_heads": 2}, 3, 1),
        ({"heads": 1, "m": 48}, 1, 1),  # too few for panels of their own
        ({"heads": 9, "m": 192}, 1, 1),  # enough heads
    ],
)
def test_threads_share_queries_where_heads_are_too_few(shape, group, parts):
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    func = of({"n": 192, "d": 64, **shape}).func
    default = ATTENTION.space(func, target).default
    assert (default["group"], default["parts"]) == (group, parts)
    units = shape["heads"] // group * parts
    script = ATTENTION.scheduled(func, target).mod.script()
    assert f"in T.parallel(T.int64({units}))" in script or units == 1


@pytest.mark.parametrize(
    ("mcpu", "m", "tile"),
    [
        ("x86-64-v4", 300, (6, 6)),
        ("x86-64-v4", 197, (4, 4)),  # tiles of 6 would be 33
        ("haswell", 300, (4, 8)),  # where blocks have two tiles at least
        ("haswell", 197, (6, 36)),
    ],
)
def test_parts_have_as_many_blocks_of_queries(mcpu, m, tile):
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    machine = replace(facts(target), l1_bytes=32 << 10, l2_bytes=1 << 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_space, "facts", lambda _: machine)
        default = ATTENTION.space(of({"heads": 3, "m": m, "n": m, "d": 64}).func, target).default
    assert (default["mr"], default["block"], default["parts"]) == (*tile, 2)


@pytest.mark.parametrize("more", [{"n": 37}, {"n": 32, "kv_heads": 3}, {"n": 40, "causal": 1}])
def test_values_in_panels_are_right(more, target, assert_right):
    workload = of({"heads": 6, "m": 19, "d": 64, **more})
    lanes = ATTENTION.space(workload.func, target).default["lanes"]
    assert_right(workload, ATTENTION.scheduled(workload.func, target, {"nc": lanes, "values": 1}))


@pytest.mark.parametrize(
    ("keys", "mcpu", "pad"),
    [
        (197, "haswell", 16),  # 208: a tile of two vectors
        (197, "x86-64-v4", 16),  # 208, where two vectors would be 224
        (200, "x86-64-v4", 16),  # half a vector is not whole either
        (37, "haswell", 8),
        (384, "x86-64-v4", 0),
    ],
)
def test_keys_are_padded_to_vectors_and_no_more_than_a_little(keys, mcpu, pad):
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    default = ATTENTION.space(of({"heads": 2, "m": 32, "n": keys, "d": 64}).func, target).default
    assert default["pad"] == pad
    assert default["lanes"] == (16 if mcpu == "x86-64-v4" else 8)


@pytest.mark.parametrize(("m", "tile"), [(64, (6, 16, 16)), (5, (5, 16, 16)), (3, (3, 0, 16))])
def test_tiles_have_the_height_of_the_least_cost_and_few_queries_are_one(m, tile):
    target = as_target({"kind": "llvm", "mcpu": "haswell", "mtriple": "x86_64-linux", "num-cores": 2})
    default = ATTENTION.space(of({"heads": 2, "m": m, "n": 64, "d": 64}).func, target).default
    assert (default["mr"], default["nr"], default["nc"]) == tile


@pytest.mark.parametrize(
    "shape",
    [
        {"m": 1, "n": 1, "d": 64},
        {"m": 16, "n": 1, "d": 64},
        {"m": 16, "n": 32, "d": 1},
        {"m": 1, "n": 3, "d": 76},  # a row of scores is one vector of four
    ],
)
def test_sums_of_next_to_nothing_are_another_schedules_matter(shape, target, assert_same_outputs):
    func = of({"heads": 2, **shape}).func
    assert ATTENTION.space(func, target) is None
    schedule, _ = apply_default(func, target)
    assert_same_outputs(func, schedule)


@pytest.mark.parametrize(
    ("mcpu", "columns", "tile"),
    [
        # 5 vectors of columns are one tile; 7 with 16 registers are not, and none is narrower than before.
        ("x86-64-v4", 40, (6, 64, 48)),
        ("haswell", 40, (2, 32, 40)),
        ("x86-64-v4", 72, (4, 64, 80)),
        ("haswell", 56, (6, 16, 8)),
    ],
)
def test_columns_that_are_no_pairs_of_vectors_make_wider_tiles(mcpu, columns, tile):
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    default = ATTENTION.space(of({"heads": 2, "m": 96, "n": 64, "d": columns}).func, target).default
    assert (default["mr"], default["nr"], default["nc"]) == tile


@pytest.mark.parametrize(("mcpu", "columns"), [("haswell", 64), ("x86-64-v4", 128)])
def test_the_keys_of_one_query_are_read_where_they_lie(mcpu, columns):
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    func = of({"heads": 4, "m": 1, "n": 256, "d": 128}).func
    default = ATTENTION.space(func, target).default
    assert (default["nr"], default["nc"], default["mr"]) == (0, columns, 1)
    schedule = ATTENTION.scheduled(func, target)
    assert "K_global" not in schedule.mod.script()
    loops = summing_loops(generate_code(schedule.mod, target).mod.inspect_source("asm"))
    # The sums over all values stay in registers.
    kept = [loop.accumulators for loop in loops if not loop.stores]
    assert kept.count(columns // default["lanes"]) == 128 // columns


def test_bounded_attention_is_a_form_that_a_trace_names(target):
    func = of(SHAPES["odd_columns"]).func
    schedule = ATTENTION.scheduled(func, target, {"bounded": 1})
    knobs = ATTENTION.space(func, target).default
    assert f"attention_1_{knobs['widen']}_{knobs['lanes']}" in trace_text(schedule)
    assert tvm_ffi.structural_equal(replay_trace(trace_text(schedule), func).mod, schedule.mod)
    assert find_attention(restate(func, 1, 16, 16)) == find_attention(restate(func, 1, 16))
    for other, numbers, message in (
        (of(SHAPES["all_odd"]).func, (1, 1, 16), "no attention whose scores are products times a number"),
        (of(SHAPES["whole"], "float64").func, (1, 1, 8), "no attention whose scores are products"),
        (
            masked(lambda i, k: k >= 0, also=te.placeholder((64, 96), name="bias")),
            (1, 1, 8),
            "no attention whose",
        ),
        (of(SHAPES["whole"]).func, (1, 0, 48), "whole vectors of 48"),
        (ts.workload("relu", m=4, n=4).func, (1, 1, 16), "no attention whose scores"),
    ):
        with pytest.raises(InputError, match=message):
            restate(other, *numbers)


@pytest.mark.parametrize(
    ("name", "multiples"), [("odd_keys", "16_1"), ("odd_columns", "1_16"), ("all_odd", "32_16")]
)
def test_padded_attention_is_a_form_that_a_trace_names(name, multiples):
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    func = of(SHAPES[name]).func
    schedule = ATTENTION.scheduled(func, target)
    assert has_algorithm(trace_text(schedule)) and f"padded_attention_{multiples}" in trace_text(schedule)
    assert tvm_ffi.structural_equal(replay_trace(trace_text(schedule), func).mod, schedule.mod)


def test_padded_keys_are_hidden_once():
    func = of(SHAPES["odd_keys"]).func
    older_trace = "tunesmith.algorithm.padded_keys_16"
    assert tvm_ffi.structural_equal(in_form(func, older_trace), restate(func, 16))
    # Keys that a causal mask hides anyway are not hidden twice.
    assert restate(func, 16).script().count("T.Select") == 1
    assert restate(of(SHAPES["odd_keys_causal"]).func, 16).script().count("T.Select") == 1
    for other, multiples in (
        (func, (197,)),
        (of(SHAPES["whole"]).func, (16, 16)),
        (of(SHAPES["odd_columns"]).func, (16, 18)),
        (ts.workload("relu", m=4, n=4).func, (16,)),
    ):
        with pytest.raises(InputError, match="no attention over keys that are no multiple"):
            restate(other, *multiples)


def test_sums_of_padded_columns_stay_in_registers():
    """They are computed, though the output has none of them: a masked sum would stay in memory."""
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    func = of({"heads": 2, "m": 64, "n": 64, "d": 40}).func
    schedule = ATTENTION.scheduled(func, target, {"block": 32, "mr": 8, "nr": 32})
    loops = summing_loops(generate_code(schedule.mod, target).mod.inspect_source("asm"))
    mixed = [loop for loop in loops if loop.accumulators == 8 * 3]
    assert mixed and not any(loop.stores for loop in mixed)


@pytest.mark.parametrize("condition", [lambda i, k: k >= 0, lambda i, k: k <= i + 33], ids=["all", "causal"])
def test_scores_that_read_a_mask_read_none_of_padded_keys(condition, target, assert_same_outputs):
    func = masked(condition, keys=97, also=te.placeholder((64, 97), name="bias"))
    assert ATTENTION.space(func, target).default["pad"] > 0
    schedule = ATTENTION.scheduled(func, target)
    assert "T.min(v_k, T.int64(96))" in schedule.mod.script()
    assert_same_outputs(func, schedule)


@pytest.mark.parametrize("width", [13, 12])
def test_one_query_whose_keys_no_parts_divide_is_left_alone(width, target, assert_same_outputs):
    func = masked(lambda i, k: k >= 0, queries=1, width=width)
    assert (ATTENTION.space(func, target) is None) == (width == 13)
    assert_same_outputs(func, rules_for(func, target)[0].scheduled(func, target))


@pytest.mark.parametrize(
    ("name", "knobs", "message"),
    [
        ("odd_keys", {"pad": 7}, "pad is (8|16), widen is 0, shared_keys is 0: they follow from the heads"),
        ("whole", {"pad": 16}, "pad is 0, widen is 0, shared_keys is 0: they follow from the heads"),
        ("whole", {"shared_keys": 1}, "shared_keys is 0: they follow from the heads"),
        ("whole", {"lanes": 0}, "lanes is"),
        (
            "odd_columns",
            {"widen": 0},
            "widen is (8|16), shared_keys is 0: they follow from the heads, the keys, the columns and the",
        ),
        ("whole", {"nc": 0}, "block, mr and nc are at least 1"),
        ("whole", {"mr": 0}, "block, mr and nc are at least 1"),
        ("whole", {"nr": 0}, "nr is 0 with one query, at least 1 with more than 8"),
        ("few_queries", {"nr": 0, "bounded": 1}, "bounded is 0 where nr is"),
        ("whole", {"values": 2}, "values is 0 or 1, and 0 with one query or one panel of columns"),
        ("one_query", {"values": 1}, "values is 0 or 1, and 0 with one query or one panel of columns"),
        ("one_query", {"nr": 8}, "nr is 0 with one query, at least 1 with more"),
        ("one_query", {"bounded": 1}, "bounded is 0 or 1, and 0 where scores are more than products"),
        ("whole", {"bounded": 2}, "bounded is 0 or 1"),
    ],
)
def test_a_point_that_breaks_a_rule_is_refused_in_one_line(name, knobs, message, target):
    with pytest.raises(InputError, match=message) as error:
        ATTENTION.scheduled(of(SHAPES[name]).func, target, knobs)
    assert "\n" not in str(error.value)


def test_no_matrix_of_scores_is_kept(target):
    """What the lowered function allocates is a few blocks of scores, not a matrix of them."""
    scheduled = ATTENTION.scheduled(of({"heads": 2, "m": 512, "n": 512, "d": 64}).func, target)
    passes = (
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
    )
    mod = scheduled.mod
    for lower in passes:
        mod = lower(mod)
    sizes = []
    structural_walk(
        mod["main"].body,
        [(s_tir.SBlock, lambda b: sizes.extend(prod(map(int, x.shape)) for x in b.alloc_buffers))],
    )
    assert sizes and max(sizes) <= 512 * 64 < 512 * 512


def test_sums_of_a_tile_are_not_stored_between_their_products_and_what_reads_them():
    """The scores of a tile are computed from its registers: no loop over its rows indexes it."""
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    schedule = ATTENTION.scheduled(of({"heads": 2, "m": 64, "n": 64, "d": 64}).func, target)
    score = schedule.get_sblock("score")
    kinds = [schedule.get(loop).kind for loop in schedule.get_loops(score)][-3:]
    assert kinds == [ForKind.UNROLLED, ForKind.UNROLLED, ForKind.VECTORIZED]
