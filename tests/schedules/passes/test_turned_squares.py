"""Squares of a weight that are transposed in registers, also where its rows or columns end within them."""

import re

import pytest
import tunesmith as ts
from tunesmith.machine.target import as_target
from tunesmith.schedules.code_generation import finished, generate_code
from tunesmith.schedules.cpu.matmul import MATMUL
from tunesmith.schedules.cpu.widened import WIDENED_MATMUL

IN_BLOCK = {"pack": 1, "split_columns": 1}
FIRST = {"pack": 2, "split_columns": 0}


@pytest.mark.parametrize("blocks", [IN_BLOCK, FIRST])
@pytest.mark.parametrize(
    ("columns", "sums", "block_columns"),
    [
        (100, 64, 2),  # columns end within a square
        (128, 57, 4),  # sums do
        (100, 57, 2),
        (97, 31, 4),  # a single column in the last panel, and squares that reach back by all but one row
        (33, 17, 1),
        (100, 250, 3),  # the last block of panels is cut short
        (49, 16, 1),
    ],
)
def test_a_weight_of_any_size_is_turned_in_squares(
    blocks, columns, sums, block_columns, target, assert_right
):
    workload = ts.workload("linear", m=40, n=columns, k=sums, activation="relu", bias=1)
    knobs = {"mr": 2, "nr": 32, "block_columns": block_columns, **blocks}
    schedule = MATMUL.scheduled(workload.func, target, knobs)
    assert_right(workload, schedule)
    lines = finished(schedule.mod, target).script().splitlines()
    packed = [line for line in lines if re.match(r"\s*weight_\w+\[.* = ", line)]
    assert packed and all("Shuffle" in line for line in packed), "element by element"
    # Nothing is read behind the weight, or written behind a panel.
    lanes = MATMUL.space(workload.func, target).check(knobs)["lanes"]
    loads = [line for line in lines if re.search(r"row\w*: T.let.*Ramp", line)]
    assert any("if_then_else" in line for line in loads) == (columns % lanes > 0)
    assert all(f"T.min(T.int64({sums - lanes})," in line for line in loads) == (sums % lanes > 0)


def test_sums_shorter_than_a_square_are_not(target, assert_right):
    workload = ts.workload("linear", m=40, n=100, k=13)
    schedule = MATMUL.scheduled(workload.func, target)
    assert "Shuffle" not in finished(schedule.mod, target).script()
    assert_right(workload, schedule)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_types(dtype, target, assert_right):
    """What is widened where it is multiplied is turned as it is, bfloat16 as its bits."""
    workload = ts.workload("batch_matmul", dtype=dtype, b=3, m=20, n=45, k=39, transpose="NT")
    schedule = MATMUL.scheduled(workload.func, target)
    assert "Shuffle" in finished(schedule.mod, target).script()
    assert_right(workload, schedule)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("columns", "sums"), [(45, 39), (64, 32)])
def test_what_is_widened_in_its_panels_is_turned_before(dtype, columns, sums, target, assert_right):
    workload = ts.workload("matmul", dtype=dtype, m=20, n=columns, k=sums, transpose="NT")
    schedule = WIDENED_MATMUL.scheduled(workload.func, target)
    script = finished(schedule.mod, target).script()
    moved = "uint16" if dtype == "bfloat16" else dtype
    assert re.search(rf"T.let.*{moved}x\d+", script) and "Shuffle" in script
    assert_right(workload, schedule)


@pytest.mark.parametrize(
    ("mcpu", "triple"), [("haswell", "x86_64-linux-gnu"), ("cortex-a76", "aarch64-linux-gnu")]
)
def test_other_cpus_interleave_vectors_too(mcpu, triple):
    cpu = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": triple, "num-cores": 2})
    schedule = MATMUL.scheduled(ts.workload("linear", m=40, n=100, k=57).func, cpu)
    code = generate_code(schedule.mod, cpu).mod.inspect_source("asm")
    assert ("zip1" if "aarch64" in triple else "vunpcklps") in code
