"""Products of bfloat16 whose neighbours an instruction sums: where the rule applies, and that it is right."""

from dataclasses import replace

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.machine.dot_instructions import VDPBF16PS_512
from tunesmith.machine.facts import facts, has_feature
from tunesmith.machine.target import as_target, host_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.code_generation import generate_code
from tunesmith.schedules.cpu import paired
from tunesmith.schedules.cpu.channels_first import PAIRED_FLAT_PIXELS
from tunesmith.schedules.cpu.paired import PAIRED
from tunesmith.tuning.records.compilation import replay_trace, trace_text

HAS_IT = has_feature(host_target(), VDPBF16PS_512.feature)
NEEDS_IT = pytest.mark.skipif(not HAS_IT, reason=f"this CPU has no {VDPBF16PS_512.feature}")
IMAGE = {"n": 1, "h": 7, "w": 9, "ci": 20, "co": 40, "kh": 3, "kw": 3, "padding": 1}


def halves(name, dtype="bfloat16", **shape):
    return ts.workload(name, dtype=dtype, **shape)


def cpu(mcpu):
    return as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})


WORKLOADS = {
    "rows": halves("matmul", m=24, n=96, k=64),
    "odd": halves("matmul", m=13, n=71, k=37),
    "weight_turned": halves("matmul", m=16, n=64, k=48, transpose="NT"),
    "data_turned": halves("matmul", m=16, n=48, k=33, transpose="TN"),
    "batch": halves("batch_matmul", b=3, m=17, n=40, k=24),
    "weight_first": halves("batch_matmul", b=3, m=16, n=64, k=33, shared="A"),
    "linear": halves("linear", m=20, n=80, k=50, activation="gelu", bias=1, residual=1),
    "channels_last": halves("conv2d", **IMAGE, bias=1, residual=1, relu=1),
    "channels_first": halves("conv2d", **IMAGE, layout="NCHW", bias=1),
    "blocked": halves("conv2d", **{**IMAGE, "ci": 16, "co": 32}, layout="NCHW16c", relu=1),
    "strided": halves("conv2d", **{**IMAGE, "ci": 3, "kh": 5, "kw": 5}, stride=2),
    "pointwise": halves("conv2d", **{**IMAGE, "kh": 1, "kw": 1, "padding": 0, "ci": 33}),
}


@NEEDS_IT
@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_right(name, target, assert_right):
    workload = WORKLOADS[name]
    schedule = PAIRED.scheduled(workload.func, target)
    assert_right(workload, schedule)
    assert replay_trace(trace_text(schedule), workload.func).mod.script() == schedule.mod.script()


@NEEDS_IT
@pytest.mark.parametrize("knobs", [{"pack": 2}, {"mr": 3, "nr": 32}, {"mr": 5, "nr": 16}])
def test_other_tiles_are_right(knobs, target, assert_right):
    for name in ("odd", "linear"):
        workload = WORKLOADS[name]
        assert_right(workload, PAIRED.scheduled(workload.func, target, knobs), optimized=False)


@NEEDS_IT
def test_products_are_exact_and_summed_in_float32(target, run):
    """256 + 1 has nine bits, bfloat16 eight: sums of 65 ones and 256 keep them until they are stored."""
    workload = halves("matmul", m=8, n=32, k=66)
    data, weight = (np.ones(arg.shape, arg.dtype) for arg in workload.args[:2])
    data[:, 0] = 256
    (output,) = run(PAIRED.scheduled(workload.func, target), (data, weight))
    assert (output.astype("float32") == np.float32(256 + 65).astype(output.dtype)).all()


@pytest.mark.parametrize("name", ["matmul", "conv2d"])
def test_the_instruction_is_in_the_inner_loop(name):
    shapes = {
        "matmul": {"m": 256, "n": 256, "k": 256},
        "conv2d": {"n": 1, "h": 28, "w": 28, "ci": 64, "co": 64, "kh": 3, "kw": 3, "padding": 1},
    }
    target, workload = cpu("cooperlake"), halves(name, **shapes[name])
    schedule = PAIRED.scheduled(workload.func, target)
    knobs = PAIRED.space(workload.func, target).default
    code = generate_code(schedule.mod, target).mod.inspect_source("s")
    loop = inner_loop(code)
    assert "vdpbf16ps" in code and loop.bits == 512
    assert loop.accumulators == knobs["mr"] * knobs["nr"] // knobs["lanes"]
    assert (loop.stores, loop.spills) == (0, 0)


@pytest.mark.parametrize(
    ("mcpu", "dtype", "applies"),
    [
        ("znver4", "bfloat16", True),
        ("cooperlake", "bfloat16", True),
        ("skylake-avx512", "bfloat16", False),
        ("haswell", "bfloat16", False),
        ("znver4", "float16", False),
        ("znver4", "float32", False),
    ],
)
def test_it_applies_to_bfloat16_where_a_cpu_has_the_instruction(mcpu, dtype, applies):
    workload = halves("matmul", dtype, m=64, n=64, k=64)
    assert (PAIRED.space(workload.func, cpu(mcpu)) is not None) == applies
    assert (rules_for(workload.func, cpu(mcpu))[0] is PAIRED) == applies


@pytest.mark.parametrize(("size", "taken"), [(8, True), (14, True), (7, False)])
def test_pixels_that_fill_vectors_are_columns(size, taken):
    """Channels first, 1x1; 7x7 would be computed as 64 pixels."""
    image = {"n": 1, "h": size, "w": size, "ci": 32, "co": 48, "kh": 1, "kw": 1, "layout": "NCHW"}
    best = rules_for(halves("conv2d", **image).func, cpu("cooperlake"))[0]
    assert best is (PAIRED_FLAT_PIXELS if taken else PAIRED)


@NEEDS_IT
@pytest.mark.parametrize("images", [1, 3])
def test_pixels_as_columns_are_right(images, target, assert_right):
    image = {"n": images, "h": 8, "w": 10, "ci": 33, "co": 20, "kh": 1, "kw": 1, "layout": "NCHW"}
    workload = halves("conv2d", **image, bias=1, relu=1)
    assert_right(workload, PAIRED_FLAT_PIXELS.scheduled(workload.func, target))


@pytest.mark.parametrize(
    ("rows", "size", "preferred"),
    [(4, 1024, True), (4, 2048, False), (6, 2048, True), (8, 4096, False), (12, 4096, True)],
)
def test_few_rows_are_left_to_rules_that_read_the_weight_as_it_lies(rows, size, preferred, monkeypatch):
    """From memory 4096 x 4096 takes 1.2 times as long in panels for 8 rows, 0.91 for 16."""
    target = cpu("cooperlake")
    machine = replace(facts(target), l2_bytes=1 << 20, l3_bytes=32 << 20)
    monkeypatch.setattr(paired, "facts", lambda _: machine)
    func = halves("matmul", m=rows, n=size, k=size).func
    assert PAIRED.space(func, target).preferred == preferred


@NEEDS_IT
def test_a_trace_is_replayed_in_a_process_that_knows_no_intrinsic(target, assert_replayed_elsewhere):
    workload = WORKLOADS["rows"]
    schedule = PAIRED.scheduled(workload.func, target)
    name = r"tunesmith_dot_products_16x2_bfloat16_bfloat16"
    assert_replayed_elsewhere(workload, schedule, name, "tunesmith_vdpbf16ps_512")
