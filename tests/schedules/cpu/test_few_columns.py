"""Few columns: which contractions have vectors along the sum, and that they are right."""

import pytest
import tunesmith as ts
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.code_generation import generate_code
from tunesmith.schedules.cpu.few_columns import FEW_COLUMNS

AVX512, AVX2 = (
    as_target({"kind": "llvm", "mcpu": f"x86-64-{level}", "mtriple": "x86_64-linux", "num-cores": 2})
    for level in ("v4", "v3")
)
NEON = as_target({"kind": "llvm", "mcpu": "neoverse-n1", "mtriple": "aarch64-linux-gnu", "num-cores": 2})


def conv(ci, co, side=12, kernel=3, layout="NHWC", **others):
    shape = {"n": 1, "h": side, "w": side, "kh": kernel, "kw": kernel, "padding": kernel // 2, **others}
    return ts.workload("conv2d", ci=ci, co=co, layout=layout, **shape)


@pytest.mark.parametrize(
    "workload",
    [
        conv(16, 3),
        conv(32, 4, side=13, kernel=9, bias=1, relu=1),
        conv(24, 1, side=17, stride=2, residual=1),
        conv(64, 2, n=2, dilation=2),
        conv(64, 2, side=14, kernel=1),
        ts.workload("conv1d", n=8, l=50, ci=64, co=3, kernel=5, padding=2),
        ts.workload("matmul", m=37, n=2, k=128),
        ts.workload("linear", m=65, n=4, k=256, activation="gelu", residual=1),
        ts.workload("matmul", dtype="float64", m=50, n=2, k=256),
    ],
    ids=lambda w: w.label,
)
def test_tiles_are_right(workload, assert_points_right, target):
    space = FEW_COLUMNS.space(workload.func, target)
    lines = next(knob.values for knob in space.knobs if knob.name == "lines")
    assert_points_right(FEW_COLUMNS, workload, [{"mr": 1, "lines": lines[0]}])


@pytest.mark.parametrize(
    ("target", "channels", "most"),
    [(AVX512, 16, 4), (AVX512, 64, 8), (AVX512, 24, 3), (AVX2, 64, 4), (NEON, 64, 2)],
)
def test_columns_are_few_beside_what_adding_up_takes(target, channels, most):
    taken = [co for co in range(1, 12) if FEW_COLUMNS.space(conv(channels, co).func, target)]
    assert taken == list(range(1, most + 1))


@pytest.mark.parametrize(
    "workload",
    [
        conv(3, 2),  # no vectors
        conv(20, 2),  # nor whole ones
        conv(64, 3, layout="NCHW"),
        conv(64, 3, groups=1, n=1, side=3),  # too few lines to share
        ts.workload("matmul", m=64, n=2, k=256, transpose="TN"),
        ts.workload("batch_matmul", b=2, m=64, n=2, k=256),
        ts.workload("matmul", dtype="bfloat16", m=64, n=2, k=256),
        ts.workload("conv2d_transpose", n=1, h=16, w=16, ci=64, co=1, kh=3, kw=3, stride=1),
        ts.workload("relu", m=64, n=3),
    ],
    ids=lambda w: w.label,
)
def test_others_are_left_alone(workload):
    assert FEW_COLUMNS.space(workload.func, AVX512) is None


def test_it_is_the_default_where_it_applies():
    assert rules_for(conv(64, 3).func, AVX512)[0] is FEW_COLUMNS


@pytest.mark.parametrize(("target", "register"), [(AVX512, "zmm"), (AVX2, "ymm"), (NEON, "fmla")])
def test_products_are_whole_vectors(target, register):
    workload = conv(64, 2)
    text = generate_code(FEW_COLUMNS.scheduled(workload.func, target).mod, target).mod.inspect_source("s")
    products = [line for line in text.splitlines() if "fmadd" in line or "fmla" in line]
    assert products and all(register in line for line in products if "fmadd" in line or "v" in line)
    assert not [line for line in products if "fmadd" in line and "ss\t" in line]


@pytest.mark.parametrize(("form", "turned"), [("NN", True), ("NT", False)])
def test_a_weight_is_turned_unless_it_lies_along_the_sum(form, turned):
    schedule = FEW_COLUMNS.scheduled(ts.workload("matmul", m=64, n=4, k=512, transpose=form).func, AVX512)
    assert ("T.sblock_alloc_buffer((T.int64(4), T.int64(512)))" in schedule.mod.script()) == turned
