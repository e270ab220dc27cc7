"""Convolutions of channels first along lines: where it is the default, that tiles are right, registers."""

import re

import pytest
import tunesmith as ts
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.code_generation import finished
from tunesmith.schedules.cpu.channel_lines import CHANNEL_LINES
from tunesmith.schedules.cpu.channels_first import CONV2D_CHANNELS_FIRST, WINOGRAD_CHANNELS_FIRST
from tunesmith.schedules.forms.lines import find_lines
from tunesmith.schedules.passes.loop_partition import partition_loops
from tunesmith.tuning.records.compilation import build, replay_trace, trace_text
from tvm import te


def machine(mcpu, triple="x86_64-linux-gnu"):
    return as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": triple, "num-cores": 2})


AVX2, AVX512 = machine("haswell"), machine("x86-64-v4")


def convolution(dtype="float32", **more):
    shape = {"n": 1, "h": 9, "w": 27, "ci": 3, "co": 10, "kh": 3, "kw": 3, "layout": "NCHW", **more}
    return ts.workload("conv2d", dtype=dtype, **shape)


ENDED = {"bias": 1, "relu": 1, "residual": 1}
WORKLOADS = {
    "first_layer": convolution(padding=1, **ENDED),
    "whole_vectors": convolution(n=2, w=34, co=16, bias=1),
    "strided": convolution(n=2, h=18, w=40, padding=1, stride=2, **ENDED),
    "strided_by_three": convolution(w=60, kw=5, padding=2, stride=3, co=7),
    "strided_dilated": convolution(w=66, kw=3, stride=2, dilation=3, padding=3),
    "patches": convolution(h=16, w=64, kh=4, kw=4, stride=4, co=8),
    "dilated": convolution(h=12, dilation=2, padding=2, relu=1),
    "long_margin": convolution(h=14, kh=2, padding=3, stride=2),
    "one_channel": convolution(n=3, ci=1, co=6, kh=5, kw=5, padding=2),
    "one_output": convolution(ci=9, co=1, padding=1, **ENDED),
    "primes": convolution(h=11, w=23, ci=5, co=13, kh=2, kw=5, relu=1),
    "columns_only": convolution(h=14, ci=4, kh=7, kw=1, bias=1),
    "lines_only": convolution(ci=4, kh=1, kw=7, padding=3, residual=1),
    "one_line_of_one_channel": convolution(n=2, h=21, ci=1, co=2, kh=1, padding=1, bias=1),
    "large": convolution(h=40, w=70, ci=8, co=20, padding=1, bias=1),
    "double": convolution("float64", padding=1, **ENDED),
}
OTHERS = {
    "channels_last": convolution(layout="NHWC"),
    "grouped": convolution(ci=4, co=8, groups=2),
    "depthwise": convolution(ci=10, groups=10),
    "pointwise": convolution(kh=1, kw=1),
    "short_lines": convolution(w=5),
    "half": convolution("float16"),
    "bytes": convolution("int8"),
    "matmul": ts.workload("matmul", m=8, n=16, k=8),
    # Each line would read all of the weight again, from beyond L2: 0.6 MB, where 0.5 MB are there.
    "large_weight": convolution(h=56, w=56, ci=128, co=128, padding=1, stride=2),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_the_default_and_points_of_every_kind_are_right(name, target, assert_points_right):
    workload = WORKLOADS[name]
    assert rules_for(workload.func, target)[0] is CHANNEL_LINES
    space = CHANNEL_LINES.space(workload.func, target)
    few = space.points[:: max(1, len(space) // 4)]
    assert_points_right(CHANNEL_LINES, workload, few)


@pytest.mark.parametrize("cpu", [AVX2, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("name", ["strided", "primes", "first_layer"])
def test_tiles_for_other_vectors_are_right(name, cpu, assert_right):
    assert_right(WORKLOADS[name], CHANNEL_LINES.scheduled(WORKLOADS[name].func, cpu))


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_alone(name):
    assert CHANNEL_LINES.space(OTHERS[name].func, AVX512) is None


@pytest.mark.parametrize(
    ("shape", "rule"),
    [
        ({"h": 320, "w": 320, "ci": 16, "co": 32, "stride": 2}, CHANNEL_LINES),  # 0.60 of the other's time
        ({"h": 56, "w": 56, "ci": 64, "co": 128, "stride": 2}, CHANNEL_LINES),  # 0.80
        ({"h": 40, "w": 40, "ci": 64, "co": 64, "stride": 2}, CONV2D_CHANNELS_FIRST),  # 1.32
        ({"h": 28, "w": 28, "ci": 16, "co": 32}, CHANNEL_LINES),  # 0.77
        ({"h": 56, "w": 56, "ci": 64, "co": 64}, WINOGRAD_CHANNELS_FIRST),  # 1.9
        ({"h": 512, "w": 512, "ci": 128, "co": 3}, CHANNEL_LINES),  # 0.35
    ],
)
def test_what_takes_less_is_the_default(shape, rule):
    """Times over those of the other: 2 threads of a Xeon, without its matrix unit."""
    assert rules_for(convolution(padding=1, **shape).func, AVX512)[0] is rule


def test_tiles_take_whole_lines_and_the_last_is_smaller():
    """27 pixels are two vectors, the second masked; 10 outputs a tile of 8 and one of 2."""
    func, knobs = WORKLOADS["first_layer"].func, {"outputs": 8, "vectors": 2}
    code = build(CHANNEL_LINES.scheduled(func, AVX512, knobs), AVX512).mod.inspect_source("s")
    assert "{%k" in code and code.count("vfmadd") >= 16
    assert CHANNEL_LINES.space(func, AVX512).default["outputs"] == 5  # twice, where 8 leave 2


def test_tiles_before_the_last_have_no_condition():
    """Of seven vectors three are a tile, and the last is one by itself."""
    func = convolution(w=114, co=16).func
    text = str(partition_loops(CHANNEL_LINES.scheduled(func, AVX512, {"outputs": 8, "vectors": 3}).mod))
    summed = text.index("lines_sums[")
    whole = text[summed : text.index("conv2d[", summed)]
    assert "if " not in whole


def test_vectors_of_a_strided_window_are_contiguous():
    func = WORKLOADS["strided"].func
    assert CHANNEL_LINES.space(func, AVX512).default["phases"] == 2
    text = finished(CHANNEL_LINES.scheduled(func, AVX512).mod, AVX512).script()
    read = re.findall(r"lines_wide\[([^\]]*)\] \* ", text)
    assert read and all(re.search(r"\+ i3_\d$|T\.Ramp\(.*, T\.int64\(1\), 16\)", each) for each in read)


def test_channels_that_do_not_slide_are_told_from_outputs():
    found = find_lines(convolution(ci=5, co=12).func)
    assert (found.channels, [int(v.dom.extent) for v in found.output_axes]) == (5, [12])
    depthwise = find_lines(OTHERS["depthwise"].func)
    assert (depthwise.channels, depthwise.output_axes) == (1, [])


def test_threads_share_lines_and_tiny_layers_stay_on_one():
    assert "T.parallel" in CHANNEL_LINES.scheduled(WORKLOADS["large"].func, AVX512).mod.script()
    assert "T.parallel" not in CHANNEL_LINES.scheduled(WORKLOADS["patches"].func, AVX512).mod.script()


def test_a_block_reads_no_more_lines_than_l2_holds():
    """The input of 80 lines of 16 channels is 6.5 MB."""
    default = CHANNEL_LINES.space(convolution(h=320, w=320, ci=16, padding=1, stride=2).func, AVX512).default
    assert 1 <= default["lines"] <= 20


def test_a_trace_begins_with_the_form_and_is_replayed():
    func = WORKLOADS["strided"].func
    schedule = CHANNEL_LINES.scheduled(func, AVX512)
    trace = trace_text(schedule)
    assert "tunesmith.algorithm.lines_16_2" in trace
    assert replay_trace(trace, func).mod.script() == schedule.mod.script()
    with pytest.raises(InputError, match="no window along lines"):
        replay_trace(trace, OTHERS["matmul"].func)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"outputs": 11}, "no more than there are"),
        ({"vectors": 0}, "at least 1"),
        ({"lines": 4}, r"lines divides the output lines \(9\)"),
        ({"phases": 2}, "windows move by 1"),
        ({"lanes": 8}, "lanes is 16"),
    ],
)
def test_bad_knobs_are_named(knobs, message):
    with pytest.raises(InputError, match=message):
        CHANNEL_LINES.scheduled(WORKLOADS["first_layer"].func, AVX512, knobs)


def test_sums_that_others_read_in_another_order_are_left_alone():
    """A transposition after them, of a square image: only its indices tell."""
    x, w = te.placeholder((1, 3, 26, 26), "float32", "x"), te.placeholder((8, 3, 3, 3), "float32", "w")
    axes = [te.reduce_axis((0, 3), name) for name in ("c", "i", "j")]

    def product(n, o, p, q):
        c, i, j = axes
        return te.sum(x[n, c, p + i, q + j] * w[o, c, i, j], axis=axes)

    sums = te.compute((1, 8, 24, 24), product, name="sums")
    turned = te.compute(sums.shape, lambda n, o, p, q: sums[n, o, q, p], name="y")
    func = te.create_prim_func([x, w, turned], index_dtype_override="int64")
    assert CHANNEL_LINES.space(func, AVX512) is None


@pytest.mark.parametrize(("mcpu", "bits"), [("haswell", 256), ("x86-64-v4", 512), ("neoverse-n1", 128)])
@pytest.mark.parametrize("stride", [1, 2])
def test_the_tile_stays_in_registers_of_other_machines(mcpu, bits, stride):
    target = machine(mcpu, "aarch64-linux-gnu" if mcpu == "neoverse-n1" else "x86_64-linux-gnu")
    layer = convolution(h=96, w=96, ci=8, co=16, padding=1, stride=stride)
    loop = inner_loop(build(CHANNEL_LINES.scheduled(layer.func, target), target).mod.inspect_source("s"))
    assert (loop.bits, loop.stores, loop.spills) == (bits, 0, 0) and loop.multiply_adds >= 8
