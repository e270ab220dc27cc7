"""Windows along lines with a weight: which are found, and that every tile of them is right."""

import re
from dataclasses import replace

import pytest
import tunesmith as ts
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.algorithms import in_form
from tunesmith.schedules.assembly import summing_loops
from tunesmith.schedules.code_generation import finished, generate_code
from tunesmith.schedules.cpu import lines as lines_schedule
from tunesmith.schedules.cpu.lines import LINES
from tunesmith.schedules.forms.lines import SUMS, WIDE, find_lines, restate
from tunesmith.schedules.passes.loop_partition import PARTITION_MARK
from tvm import te

DEPTHWISE = {
    "n": 2,
    "h": 9,
    "w": 13,
    "ci": 4,
    "co": 4,
    "groups": 4,
    "kh": 3,
    "kw": 3,
    "padding": 1,
    "layout": "NCHW",
}
FUSED = {"bias": 1, "residual": 1, "relu": 1}


def conv2d(dtype="float32", **shape):
    return ts.workload("conv2d", dtype=dtype, **{**DEPTHWISE, **shape})


def taken(*tensors):
    """Return a workload of TE tensors, inputs first."""
    func = te.create_prim_func(list(tensors), index_dtype_override="int64")
    return ts.Workload("mine", {}, "float32", func.with_attr("global_symbol", "main"), flops=1)


def window(index, weight=lambda w, p, i, j: w[i, j], size=(9, 20)):
    """Return sums of 3 x 3 elements of a matrix, at places and with weights of one's own."""
    x, w = te.placeholder(size, name="x"), te.placeholder((3, 32), name="w")
    i, j = te.reduce_axis((0, 3), name="i"), te.reduce_axis((0, 3), name="j")
    value = lambda p, q: x[index(p, q, i, j)] * weight(w, p, i, j)  # noqa: E731
    return taken(x, w, te.compute((7, 14), lambda p, q: te.sum(value(p, q), axis=[i, j]), name="y"))


WORKLOADS = {
    "depthwise": conv2d(),
    "strided": conv2d(stride=2),
    "strided_by_three": conv2d(stride=3, kw=5, padding=2, **FUSED),
    "strided_dilated": conv2d(stride=2, dilation=3, padding=3, w=30),
    "strided_as_dilated": conv2d(stride=2, dilation=2, n=3, h=31, w=31, ci=40, co=40, groups=40),
    "dilated": conv2d(dilation=2, padding=2),
    "long_margin": conv2d(kh=1, padding=3),
    "fused": conv2d(**FUSED),
    "several_of_a_channel": conv2d(co=8, **FUSED),
    "unpadded": conv2d(padding=0),
    "half": conv2d("float16"),
    "many_taps": conv2d(kh=7, kw=7, padding=3),
    "large": conv2d(h=40, w=56, ci=16, co=16, groups=16),
    "four_pixels": conv2d(h=8, w=8, stride=2, kh=7, kw=7, padding=3, **FUSED),
    "across_lines": conv2d(kw=1, padding=0, **FUSED),
    "channels_as_lines": ts.workload("avg_pool2d", n=2, h=9, w=7, c=23, kernel=3, stride=2, padding=1),
    "one_image": window(lambda p, q, i, j: (p + i, q + j)),
    "every_third": window(lambda p, q, i, j: (p + i, q + 3 * j)),
}


def scaled_by_channel():
    """Return a window over what is multiplied by a number for each channel, which has fewer axes."""
    x, s, w = (
        te.placeholder(shape, name=n) for shape, n in (((4, 11, 27), "x"), ((4,), "s"), ((4, 3, 3), "w"))
    )
    scaled = te.compute(x.shape, lambda c, h, q: x[c, h, q] * s[c], name="scaled")
    i, j = te.reduce_axis((0, 3), name="i"), te.reduce_axis((0, 3), name="j")
    value = lambda c, p, q: scaled[c, p + i, q + j] * w[c, i, j]  # noqa: E731
    sums = lambda c, p, q: te.sum(value(c, p, q), axis=[i, j])  # noqa: E731
    return taken(x, s, w, te.compute((4, 9, 25), sums, name="y"))


OTHERS = {
    "channels_last": conv2d(layout="NHWC"),
    "dense": conv2d(groups=1),
    "short_lines": conv2d(w=4, kw=1, padding=0, kh=1),
    "product": ts.workload("matmul", m=8, n=8, k=8),
    "pool": ts.workload("max_pool2d", n=1, h=9, w=12, c=3, kernel=3, layout="NCHW"),
    "softmax": ts.workload("softmax", m=8, n=8),
    "read_once_across_lines": ts.workload("avg_pool2d", n=1, h=8, w=8, c=30, kernel=2, stride=2),
    # Windows that lean, and weights of each pixel: neither is the same along a line.
    "from_the_end": window(lambda p, q, i, j: (p + i, 19 - q - j)),
    "leaning": window(lambda p, q, i, j: (p + i, q + j + p)),
    "across": window(lambda p, q, i, j: (q + i, q + j), size=(20, 20)),
    "of_each_pixel": taken(
        *(lambda x, w, i: (x, w, te.compute((9, 18), lambda p, q: te.sum(x[p, q + i] * w[q, i], axis=i))))(
            te.placeholder((9, 20), name="x"),
            te.placeholder((18, 3), name="w"),
            te.reduce_axis((0, 3), name="i"),
        )
    ),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_found_and_tiles_are_right(name, target, assert_points_right):
    workload = WORKLOADS[name]
    assert rules_for(workload.func, target)[0] is LINES
    space = LINES.space(workload.func, target)
    assert_points_right(LINES, workload, space.points[::5])


def test_what_an_image_is_made_of_may_have_fewer_axes(target, assert_same_outputs):
    func = scaled_by_channel().func
    for lines in (1, 9):
        assert_same_outputs(func, LINES.scheduled(func, target, {"lines": lines}))


@pytest.mark.parametrize(
    ("pixels", "mcpu", "lanes"),
    [
        *((2, "x86-64-v4", None), (3, "x86-64-v4", 4), (4, "x86-64-v4", 4), (5, "x86-64-v4", 8)),
        *((9, "x86-64-v4", 16), (18, "x86-64-v4", 16), (4, "haswell", 4), (2, "haswell", None)),
    ],
)
def test_vectors_are_no_wider_than_lines(pixels, mcpu, lanes):
    """2 of 8x8 of 128 channels, 7x7 by 2, whose lines are 4 pixels, take 0.18 of the time of `general`."""
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux-gnu", "num-cores": 2})
    space = LINES.space(conv2d(w=pixels).func, target)
    assert (space and space.default["lanes"]) == lanes


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_alone(name, target):
    assert LINES.space(OTHERS[name].func, target) is None


def test_lines_become_whole_vectors_and_images_as_long_as_they_need():
    found = find_lines(WORKLOADS["strided"].func)
    assert found.extents == [2, 4, 5, 7] and found.taps == [1, 3, 3]
    script = restate(WORKLOADS["strided"].func, 8).script()
    # 8 pixels every 2 elements, with windows of 3: 17 elements.
    assert "(T.int64(2), T.int64(4), T.int64(11), T.int64(17))" in script
    assert "(T.int64(2), T.int64(4), T.int64(5), T.int64(8))" in script


def test_a_trace_of_another_function_is_refused():
    with pytest.raises(InputError, match="no window along lines"):
        in_form(OTHERS["product"].func, "tunesmith.algorithm.lines_8")


def test_lines_before_an_image_are_cut_off_where_a_block_has_as_many(target):
    """TVM cuts off three lines, of a block that has two as well: it would write beyond them."""
    func = conv2d(kh=2, padding=3, h=12).func

    def cut(lines):
        schedule = LINES.scheduled(func, target, {"lines": lines})
        *_, line, _ = schedule.get_loops(schedule.get_sblock(WIDE))
        return PARTITION_MARK in schedule.get(line).annotations

    assert cut(17) and not cut(1)


@pytest.mark.parametrize(("name", "apart"), [("strided", 2), ("strided_by_three", 3)])
def test_lines_under_strided_windows_have_phases_whose_vectors_are_contiguous(name, apart, target):
    space = LINES.space(WORKLOADS[name].func, target)
    assert space.default["phases"] == apart
    assert {point["phases"] for point in space.points} == {1, apart}
    text = finished(LINES.scheduled(WORKLOADS[name].func, target).mod, target).script()
    read = re.findall(r"lines_wide\[([^\]]*)\] \* ", text)
    assert read and all(re.search(r"\+ i3_\d( \+|$)", each) for each in read)


@pytest.mark.parametrize(
    ("mcpu", "shape", "vectors", "rows"),
    [
        ("x86-64-v4", {"kh": 7, "kw": 7, "padding": 3}, 2, 8),
        ("haswell", {"kh": 7, "kw": 7, "padding": 3}, 2, 4),  # half of 16 registers
        ("x86-64-v4", {"kh": 7, "kw": 7, "padding": 3, "h": 13, "w": 13}, 1, 7),  # 7 and 6
        ("x86-64-v4", {"kh": 31, "kw": 31, "padding": 15}, 1, 8),  # 16 times 31 are too many to unroll
        ("x86-64-v4", {"w": 128, "h": 128}, 2, 2),  # lines of three taps come from beyond L1
        ("x86-64-v4", {"w": 28, "h": 28}, 2, 7),
        ("x86-64-v4", {"stride": 2}, 2, 2),
        ("x86-64-v4", {"kh": 1, "padding": 0}, 2, 1),  # neighbouring lines read nothing twice
        ("x86-64-v4", {"kw": 1, "padding": 0}, 2, 1),
    ],
)
def test_tiles_are_as_many_lines_as_registers_hold_sums_of(mcpu, shape, vectors, rows, monkeypatch):
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    machine = replace(facts(target), l1_bytes=32768)
    monkeypatch.setattr(lines_schedule, "facts", lambda _: machine)
    default = LINES.space(conv2d(**{"h": 64, "w": 64, **shape}).func, target).default
    assert (default["vectors"], default["rows"]) == (vectors, rows)


@pytest.mark.parametrize(("mcpu", "sums"), [("x86-64-v4", 14), ("haswell", 8)])
def test_sums_of_a_tile_of_lines_stay_in_registers(mcpu, sums):
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    func = conv2d(h=28, w=28, kh=5, kw=5, padding=2).func
    loops = summing_loops(generate_code(LINES.scheduled(func, target).mod, target).mod.inspect_source("asm"))
    assert [loop.accumulators for loop in loops if not (loop.stores or loop.spills)] == [sums]


def test_lines_that_are_taken_apart_stay_in_l1(target, monkeypatch):
    machine = replace(facts(target), l1_bytes=49152)
    monkeypatch.setattr(lines_schedule, "facts", lambda _: machine)
    shape = {"h": 112, "w": 112, "kh": 5, "kw": 5, "padding": 2}
    assert LINES.space(conv2d(stride=2, **shape).func, target).default["lines"] == 14
    assert LINES.space(conv2d(**shape).func, target).default["lines"] == 112


def test_tiles_of_lines_do_not_reach_into_the_next_block(target):
    func = conv2d(h=15).func
    schedule = LINES.scheduled(func, target, {"lines": 15, "rows": 4})
    loops = schedule.get_loops(schedule.get_sblock(f"{SUMS}_update"))
    assert sum(PARTITION_MARK in schedule.get(loop).annotations for loop in loops) == 1
    with pytest.raises(InputError, match="rows divides lines, or is at most these where they are all"):
        LINES.scheduled(func, target, {"lines": 5, "rows": 4})


def test_phases_are_as_many_as_elements_that_windows_move_by():
    assert restate(WORKLOADS["strided"].func, 8, 2).body.block.alloc_buffers[1].shape[3] == 2
    with pytest.raises(InputError, match="in 3 phases"):
        restate(WORKLOADS["strided"].func, 8, 3)


def test_threads_share_whole_images_where_these_are_enough(target):
    assert LINES.space(WORKLOADS["large"].func, target).default["lines"] == 40
    one_image = LINES.space(WORKLOADS["one_image"].func, as_target({"kind": "llvm", "num-cores": 7})).default
    assert one_image["lines"] == 1


def test_tiny_windows_stay_on_one_thread(target):
    assert "T.parallel" not in LINES.scheduled(WORKLOADS["depthwise"].func, target).mod.script()
    assert "T.parallel" in LINES.scheduled(WORKLOADS["large"].func, target).mod.script()
