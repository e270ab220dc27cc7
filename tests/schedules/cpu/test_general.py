"""The general rule takes every PrimFunc; it and others that apply compute what the unscheduled one does."""

from itertools import product

import numpy as np
import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels.operator import as_prim_func
from tunesmith.machine.arrays import aligned_copy, aligned_empty, as_tensor
from tunesmith.machine.facts import has_feature
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.analysis import block_names
from tunesmith.schedules.code_generation import generate_code
from tunesmith.schedules.passes.loop_partition import partition_loops
from tunesmith.tuning.records.compilation import build
from tvm import relax, te, topi
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.tirx import ForKind
from tvm_ffi import structural_walk

GENERAL = ts.schedule_rules()["general"]


def x(*shape, dtype="float32", name="x"):
    return te.placeholder(shape, dtype, name=name)


def of(function, *shapes, dtype="float32", **options):
    """Return the tensors of a topi function on placeholders."""
    inputs = [x(*shape, dtype=dtype, name=f"x{i}") for i, shape in enumerate(shapes)]
    result = function(*inputs, **options)
    return [*inputs, *([result] if isinstance(result, te.Tensor) else result)]


def chain_of_exp(a):
    """Give each of three dear results two readers."""
    for _ in range(3):
        e = topi.exp(topi.negative(a))
        a = topi.divide(e, topi.add(e, topi.multiply(a, a)))
    return a


def normalised(a):
    mean = topi.divide(topi.sum(a, axis=1, keepdims=True), a.shape[1])
    centred = topi.subtract(a, mean)
    return topi.divide(centred, topi.sqrt(topi.sum(topi.multiply(centred, centred), axis=1, keepdims=True)))


def convolved(groups, layout):
    shape = {"n": 1, "h": 9, "w": 11, "ci": 8 * groups, "co": 16 * groups, "kh": 3, "kw": 3, "padding": 1}
    return ts.workload("conv2d", groups=groups, layout=layout, bias=1, relu=1, **shape).func


# Large enough to be spread over threads, with and without whole vectors.
TENSORS = {
    "softmax": of(topi.nn.softmax, (65, 520)),
    "softmax_whole_vectors": of(topi.nn.softmax, (64, 512)),
    "softmax_first_axis": of(topi.nn.softmax, (128, 72), axis=0),
    "log_softmax": of(topi.nn.log_softmax, (7, 130)),
    "layer_norm": of(topi.nn.layer_norm, (4, 96, 96), (96,), (96,), axis=[2], epsilon=1e-5),
    "normalised": of(normalised, (70, 512)),
    "mean_of_last_axis": of(topi.sum, (77, 1024), axis=-1),
    "mean_of_first_axis": of(topi.sum, (1024, 77), axis=0),
    "mean_of_middle_axis": of(topi.sum, (5, 128, 96), axis=1),
    "mean_of_outer_axes": of(topi.sum, (5, 64, 128), axis=(0, 1)),
    "mean_of_first_and_last": of(topi.sum, (32, 17, 128), axis=(0, 2)),
    "sum_of_last_axis_as_long_as_the_rows": of(topi.sum, (16, 512), axis=1),
    "sum_of_one_row": of(topi.sum, (1, 65536), axis=1),
    "sum_of_all": of(topi.sum, (33, 64)),
    "largest": of(topi.max, (64, 1024), axis=1),
    "argmax": of(topi.argmax, (65, 700), axis=1),
    "argmax_first_axis": of(topi.argmax, (700, 64), axis=0),
    "max_pool": of(
        topi.nn.pool2d,
        (1, 16, 28, 28),
        kernel=(3, 3),
        stride=(2, 2),
        dilation=(1, 1),
        padding=(1, 1, 1, 1),
        pool_type="max",
    ),
    "max_pool_channels_last": of(
        topi.nn.pool2d,
        (1, 28, 28, 32),
        kernel=(3, 3),
        stride=(2, 2),
        dilation=(1, 1),
        padding=(1, 1, 1, 1),
        pool_type="max",
        layout="NHWC",
    ),
    "avg_pool": of(
        topi.nn.pool2d,
        (1, 16, 28, 28),
        kernel=(2, 2),
        stride=(2, 2),
        dilation=(1, 1),
        padding=(1, 1, 1, 1),
        pool_type="avg",
        count_include_pad=False,
    ),
    "argmax_of_few_columns": of(topi.argmax, (4, 40, 5, 3), axis=1),
    "global_pool": of(topi.nn.adaptive_pool, (2, 32, 7, 7), output_size=(1, 1), pool_type="avg"),
    "adaptive_pool": of(topi.nn.adaptive_pool, (1, 16, 13, 13), output_size=(4, 4), pool_type="avg"),
    "transpose": of(topi.transpose, (96, 5, 130), axes=(2, 0, 1)),
    "concatenate": of(lambda a, b: topi.concatenate([a, b], axis=1), (64, 300), (64, 310)),
    "concatenate_last": of(
        lambda a, b, c: topi.nn.relu(topi.concatenate([a, b, c], axis=2)),
        (6, 50, 64),
        (6, 50, 48),
        (6, 50, 16),
    ),
    "concatenate_across_vectors": of(lambda a, b: topi.concatenate([a, b], axis=1), (40, 72), (40, 24)),
    "concatenate_vectors": of(lambda a, b: topi.concatenate([a, b], axis=1), (1, 40000), (1, 40000)),
    "split": of(lambda a: topi.split(a, 3, axis=1), (64, 600)),
    "reshape": of(topi.reshape, (6, 128, 64), newshape=(384, 64)),
    "pad": of(topi.nn.pad, (5, 31, 31, 8), pad_before=(0, 1, 2, 0), pad_after=(0, 3, 0, 8)),
    "pad_few_channels": of(topi.nn.pad, (2, 31, 32, 3), pad_before=(0, 1, 2, 0), pad_after=(0, 3, 0, 0)),
    "pad_channels": of(topi.nn.pad, (5, 31, 32, 3), pad_before=(0, 1, 2, 1), pad_after=(0, 3, 0, 0)),
    "odd_rows": of(topi.sigmoid, (48, 7, 5)),
    "odd_rows_and_planes": of(topi.add, (32, 4, 12), (4, 12)),
    "odd_rows_and_columns": of(topi.add, (48, 7, 5), (5,)),
    "odd_rows_transposed": of(lambda a: topi.add(a, topi.transpose(a, (1, 0, 2))), (16, 16, 3)),
    "part_of_odd_rows": of(lambda a: topi.exp(topi.strided_slice(a, [0, 1], [48, 6])), (48, 7)),
    "part_of_many_rows": of(lambda a: topi.exp(topi.strided_slice(a, [1, 0], [97, 64])), (98, 64)),
    "resize": of(
        topi.image.resize2d,
        (1, 3, 32, 32),
        roi=(0.0, 0.0, 0.0, 0.0),
        size=(64, 64),
        layout="NCHW",
        method="linear",
    ),
    "cumsum": of(topi.cumsum, (16, 40), axis=1),
    "take": of(lambda a: topi.take(a, topi.full((7,), "int32", 2), axis=0), (9, 64)),
    "chain_of_exp": of(chain_of_exp, (128, 520)),
    "halves": of(lambda a: topi.nn.relu(topi.cast(a, "float32")), (64, 600), dtype="float16"),
    "one_element": of(topi.exp, (1,)),
    "no_dimension": of(topi.exp, ()),
    "no_dimension_from_a_sum": of(lambda a: topi.exp(topi.sum(a)), (70, 32)),
    "batched_product": of(
        lambda a, b: topi.nn.batch_matmul(a, b, transpose_a=False, transpose_b=True), (4, 33, 64), (4, 48, 64)
    ),
    "product_and_softmax": of(lambda a, b: topi.nn.softmax(topi.nn.matmul(a, b)), (33, 48), (48, 64)),
    "group_norm": of(topi.nn.group_norm, (2, 8, 30), (8,), (8,), num_groups=2, channel_axis=1, axes=[2]),
}
FUNCTIONS = {
    **{name: as_prim_func(tensors) for name, tensors in TENSORS.items()},
    "depthwise": ts.workload(
        "conv2d", n=1, h=9, w=11, ci=32, co=32, kh=3, kw=3, padding=1, groups=32, bias=1, relu=1
    ).func,
    "grouped": convolved(2, "NHWC"),
    "grouped_nchw": convolved(2, "NCHW"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_computes_what_the_unscheduled_function_does(name, target, assert_same_outputs):
    func = FUNCTIONS[name]
    outputs = 3 if name == "split" else 1
    for rule in rules_for(func, target):
        assert_same_outputs(func, rule.scheduled(func, target), outputs)


@pytest.mark.parametrize("knobs", [{"lanes": 1}, {"lanes": 8}, {"lanes": 32}, {"parallel": 0}])
@pytest.mark.parametrize(
    "name", ["softmax_whole_vectors", "normalised", "mean_of_first_axis", "grouped", "max_pool"]
)
def test_it_is_right_with_other_knobs(name, knobs, target, assert_same_outputs):
    assert_same_outputs(FUNCTIONS[name], GENERAL.scheduled(FUNCTIONS[name], target, knobs))


def loop_kinds(func, target, knobs=None):
    """Return the kinds of all loops of a function under the general rule."""
    kinds = []
    scheduled = GENERAL.scheduled(func, target, knobs)
    structural_walk(scheduled.mod["main"].body, [(tvm.tirx.For, lambda loop: kinds.append(int(loop.kind)))])
    return {("serial", "parallel", "vectorized", "unrolled")[kind] for kind in kinds}


def test_large_work_is_spread_and_vectorized_and_tiny_work_is_not_spread(target):
    large, tiny = ts.workload("relu", m=512, n=512).func, ts.workload("relu", m=4, n=64).func
    assert loop_kinds(large, target) == {"parallel", "vectorized"}
    assert loop_kinds(tiny, target) == {"serial", "vectorized"}
    assert loop_kinds(FUNCTIONS["mean_of_last_axis"], target) == {"parallel", "serial", "vectorized"}


@pytest.mark.parametrize(
    "operator, shape, vectors",
    [
        (topi.sigmoid, [(48, 7, 5)], True),
        (topi.add, [(48, 7, 5), (48, 7, 5)], True),
        (topi.add, [(32, 4, 12), (4, 12)], True),
        (topi.add, [(48, 7, 5), (48, 1, 1)], False),
        (topi.add, [(48, 7, 5), (5,)], False),
        (topi.sigmoid, [(47, 7, 5)], True),
        (topi.sigmoid, [(1, 7, 5)], False),
    ],
)
def test_rows_that_fill_no_vectors_are_one_axis_where_memory_is(operator, shape, vectors, target):
    func = as_prim_func(of(operator, *shape))
    assert ("vectorized" in loop_kinds(func, target)) == vectors


def test_what_is_left_of_one_axis_is_computed_after_a_loop_without_conditions(target):
    scheduled = GENERAL.scheduled(as_prim_func(of(topi.sigmoid, (47, 7, 5))), target)
    assert "T.where" in scheduled.mod.script()
    text = partition_loops(scheduled.mod).script()
    assert "T.where" not in text and "if " not in text.split("T.vectorized")[1]


def test_what_is_concatenated_along_rows_is_copied_without_conditions(target):
    scheduled = GENERAL.scheduled(FUNCTIONS["concatenate_last"], target)
    assert "if_then_else" in scheduled.mod.script()
    assert "if_then_else" not in partition_loops(scheduled.mod).script()
    assert loop_kinds(FUNCTIONS["concatenate_last"], target) == {"serial", "parallel", "vectorized"}


@pytest.mark.parametrize(
    ("shape", "knobs", "kinds"),
    [
        ({"w": 16, "layout": "NCHW"}, {}, {"unrolled"}),
        ({"w": 13, "layout": "NCHW"}, {}, {"unrolled"}),  # whether vectors divide a line or not
        ({"w": 16, "layout": "NCHW"}, {"lanes": 1, "stream": 1}, {"unrolled"}),
        ({"w": 16, "layout": "NCHW", "mode": "bilinear"}, {}, {"unrolled"}),
        ({"w": 13, "layout": "NCHW", "mode": "bilinear"}, {"stream": 1, "parallel": 0}, {"unrolled"}),
        ({"w": 16, "layout": "NHWC", "mode": "bilinear"}, {}, {"vectorized"}),
        ({"w": 16, "layout": "NHWC"}, {}, {"vectorized"}),
    ],
)
def test_neighbours_that_read_one_element_are_written_together(shape, knobs, kinds, target, assert_right):
    workload = ts.workload("resize2d", **{"n": 1, "h": 9, "c": 16, "scale": 3, **shape})
    assert loop_kinds(workload.func, target, knobs) - {"serial", "parallel"} == kinds
    assert_right(workload, GENERAL.scheduled(workload.func, target, knobs))


def test_what_they_read_is_computed_line_by_line_without_conditions(target):
    workload = ts.workload("resize2d", n=1, h=9, w=13, c=16, scale=3, mode="bilinear", layout="NCHW")
    scheduled = GENERAL.scheduled(workload.func, target)
    assert len(scheduled.get_loops(scheduled.get_sblock("lines"))) == 2
    assert "if_then_else" in scheduled.mod.script()
    assert "if_then_else" not in partition_loops(scheduled.mod).script()


def test_lines_with_few_channels_are_padded_without_a_condition_inside(target):
    scheduled = GENERAL.scheduled(FUNCTIONS["pad_few_channels"], target)
    assert "if_then_else" not in scheduled.mod["main"].script()
    assert loop_kinds(FUNCTIONS["pad_few_channels"], target) == {"serial", "vectorized"}


def test_what_is_elementwise_becomes_one_loop_nest(target):
    func = as_prim_func(of(lambda a: topi.tanh(topi.multiply(topi.add(a, 1.0), 2.0)), (64, 512)))
    sch = GENERAL.scheduled(func, target)
    assert len(sch.get_child_blocks(sch.get_sblock("root"))) == 1


def test_a_dear_result_that_is_read_twice_is_computed_once(target):
    func = FUNCTIONS["chain_of_exp"]
    text = GENERAL.scheduled(func, target).mod.script()
    assert text.count("T.exp(") == func.script().count("T.exp(") == 3


def test_a_symbolic_extent_is_scheduled_and_right(target, run):
    n = te.var("n", "int64")
    a = te.placeholder((n, 16), name="a")
    func = as_prim_func([a, topi.sum(topi.exp(a), axis=1)])
    scheduled = GENERAL.scheduled(func, target)
    kernel = tvm.compile(scheduled.mod, target=target)["main"]
    for extent in (1, 37):
        given = np.random.default_rng(0).uniform(-1, 1, (extent, 16)).astype("float32")
        got = tvm.runtime.tensor(np.full(extent, np.nan, "float32"))
        kernel(tvm.runtime.tensor(given), got)
        np.testing.assert_allclose(got.numpy(), np.exp(given).sum(axis=1), rtol=1e-5)


@T.prim_func(s_tir=True)
def scaled(a: T.handle, factor: T.float32, b: T.handle):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    A = T.match_buffer(a, (T.int64(8), T.int64(32)), "float32")
    B = T.match_buffer(b, (T.int64(8), T.int64(32)), "float32")
    for i, j in T.grid(T.int64(8), T.int64(32)):
        with T.sblock("scaled"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * factor


def test_a_scalar_argument_stays(target):
    kernel = tvm.compile(GENERAL.scheduled(scaled, target).mod, target=target)["main"]
    given, got = np.ones((8, 32), "float32"), tvm.runtime.tensor(np.full((8, 32), np.nan, "float32"))
    kernel(tvm.runtime.tensor(given), 2.5, got)
    np.testing.assert_array_equal(got.numpy(), given * np.float32(2.5))


@tvm.script.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((2, 16, 24), "float32"), w: R.Tensor((24, 24), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.gelu(R.add(a, x))
            c = R.nn.softmax(R.permute_dims(b, [0, 2, 1]), axis=-1)
            d = R.strided_slice(R.concat([c, c], axis=2), axes=[2], begin=[3], end=[21])
            e = R.nn.layer_norm(d, R.ones((18,), "float32"), R.zeros((18,), "float32"), axes=[-1])
            y = R.mean(R.astype(e, "float32"), axis=[1], keepdims=True)
            R.output(y)
        return y


def test_every_function_of_a_legalised_model_is_scheduled(target, assert_same_outputs):
    mod = relax.get_pipeline("zero")(Model)
    functions = [f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    assert len(functions) > 5
    for func in functions:
        main = func.with_attr("global_symbol", "main")
        assert_same_outputs(main, ts.apply_default(main, target)[0])
        assert_same_outputs(main, GENERAL.scheduled(main, target))


@pytest.mark.parametrize(
    ("rows", "loops"),
    [
        (128, ["parallel", "serial", "vectorized"]),
        (8, ["parallel", "vectorized"]),
        (1024, ["parallel", "serial", "serial", "vectorized"]),  # 256 are enough to share
    ],
)
def test_an_index_is_taken_apart_once_a_row_where_there_are_many(rows, loops, target):
    func = as_prim_func(of(topi.transpose, (4, rows // 4, 4096), axes=(1, 0, 2)))
    kinds = []
    nest = GENERAL.scheduled(func, target).mod["main"].body
    structural_walk(nest, [(tvm.tirx.For, lambda loop: kinds.append(int(loop.kind)))])
    assert [("serial", "parallel", "vectorized", "unrolled")[kind] for kind in reversed(kinds)] == loops


@pytest.mark.parametrize(
    ("operator", "shape", "lanes"),
    [
        # 512 bits are 16 of float32. What is moved goes by 256 bits, what calls functions by two vectors.
        ("relu", {"m": 64, "n": 64}, 8),
        ("relu", {"m": 64, "n": 64, "dtype": "float64"}, 4),
        ("batch_norm", {"n": 1, "h": 8, "w": 8, "c": 64, "layout": "NHWC"}, 8),
        ("silu", {"m": 64, "n": 64}, 64),
        ("silu", {"m": 64, "n": 96}, 64),
        ("silu", {"m": 3, "n": 32}, 32),
        ("silu", {"m": 64, "n": 64, "dtype": "float16"}, 32),
        # 64 rows of 3 lie in memory like 192; 61 rows of 3 fill no vectors, of 211 rows little is left over.
        ("tanh", {"m": 64, "n": 3}, 64),
        ("tanh", {"m": 61, "n": 3}, 16),
        ("tanh", {"m": 211, "n": 3}, 64),
        ("gather", {"v": 64, "d": 64, "m": 8}, 16),
        ("matmul", {"m": 64, "n": 64, "k": 64}, 16),
    ],
)
def test_how_much_is_computed_at_a_time_depends_on_what_it_is(operator, shape, lanes):
    avx512 = tvm.target.Target(
        {"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2}
    )
    assert GENERAL.space(ts.workload(operator, **shape).func, avx512).default["lanes"] == lanes


@pytest.mark.parametrize(
    ("operator", "shape", "lanes", "rows"),
    [
        ("scale_shift_clip", {"m": 4096, "n": 4096}, 16, 4),
        ("scale_shift_clip", {"m": 4096, "n": 8192, "dtype": "float16"}, 32, 4),
        ("batch_norm", {"n": 16, "h": 28, "w": 28, "c": 2048, "layout": "NHWC"}, 16, 4),
        ("scale_shift_clip", {"m": 16384, "n": 2048}, 8, 1),  # the other half of L1 is the rows'
        ("scale_shift_clip", {"m": 64, "n": 4096}, 8, 1),  # the caches hold all
        ("bias_gelu", {"m": 4096, "n": 8192}, 64, 1),  # it computes more than it reads
        ("add", {"m": 4096, "n": 4096}, 8, 1),
    ],
)
def test_rows_are_computed_together_where_what_all_of_them_read_takes_the_places_of_l1(
    operator, shape, lanes, rows
):
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    default = GENERAL.space(ts.workload(operator, **shape).func, target).default
    assert (default["lanes"], default["rows"]) == (lanes, rows)


@pytest.mark.parametrize("stream", [0, 1])
@pytest.mark.parametrize(
    ("operator", "shape", "unrolled"),
    [
        ("scale_shift_clip", {"m": 68, "n": 64}, True),
        ("scale_shift_clip", {"m": 67, "n": 64}, False),  # no number of rows
        ("scale_shift_clip", {"m": 8, "n": 61}, False),  # no whole vectors
        ("batch_norm", {"n": 3, "h": 9, "w": 8, "c": 32, "layout": "NHWC"}, True),
        ("swiglu", {"m": 64, "n": 64}, False),  # rows that are one axis
        ("concat", {"a": 1, "b": 1, "c": 12, "d": 32, "more": 16, "axis": "d"}, True),
    ],
)
def test_rows_computed_together_are_right(operator, shape, unrolled, stream, target, assert_right):
    workload, knobs = ts.workload(operator, **shape), {"lanes": 16, "rows": 4, "stream": stream}
    assert_right(workload, GENERAL.scheduled(workload.func, target, knobs))
    assert ("unrolled" in loop_kinds(workload.func, target, knobs)) == unrolled


@pytest.mark.parametrize(("operator", "threads"), [("tanh", True), ("swiglu", True), ("relu", False)])
def test_functions_are_worth_threads_sooner(operator, threads, target):
    schedule = GENERAL.scheduled(ts.workload(operator, m=1, n=20000).func, target)
    assert ("T.parallel" in schedule.mod.script()) == threads


@pytest.mark.parametrize(
    ("operator", "shape"),
    [
        ("transpose", {"a": 4, "b": 6, "c": 5, "d": 53, "order": "acbd"}),
        ("batch_norm", {"n": 1, "h": 9, "w": 11, "c": 20}),
        ("concat", {"b": 4, "c": 6, "d": 37, "more": 5, "axis": "c"}),
        ("max_pool2d", {"n": 1, "h": 9, "w": 11, "c": 20, "kernel": 3, "padding": 1}),
    ],
)
@pytest.mark.parametrize("mcpu", ["znver4", "znver3"])
def test_rows_that_fill_no_vectors_are_vectors_and_a_rest(operator, shape, mcpu, target, assert_right):
    """LLVM would unroll such rows, and gather its vectors from several of them."""
    workload = ts.workload(operator, **shape)
    assert_right(workload, GENERAL.scheduled(workload.func, target))
    other = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux-gnu", "num-cores": 2})
    code = generate_code(GENERAL.scheduled(workload.func, other).mod, other).mod.inspect_source("asm")
    assert "gather" not in code and "scatter" not in code
    assert "{%k" in code or mcpu == "znver3"


@pytest.mark.parametrize(
    "shape", [{"heads": 4, "m": 35, "n": 71, "d": 49}, {"heads": 4, "m": 71, "n": 71, "d": 48}]
)
def test_rows_with_a_rest_beside_reductions_and_a_causal_mask_are_right(shape, target):
    """Where vectors are not masked, TVM lost the condition of the rest or that of the mask."""
    without = {"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": "x86_64-linux-gnu", "num-cores": 2}
    targets = [target, *([as_target(without)] if has_feature(target, "avx2") else [])]
    workload = ts.workload("attention", **shape, causal=1)
    inputs = [np.random.default_rng(0).random(each.shape, np.float32) * 2 - 1 for each in workload.inputs]
    for each, knobs in product(targets, ({}, {"lanes": 8}, {"lanes": 16, "parallel": 0})):
        kernel = build(GENERAL.scheduled(workload.func, each, knobs).mod, each)["main"]
        output = aligned_empty(workload.output.shape, "float32")
        kernel(*map(as_tensor, map(aligned_copy, inputs)), as_tensor(output))
        np.testing.assert_allclose(output, workload.reference(*inputs), atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "dtype", "shape"),
    [
        ("global_avg_pool2d", "float64", {"n": 1, "h": 3, "w": 48, "c": 64}),
        ("sum", "float16", {"a": 1, "b": 2, "c": 1, "d": 64, "axes": "bc"}),
        ("matmul", "float16", {"m": 5, "n": 64, "k": 5, "transpose": "TN"}),
    ],
)
def test_loops_that_another_block_has_taken_a_place_in_are_not_fused(
    operator, dtype, shape, target, assert_right
):
    workload = ts.workload(operator, dtype=dtype, **shape)
    assert_right(workload, GENERAL.scheduled(workload.func, target))


@pytest.mark.parametrize(("channels", "padding"), [(6, 0), (49, 1)])
def test_maxima_of_bfloat16_that_are_taken_in_the_output_itself_are_right(
    channels, padding, target, assert_right
):
    """TVM knows no vectors of the constant that they begin with."""
    shape = {"n": 1, "h": 7, "w": 6, "c": channels, "kernel": 3, "stride": 1, "padding": padding}
    workload = ts.workload("max_pool2d", dtype="bfloat16", **shape)
    for rule in rules_for(workload.func, target):
        assert_right(workload, rule.scheduled(workload.func, target))


@pytest.mark.parametrize(
    ("operator", "shape"),
    [
        ("max_pool2d", {"n": 2, "h": 7, "w": 11, "c": 3, "kernel": 3, "padding": 1}),
        ("max_pool2d", {"n": 1, "h": 6, "w": 34, "c": 1, "kernel": 3}),
        ("avg_pool2d", {"n": 1, "h": 5, "w": 16, "c": 2, "kernel": 2}),
    ],
)
def test_pixels_of_few_channels_are_one_axis_under_windows_that_move_by_one(
    operator, shape, target, assert_right
):
    """512x512 pixels of 3 channels take 0.06 of the time of elements one by one."""

    def has_vectors(workload):
        schedule = GENERAL.scheduled(workload.func, target, {"lanes": 8})
        assert_right(workload, schedule)
        reduced = next(name for name in block_names(schedule) if name.endswith("_update"))
        return schedule.get(schedule.get_loops(schedule.get_sblock(reduced))[-1]).kind == ForKind.VECTORIZED

    assert has_vectors(ts.workload(operator, **shape))
    assert not has_vectors(ts.workload(operator, **{**shape, "stride": 2}))


@pytest.mark.parametrize(
    ("dtype", "shape"), [("float32", (3, 7)), ("bfloat16", (5, 16)), ("float32", (64, 7))]
)
def test_a_mean_of_lines_shorter_than_a_vector_is_right(dtype, shape, target, assert_right):
    """Its division had its place in a loop over vectors, which end within lines: before some were summed."""
    workload = ts.workload("mean", dtype=dtype, a=2, b=7, c=shape[0], d=shape[1], axes="ab")
    assert_right(
        workload, GENERAL.scheduled(workload.func, target, {"lanes": 32 if dtype != "float32" else 8})
    )


def test_what_is_computed_in_the_loops_of_a_reduction_stays_there(target, assert_right):
    """On one thread these are serial, and were taken for loops of its own."""
    workload, knobs = ts.workload("mean", a=8, b=5, c=8, d=12, axes="abc"), {"lanes": 16, "stream": 1}
    assert loop_kinds(workload.func, target, knobs) == {"serial"}
    assert_right(workload, GENERAL.scheduled(workload.func, target, knobs))
