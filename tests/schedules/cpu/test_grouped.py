"""Grouped convolutions: which are found, that every form is right, traces, what is packed, registers."""

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.cpu.channels_first import FLAT_PIXELS
from tunesmith.schedules.cpu.grouped import GROUPED, merged_groups
from tunesmith.schedules.forms.grouped import DATA, PRODUCT, WEIGHT, find_grouped, restate
from tunesmith.schedules.nests.contraction import find_contraction
from tunesmith.schedules.transforms import PACKING_MARK
from tunesmith.tuning.records.compilation import build, replay_trace, trace_text
from tvm import te

AVX512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux-gnu", "num-cores": 2})
IMAGE = {"n": 1, "h": 9, "w": 11, "kh": 3, "kw": 3}


def convolution(groups, inputs, outputs, dtype="float32", **more):
    channels = {"ci": groups * inputs, "co": groups * outputs, "groups": groups}
    return ts.workload("conv2d", dtype=dtype, **{**IMAGE, **channels, **more})


ENDED = {"bias": 1, "relu": 1, "residual": 1}
WORKLOADS = {
    "merged": convolution(8, 4, 4, padding=1),
    "merged_first": convolution(8, 4, 4, padding=1, layout="NCHW", **ENDED),
    "half_vectors": convolution(6, 8, 8, padding=1, **ENDED),
    "whole_vectors": convolution(3, 16, 16, n=2, padding=1, bias=1),
    "wide": convolution(4, 20, 20, padding=1, relu=1),
    "wide_first": convolution(4, 20, 20, layout="NCHW"),
    "several_panels": convolution(2, 5, 136, kh=1, kw=1, **ENDED),
    "prime": convolution(7, 3, 5, stride=2, padding=1, bias=1, relu=1),
    "prime_first": convolution(7, 5, 3, padding=2, dilation=2, layout="NCHW", bias=1),
    "pointwise": convolution(4, 12, 6, kh=1, kw=1, stride=2, relu=1),
    "pointwise_first": convolution(4, 6, 12, kh=1, kw=1, layout="NCHW", **ENDED),
    "one_output": convolution(3, 5, 1, padding=1),
    "large": convolution(2, 24, 40, h=28, w=30, padding=1, relu=1),
    "half": convolution(6, 4, 4, "float16", padding=1, bias=1, relu=1),
    "bytes": convolution(4, 5, 6, "int8", padding=1, bias=1),
    "double": convolution(2, 4, 12, "float64", layout="NCHW"),
}
OTHERS = {
    "one_group": ts.workload("conv2d", **IMAGE, ci=8, co=8),
    "depthwise": convolution(8, 1, 1, padding=1),
    "matmul": ts.workload("matmul", m=8, n=8, k=8),
    "relu": ts.workload("relu", m=8, n=8),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_the_default_and_right(name, target, assert_right):
    workload = WORKLOADS[name]
    # Pixels of 1x1 layers with channels first are columns as they lie.
    default = [rule for rule in rules_for(workload.func, target) if rule is not FLAT_PIXELS]
    assert default[0] is GROUPED
    assert_right(workload, GROUPED.scheduled(workload.func, target))


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_alone(name, target):
    assert find_grouped(OTHERS[name].func) is None
    assert GROUPED.space(OTHERS[name].func, target) is None


def test_other_points_of_the_space_are_right(target, assert_points_right):
    workload = WORKLOADS["several_panels"]
    points = GROUPED.space(workload.func, target).points
    kinds = {(p["pack"], p["split_columns"]): p for p in points if p["nr"] == 3 * p["lanes"]}
    # Panels of three vectors end beyond the columns: where there are no masks, they are copied.
    unpacked = {(0, 0), (0, 1)} if facts(target).has_masks else set()
    assert set(kinds) == {*unpacked, (1, 0), (1, 1), (2, 0), (2, 1)}
    assert_points_right(GROUPED, workload, kinds.values())


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_the_form_is_a_batch_of_contractions_with_what_is_around_it(layout):
    func = convolution(6, 4, 8, padding=1, layout=layout, **ENDED).func
    nest = find_contraction(restate(func, 2))
    assert (nest.block, nest.staged, nest.weight_block) == (PRODUCT, "grouped_data", WEIGHT)
    assert [nest.extents[axis] for axis in nest.batch] == [3]
    assert [nest.extents[axis] for axis in nest.rows] == [1, 9, 11]
    assert [nest.extents[axis] for axis in nest.reductions] == [3, 3, 8]
    assert (nest.columns, nest.epilogue, nest.rest) == (16, ("relu",), ())
    assert not nest.constant_weight
    assert find_contraction(restate(func.with_attr(CONSTANT_ARGUMENTS, [1]), 2)).constant_weight


def test_data_is_copied_only_where_it_is_padded_or_scattered():
    func = {layout: convolution(2, 8, 8, layout=layout).func for layout in ("NHWC", "NCHW")}
    assert find_contraction(restate(func["NHWC"], 1)).staged is None
    assert find_contraction(restate(func["NCHW"], 1)).staged == "grouped_data"


def merged(groups, outputs, mcpu="x86-64-v4", dtype="float32"):
    found = find_grouped(convolution(groups, 4, outputs, dtype).func)
    return merged_groups(found, facts(as_target({"kind": "llvm", "mcpu": mcpu})))


@pytest.mark.parametrize(("inputs", "beside"), [(8, 2), (16, 1), (24, 1)])
def test_groups_that_share_lines_of_the_cache_are_copied_together(inputs, beside):
    """8 channels of float32 are half a line: both groups are copied while L1 has a line of pixels."""
    image = convolution(32, inputs, inputs, h=28, w=28, padding=1)
    sch = GROUPED.scheduled(image.func, AVX512)
    extents = [int(sch.get(loop).extent) for loop in sch.get_loops(sch.get_sblock(DATA))]
    assert extents[:2] == ([16 * 30, 2] if beside == 2 else [32 * 30, 30])


def test_as_many_groups_are_merged_as_take_no_more_vectors():
    assert [merged(32, outputs) for outputs in (2, 4, 8, 16, 20)] == [4, 2, 1, 1, 1]
    assert [merged(groups, 3) for groups in (3, 5, 6, 7, 8)] == [1, 1, 2, 1, 2]
    assert merged(8, 2, "x86-64") == 2 and merged(8, 2, dtype="float64") == 2


def test_outputs_of_a_group_keep_to_it(target, run):
    workload = convolution(4, 2, 2, kh=1, kw=1)
    assert GROUPED.space(workload.func, target).default["merge"] > 1
    rng = np.random.default_rng(0)
    data = rng.uniform(1, 2, (1, 9, 11, 8)).astype(np.float32)
    (got,) = run(GROUPED.scheduled(workload.func, target), [data, np.ones((1, 1, 2, 8), np.float32)])
    want = data[..., 0::2] + data[..., 1::2]
    np.testing.assert_allclose(got, np.repeat(want, 2, axis=-1), rtol=1e-6)


def test_a_convolution_of_one_dimension_is_one_too(target, run):
    x, w = te.placeholder((2, 30, 12), "float32", "x"), te.placeholder((3, 4, 24), "float32", "w")
    i, c = te.reduce_axis((0, 3), "i"), te.reduce_axis((0, 4), "c")
    y = te.compute(
        (2, 28, 24), lambda n, q, o: te.sum(w[i, c, o] * x[n, q + i, o // 8 * 4 + c], axis=[i, c]), name="y"
    )
    func = te.create_prim_func([x, w, y], index_dtype_override="int64")
    rng = np.random.default_rng(0)
    data, weight = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((2, 30, 12), (3, 4, 24)))
    windows = np.lib.stride_tricks.sliding_window_view(data.astype(np.float64), 3, 1)
    parts = [
        np.einsum("nqci,ico->nqo", windows[:, :, 4 * g : 4 * g + 4], weight[:, :, 8 * g : 8 * g + 8])
        for g in range(3)
    ]
    (got,) = run(GROUPED.scheduled(func, target), [data, weight])
    np.testing.assert_allclose(got, np.concatenate(parts, axis=-1), rtol=1e-4, atol=1e-5)


def test_channels_that_belong_to_no_group_are_left_alone(target):
    x, w = te.placeholder((2, 30, 12), "float32", "x"), te.placeholder((4, 24), "float32", "w")
    c = te.reduce_axis((0, 4), "c")
    # Neighbouring parts share two channels, and the last one of twelve belongs to none.
    y = te.compute((2, 30, 24), lambda n, q, o: te.sum(x[n, q, o // 8 * 2 + c] * w[c, o], axis=c), name="y")
    func = te.create_prim_func([x, w, y], index_dtype_override="int64")
    assert find_grouped(func) is None and GROUPED.space(func, target) is None


def test_a_trace_begins_with_the_form_and_is_replayed():
    func = WORKLOADS["merged"].func
    schedule = GROUPED.scheduled(func, AVX512)
    trace = trace_text(schedule)
    assert "tunesmith.algorithm.grouped_2" in trace
    assert replay_trace(trace, func).mod.script() == schedule.mod.script()


def test_a_trace_with_another_number_is_refused():
    func = WORKLOADS["merged"].func
    trace = trace_text(GROUPED.scheduled(func, AVX512))
    for number in ("3", "16", "999999"):
        with pytest.raises(InputError, match=f"grouped_{number}, which does not fit.*merge by {number}"):
            replay_trace(trace.replace("grouped_2", f"grouped_{number}"), func)
    for name in ("grouped_0", "grouped_-2", "grouped_9999999", "grouped_two"):
        with pytest.raises(InputError, match=r"unknown here|does not fit"):
            replay_trace(trace.replace("grouped_2", name), func)
    with pytest.raises(InputError, match="grouped_2, which does not fit: the function has no grouped"):
        replay_trace(trace, OTHERS["one_group"].func)


def test_merge_is_what_the_form_has():
    with pytest.raises(InputError, match="merge is 2"):
        GROUPED.scheduled(WORKLOADS["merged"].func, AVX512, {"merge": 4})


def test_a_constant_weight_is_packed_beforehand(target, assert_right):
    for name in ("merged", "wide_first", "several_panels"):
        workload = WORKLOADS[name]
        schedule = GROUPED.scheduled(workload.func.with_attr(CONSTANT_ARGUMENTS, [1]), target)
        assert PACKING_MARK in schedule.mod.script()
        assert PACKING_MARK not in GROUPED.scheduled(workload.func, target).mod.script()
        assert_right(workload, schedule)


@pytest.mark.parametrize(("mcpu", "bits"), [("haswell", 256), ("x86-64-v4", 256), ("neoverse-n1", 128)])
def test_the_tile_stays_in_registers_of_other_machines(mcpu, bits):
    triple = "aarch64-linux-gnu" if mcpu == "neoverse-n1" else "x86_64-linux-gnu"
    target = as_target({"kind": "llvm", "mtriple": triple, "mcpu": mcpu, "num-cores": 2})
    schedule = GROUPED.scheduled(WORKLOADS["half_vectors"].func, target)
    loop = inner_loop(build(schedule, target).mod.inspect_source("s"))
    assert (loop.bits, loop.stores, loop.spills) == (bits, 0, 0) and loop.multiply_adds >= 7
