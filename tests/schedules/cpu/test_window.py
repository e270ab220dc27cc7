"""Sliding windows, each channel for itself: which are found, and that every kind of tile is right."""

from dataclasses import replace

import pytest
import tunesmith as ts
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.cpu import window
from tunesmith.schedules.cpu.window import WINDOW
from tunesmith.schedules.nests.sliding_window import find_window

IMAGE = {"n": 2, "h": 12, "w": 14}
DEPTHWISE = {**IMAGE, "ci": 32, "co": 32, "groups": 32, "kh": 3, "kw": 3, "padding": 1}
WORKLOADS = {
    "depthwise": ts.workload("conv2d", **DEPTHWISE, bias=1, relu=1),
    "depthwise_strided": ts.workload("conv2d", **{**DEPTHWISE, "kh": 5}, stride=2),
    "depthwise_dilated": ts.workload("conv2d", **DEPTHWISE, dilation=2),
    "depthwise_unpadded": ts.workload("conv2d", **{**DEPTHWISE, "padding": 0}),
    "depthwise_half": ts.workload("conv2d", dtype="float16", **DEPTHWISE, relu=1),
    "transposed": ts.workload("conv2d_transpose", **DEPTHWISE, stride=2, output_padding=1, bias=1),
    "transposed_by_4": ts.workload("conv2d_transpose", **{**DEPTHWISE, "kh": 8, "kw": 8}, stride=4),
    "max_pool": ts.workload("max_pool2d", **IMAGE, c=48, kernel=3, stride=2, padding=1),
    "avg_pool": ts.workload("avg_pool2d", **IMAGE, c=16, kernel=3, stride=1, padding=1),
    "large_window": ts.workload("max_pool2d", n=1, h=17, w=17, c=16, kernel=13, stride=1, padding=6),
}
OTHERS = {
    "channels_first": ts.workload("conv2d", **DEPTHWISE, layout="NCHW"),
    "grouped": ts.workload("conv2d", **{**DEPTHWISE, "groups": 16}),
    "all_channels": ts.workload("conv2d", **{**DEPTHWISE, "groups": 1}),
    "no_window": ts.workload("global_avg_pool2d", n=1, h=7, w=7, c=32),
    "odd_channels": ts.workload("max_pool2d", **IMAGE, c=7, kernel=3, stride=2, padding=1),
    "product": ts.workload("matmul", m=8, n=8, k=8),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_found_and_every_kind_of_tile_is_right(name, target, assert_points_right):
    workload = WORKLOADS[name]
    assert rules_for(workload.func, target)[0] is WINDOW
    space = WINDOW.space(workload.func, target)
    points = [space.default, *space.points[:: max(1, len(space) // 3)]]
    assert_points_right(WINDOW, workload, points)


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_alone(name, target):
    assert WINDOW.space(OTHERS[name].func, target) is None


def test_what_is_found():
    nest = find_window(WORKLOADS["depthwise"].func)
    assert (nest.block, nest.pad, nest.prologue) == ("conv2d", "pad", ())
    assert nest.epilogue == ("bias_add", "relu")
    assert (nest.extents, nest.taps, nest.dtype) == ((2, 12, 14, 32), (3, 3, 1), "float32")
    assert nest.padded == (14, 16)


def test_a_weight_that_is_filled_up_is_not_the_image():
    nest = find_window(WORKLOADS["transposed"].func)
    assert (nest.pad, nest.fills, nest.prologue) == ("pad", ("weight_pad",), ())
    assert (nest.extents, nest.taps, nest.padded) == ((2, 24, 28, 32), (2, 2), (14, 16))


def test_channels_go_inside_where_nothing_is_padded(target, assert_right):
    """A pixel's channels are read in one stretch; where lines are padded, the copy lies as it is read."""
    shape = {"n": 1, "h": 12, "w": 12, "c": 128, "kernel": 2, "stride": 2}
    for padding in (0, 1):
        workload = ts.workload("max_pool2d", **shape, padding=padding)
        default = WINDOW.space(workload.func, target).default
        assert default["inside"] == 1 - padding
        schedule = WINDOW.scheduled(workload.func, target, {"inside": 1, "pixels": 2, "vectors": 1})
        loops = schedule.get_loops(schedule.get_sblock("max_pool2d_update"))
        *_, tiles, step, _, _, _, _, _ = (int(schedule.get(loop).extent) for loop in loops)
        assert (tiles, step) == (3 + padding, default["group"])
        assert_right(workload, schedule)


def test_no_two_threads_write_parts_of_a_cache_line(target):
    """Where threads share the channels, each has whole lines of 64 bytes."""
    for channels in (32, 96, 144, 192):
        image = {"n": 1, "h": 56, "w": 56, "ci": channels, "co": channels, "groups": channels}
        func = ts.workload("conv2d", **image, kh=3, kw=3, padding=1).func
        default = WINDOW.space(func, target).default
        assert default["group"] * default["vectors"] * default["lanes"] * 4 % 64 == 0, channels


def test_tiny_windows_stay_on_one_thread(target):
    tiny = ts.workload("max_pool2d", n=1, h=4, w=4, c=16, kernel=2, stride=2)
    large = ts.workload("max_pool2d", n=1, h=64, w=64, c=64, kernel=2, stride=2)
    assert "T.parallel" not in WINDOW.scheduled(tiny.func, target).mod.script()
    assert "T.parallel" in WINDOW.scheduled(large.func, target).mod.script()


@pytest.mark.parametrize(("size", "channels", "lines", "group"), [(7, 1152, 7, 12), (56, 144, 28, 1)])
def test_few_lines_are_padded_twice_and_what_is_padded_stays_in_cache(size, channels, lines, group):
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2})
    dims = {"h": size, "w": size, "ci": channels, "co": channels, "groups": channels}
    func = ts.workload("conv2d", n=1, kh=5, kw=5, padding=2, **dims).func
    default = WINDOW.space(func, target).default
    assert (default["lines"], default["group"]) == (lines, group)


def with_l3_of(mebibytes, monkeypatch):
    """Return a target of two cores of 2 MiB of L2, with an L3 of so many."""
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux-gnu", "num-cores": 2})
    machine = replace(facts(target), l2_bytes=2 << 20, l3_bytes=mebibytes << 20)
    monkeypatch.setattr(window, "facts", lambda _: machine)
    return target


@pytest.mark.parametrize(
    ("l3", "size", "lines", "group"),
    [
        (480, 112, 14, 4),  # all channels of 16 lines fit a quarter of L2
        (32, 112, 56, 1),
        (480, 56, 56, 2),  # L2 holds the image
    ],
)
def test_lines_of_a_far_l3_are_few_enough_for_all_channels(l3, size, lines, group, monkeypatch):
    target = with_l3_of(l3, monkeypatch)
    image = {"n": 1, "h": size, "w": size, "ci": 64, "co": 64, "groups": 64, "kh": 3, "kw": 3, "padding": 1}
    default = WINDOW.space(ts.workload("conv2d", **image).func, target).default
    assert (default["lines"], default["group"]) == (lines, group)


@pytest.mark.parametrize(
    ("l3", "size", "taps", "inside", "pixels"),
    [
        (480, 112, 3, 1, 4),
        (480, 75, 5, 1, 3),
        (480, 112, 7, 0, 8),  # many taps take longer than what is read
        (480, 28, 3, 0, 7),  # L2 holds the image
        (32, 112, 3, 0, 8),
    ],
)
def test_from_a_far_l3_few_pixels_are_computed_in_all_channels(l3, size, taps, inside, pixels, monkeypatch):
    target = with_l3_of(l3, monkeypatch)
    image = {"n": 1, "h": size, "w": size, "ci": 128, "co": 128, "groups": 128, "padding": taps // 2}
    default = WINDOW.space(ts.workload("conv2d", **image, kh=taps, kw=taps).func, target).default
    assert (default["inside"], default["pixels"]) == (inside, pixels)
