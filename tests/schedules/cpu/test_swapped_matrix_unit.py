"""Products whose weight a matrix unit reads as it lies: where the rule applies, and that they are right."""

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import has_feature
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.code_generation import generate_code
from tunesmith.schedules.cpu.matrix_unit import MATRIX_UNIT
from tunesmith.schedules.cpu.swapped_matrix_unit import SWAPPED_MATRIX_UNIT
from tunesmith.tuning.records.compilation import replay_trace, trace_text

AMX = as_target({"kind": "llvm", "mcpu": "sapphirerapids", "mtriple": "x86_64-linux", "num-cores": 2})
SHAPES = {
    "one_tile_of_rows": ("linear", {"m": 16, "n": 192, "k": 256, "activation": "silu", "bias": 0}),
    "two": ("linear", {"m": 32, "n": 640, "k": 256, "residual": 1}),
    "odd_tiles": ("linear_relu", {"m": 48, "n": 528, "k": 320}),
    "nothing_follows": ("matmul", {"m": 64, "n": 1024, "k": 512, "transpose": "NT"}),
}

permitted = pytest.mark.skipif(
    not has_feature(ts.host_target(), "amx-bf16"), reason="this machine has no AMX, or no leave to use it"
)


def of(name):
    op, shape = SHAPES[name]
    return ts.workload(op, dtype="bfloat16", **shape)


@permitted
@pytest.mark.parametrize("name", SHAPES)
def test_points_of_the_space_are_right(name, target, assert_points_right):
    workload = of(name)
    points = SWAPPED_MATRIX_UNIT.space(workload.func, target).points
    drawn = np.random.default_rng(2).choice(len(points), 4)
    assert_points_right(SWAPPED_MATRIX_UNIT, workload, [points[i] for i in drawn])


@pytest.mark.parametrize("name", SHAPES)
def test_it_comes_first_and_reads_the_weight_as_it_lies(name):
    func = of(name).func
    assert rules_for(func, AMX)[:2] == [SWAPPED_MATRIX_UNIT, MATRIX_UNIT]
    schedule = SWAPPED_MATRIX_UNIT.scheduled(func, AMX)
    weight = func.params[1]
    copied = [
        line
        for line in schedule.mod.script().splitlines()
        if f"= {weight.name}[" in line and "Cast" not in line
    ]
    assert not copied


def test_a_step_has_two_tiles_of_the_weight_and_of_the_data():
    func = ts.workload("linear", dtype="bfloat16", m=32, n=512, k=4096).func
    code = generate_code(SWAPPED_MATRIX_UNIT.scheduled(func, AMX).mod, AMX).mod.inspect_source("asm")
    found = inner_loop(code)
    times = found.multiply_adds // 4
    assert (found.multiply_adds, found.loads, found.stores) == (4 * times, 4 * times, 0)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("bfloat16", {"m": 24, "n": 512, "k": 256}),
        ("bfloat16", {"m": 32, "n": 500, "k": 256}),
        ("bfloat16", {"m": 32, "n": 512, "k": 250}),
        ("bfloat16", {"m": 256, "n": 3072, "k": 768}),
        ("float32", {"m": 32, "n": 512, "k": 256}),
    ],
    ids=["rows", "columns", "sums", "too_much_data", "float32"],
)
def test_others_are_left_alone(dtype, shape):
    assert SWAPPED_MATRIX_UNIT.space(ts.workload("linear", dtype=dtype, **shape).func, AMX) is None


def test_it_does_not_apply_without_the_unit(without_tiles):
    assert SWAPPED_MATRIX_UNIT.space(of("two").func, without_tiles) is None


def test_blocks_that_are_not_whole_are_refused():
    with pytest.raises(InputError, match="divides the rows"):
        SWAPPED_MATRIX_UNIT.scheduled(of("two").func, AMX, {"block_rows": 3})


def test_a_trace_is_replayed():
    workload = of("two")
    schedule = SWAPPED_MATRIX_UNIT.scheduled(workload.func, AMX)
    assert replay_trace(trace_text(schedule), workload.func).mod.script() == schedule.mod.script()
