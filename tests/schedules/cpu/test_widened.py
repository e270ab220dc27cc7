"""Products of 16 bits that are widened first: which are, that points are right, what is in inner loops."""

import random

import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.target import as_target
from tunesmith.schedules import rule as rule_of
from tunesmith.schedules import rules_for
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.cpu.widened import WIDENED_CONV2D, WIDENED_MATMUL
from tunesmith.tuning.records.compilation import build, replay_trace, trace_text
from tvm import tirx
from tvm_ffi import structural_walk

X86, ARM = "x86_64-linux-gnu", "aarch64-linux-gnu"
MACHINES = {"avx512": (X86, "x86-64-v4"), "avx2": (X86, "haswell"), "aarch64": (ARM, "neoverse-n1")}


def target_of(machine):
    triple, mcpu = MACHINES[machine]
    return as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": triple, "num-cores": 2})


def product(transpose="NN", dtype="float16", **more):
    return ts.workload("matmul", dtype=dtype, transpose=transpose, **{"m": 37, "n": 50, "k": 45, **more})


def convolution(**more):
    shape = {"n": 1, "h": 12, "w": 11, "ci": 19, "co": 24, "kh": 3, "kw": 3, "padding": 1}
    return ts.workload("conv2d", dtype="float16", **{**shape, **more})


WORKLOADS = {
    "NN": (product(), "widened_matmul"),
    "NT": (product("NT", m=70, k=64), "widened_matmul"),
    "NT_cut": (product("NT", m=70), "widened_matmul"),
    "TN": (product("TN"), "widened_matmul"),
    "TT": (product("TT", m=64), "widened_matmul"),
    "bfloat16": (product("NT", "bfloat16", m=70), "widened_matmul"),
    "worth_threads": (product(m=130, n=90, k=100), "widened_matmul"),
    "batched": (
        ts.workload("batch_matmul", dtype="float16", b=3, m=40, n=33, k=24, transpose="NT"),
        "widened_matmul",
    ),
    "gelu": (
        ts.workload("linear", dtype="float16", m=33, n=48, k=64, activation="gelu", residual=1),
        "widened_matmul",
    ),
    "window": (convolution(residual=1, relu=1), "widened_conv2d"),
    "pointwise": (convolution(kh=1, kw=1, padding=0, ci=32), "widened_conv2d"),
    "by_2": (convolution(stride=2), "widened_conv2d"),
    "dilated": (convolution(padding=6, dilation=6), "widened_conv2d"),
    "channels_first": (
        convolution(h=24, w=24, ci=16, co=32, layout="NCHW"),
        "widened_conv2d_channels_first",
    ),
    "pixels": (convolution(kh=1, kw=1, padding=0, h=8, w=8, layout="NCHW"), "widened_flat_pixels"),
    "transposed": (
        ts.workload("conv2d_transpose", dtype="float16", n=1, h=5, w=6, ci=24, co=16, kh=2, kw=2, stride=2),
        "widened_conv2d",
    ),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_the_default_and_points_are_right(name, assert_points_right, without_tiles):
    workload, expected = WORKLOADS[name]
    assert rules_for(workload.func, target_of("avx512"))[0].name == expected
    rule = rule_of(expected)
    points = rule.space(workload.func, without_tiles).points
    assert_points_right(rule, workload, random.Random(name).sample(points, min(3, len(points))))


@pytest.mark.parametrize(
    "workload",
    [
        product(dtype="float32"),
        product(dtype="int8"),
        ts.workload("softmax", dtype="float16", m=8, n=32),
    ],
)
def test_others_are_left_alone(workload):
    for rule in (WIDENED_MATMUL, WIDENED_CONV2D):
        assert rule.space(workload.func, target_of("avx512")) is None


def test_few_rows_are_left_to_others_and_more_of_them_where_a_constant_weight_is_far():
    target = target_of("avx512")
    few, many = (product(m=m, n=2048, k=2048).func for m in (7, 31))
    assert not WIDENED_MATMUL.space(few, target).preferred
    assert WIDENED_MATMUL.space(many, target).preferred
    assert not WIDENED_MATMUL.space(many.with_attr(CONSTANT_ARGUMENTS, [1]), target).preferred


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("rule", "workload"),
    [
        (WIDENED_MATMUL, product(m=96, n=96)),
        (WIDENED_MATMUL, product("NT", "bfloat16", m=96, n=96)),
        (WIDENED_CONV2D, convolution(h=16, w=16, co=96)),
    ],
)
def test_the_inner_loop_reads_each_number_once(machine, rule, workload):
    """No more loads than float32 has: a vector for each of the panel's, one for each row at most."""
    target = target_of(machine)
    knobs = rule.space(workload.func, target).default
    loop = inner_loop(build(rule.scheduled(workload.func, target), target).mod.inspect_source("s"))
    vectors = knobs["nr"] // knobs["lanes"]
    tile, steps = knobs["mr"] * vectors, loop.multiply_adds // (knobs["mr"] * vectors)
    assert (loop.accumulators, loop.multiply_adds % tile, loop.stores, loop.spills) == (tile, 0, 0, 0)
    # A pointer for the panel, one for the data, a bound and a branch: widening takes two a row and more.
    others = loop.instructions - loop.multiply_adds - steps * (knobs["mr"] + vectors)
    assert others < steps * knobs["mr"]


def test_taps_that_meet_only_padding_are_left_out_of_what_is_widened():
    workload, expected = WORKLOADS["dilated"]
    assert rule_of(expected).space(workload.func, target_of("avx512")).default["skip"] == 1


def test_threads_that_share_the_rows_widen_their_own():
    workload, _ = WORKLOADS["worth_threads"]
    target = as_target({"kind": "llvm", "mcpu": "emeraldrapids", "mtriple": X86, "num-cores": 2})
    assert WIDENED_MATMUL.space(workload.func, target).default["split_columns"] == 0
    assert len(parallel_loops(WIDENED_MATMUL.scheduled(workload.func, target))) == 1
    shared = WIDENED_MATMUL.scheduled(workload.func, target, {"split_columns": 1, "block_columns": 1})
    assert len(parallel_loops(shared)) == 2


def parallel_loops(schedule):
    loops = []
    structural_walk(
        schedule.mod["main"].body,
        [(tirx.For, lambda loop: loops.append(loop) if loop.kind == tirx.ForKind.PARALLEL else None)],
    )
    return loops


def test_a_trace_begins_with_the_forms_and_is_replayed(target):
    workload, expected = WORKLOADS["channels_first"]
    schedule = rule_of(expected).scheduled(workload.func, target)
    trace = trace_text(schedule)
    assert '"tunesmith.algorithm.channels_last_16__widened_32"' in trace
    assert replay_trace(trace, workload.func).mod.script() == schedule.mod.script()


def test_a_sum_of_one_product_is_right_in_blocks_of_one_row(target, assert_right):
    """The copy of a block's lines is one element: no loop is left of it."""
    workload = ts.workload("linear", dtype="bfloat16", m=13, n=2, k=1, activation="gelu")
    knobs = {"mr": 1, "nr": 2, "lanes": 2, "block_rows": 1, "split_columns": 0, "pack": 1}
    assert_right(workload, WIDENED_MATMUL.scheduled(workload.func, target, knobs), optimized=False)
