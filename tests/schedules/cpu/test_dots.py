"""A few rows by a matrix that is contiguous along the sum: where the rule applies, and that it is right."""

import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target, host_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.analysis import block_names
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.code_generation import finished, generate_code
from tunesmith.schedules.cpu.dots import DOTS
from tunesmith.schedules.passes.loop_partition import partition_loops

AVX512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux-gnu", "num-cores": 2})


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 12])
def test_every_kind_of_point_is_right(rows, depth, target, assert_points_right):
    workload = ts.workload("linear", m=rows, n=256, k=depth, activation="relu", bias=1)
    assert rules_for(workload.func, target)[0] is DOTS
    space = DOTS.space(workload.func, target)
    assert_points_right(DOTS, workload, space.points[:: max(1, len(space) // 4)])


@pytest.mark.parametrize("shape", [{"m": 40, "k": 100}, {"m": 7, "k": 32}, {"m": 300, "k": 1001}, {"m": 2}])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_matrix_by_one_column_is_read_as_it_lies(shape, dtype, assert_right):
    shape = {"k": 64, **shape}
    linear = ts.workload("linear", dtype=dtype, **{**shape, "n": 1, "bias": 1, "activation": "gelu"})
    product = ts.workload("matmul", dtype=dtype, **{**shape, "n": 1})
    for workload in (linear, product):
        assert rules_for(workload.func, AVX512)[0] is DOTS
        if facts(host_target()).has_masks:
            assert_right(workload, DOTS.scheduled(workload.func, AVX512))


@pytest.mark.parametrize(("m", "n", "dtype"), [(40, 2, "float32"), (301, 3, "float32"), (5, 2, "bfloat16")])
@pytest.mark.parametrize("mcpu", ["haswell", "x86-64-v4"])
def test_a_matrix_by_a_few_columns_is_read_as_it_lies(m, n, dtype, mcpu, assert_right):
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    more = {"bias": 1, "activation": "gelu", "residual": 1}
    workload = ts.workload("linear", dtype=dtype, m=m, n=n, k=144, **more)
    assert rules_for(workload.func, target)[0] is DOTS
    assert_right(workload, DOTS.scheduled(workload.func, target))


def test_short_sums_of_a_single_row_are_not_packed_either():
    """Panels of 100 rows of 30 take 1.5 of the time."""
    assert rules_for(ts.workload("matmul", m=100, n=1, k=30).func, AVX512)[0].name == "general"


def test_nothing_is_fetched_after_the_last_columns(target):
    func = ts.workload("linear", m=3, n=4, k=256).func
    with pytest.raises(InputError, match="where tiles of columns follow each other"):
        DOTS.scheduled(func, target, {"nr": 4, "fetch": 1})


@pytest.mark.parametrize(
    ("rows", "columns", "knobs"), [(11, 251, {}), (7, 9, {"mr": 2, "nr": 4}), (3, 5, {"nr": 4})]
)
@pytest.mark.parametrize("fetch", [0, 1])
def test_rows_and_columns_that_fill_no_tile_are_cut_off(rows, columns, knobs, fetch, target, assert_right):
    workload = ts.workload("linear", m=rows, n=columns, k=640, activation="relu", bias=1)
    schedule = DOTS.scheduled(workload.func, target, {**knobs, "fetch": fetch})
    assert_right(workload, schedule)
    if rows == 7:  # in tiles of two, and nine columns in tiles of four: the whole ones have no conditions
        text = str(partition_loops(schedule.mod))
        whole = text[text.index("for j_0") : text.index("relu[")]
        assert "if " not in whole.replace("if ax0 == T.int64(0)", "")


def test_the_next_columns_are_fetched_where_tiles_would_wait_for_the_weight(depth, target):
    machine = facts(target)
    from_memory = machine.l3_bytes // (256 * 4) + 32
    for rows, columns, k, fetches in (
        (8, 256, depth, 1),
        (1, 256, depth, 0),
        (1, 256, from_memory, 1),
        (3, 16, depth, 0),
    ):
        if rows == 1 and k == depth and 256 * 4 * k > machine.l3_bytes:
            continue
        func = ts.workload("matmul", m=rows, n=columns, k=k, transpose="NT").func
        assert DOTS.space(func, target).default["fetch"] == fetches, (columns, rows)
        assembly = generate_code(DOTS.scheduled(func, target).mod, target).mod.inspect_source("asm")
        assert ("prefetch" in assembly or "prfm" in assembly) == bool(fetches), (columns, rows)


@pytest.mark.parametrize(
    ("mcpu", "rows", "columns", "k", "taken"),
    [
        ("x86-64-v4", 8, 128, 768, True),
        ("x86-64-v4", 8, 128, 256, False),  # sums too short for so many rows
        ("x86-64-v4", 4, 128, 256, True),
        ("x86-64-v4", 17, 128, 768, False),
        ("haswell", 4, 128, 768, False),
        ("haswell", 3, 128, 256, True),
        ("x86-64-v4", 5, 692, 409, True),  # sums that end within a vector
        ("x86-64-v4", 6, 692, 409, False),
        ("x86-64-v4", 13, 1000, 1001, False),
        ("x86-64-v4", 10, 300, 416, True),  # columns that fill no panels
        ("x86-64-v4", 11, 300, 416, False),
    ],
)
def test_rows_by_a_weight_that_l2_holds_follow_the_sum(mcpu, rows, columns, k, taken):
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux-gnu", "num-cores": 2})
    func = ts.workload("linear", m=rows, n=columns, k=k).func
    assert (rules_for(func, target)[0] is DOTS) == taken


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("k", [135, 232])
def test_a_sum_may_end_within_a_vector_where_there_are_masks(k, dtype, target, assert_points_right):
    workload = ts.workload("linear", dtype=dtype, m=3, n=61, k=k, activation="relu", bias=1)
    machines = {"x86-64-v4": True, "haswell": k % 8 == 0 and dtype == "float32"}
    for mcpu, applies in machines.items():
        cpu = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux-gnu", "num-cores": 2})
        assert dtype != "float32" or (DOTS.space(workload.func, cpu) is not None) == applies
    if facts(target).has_masks:
        space = DOTS.space(workload.func, target)
        assert_points_right(DOTS, workload, space.points[:: max(1, len(space) // 3)])


def test_only_the_end_of_such_a_sum_has_masks():
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux-gnu", "num-cores": 2})
    func = ts.workload("matmul", m=3, n=64, k=232, transpose="NT").func
    lines = finished(DOTS.scheduled(func, target).mod, target).script().splitlines()
    sums = [line for line in lines if "A_1" in line and "B_1" in line]
    assert ["masked" in line for line in sums] == [False, True]


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types(dtype, target, assert_right):
    workload = ts.workload("matmul", dtype=dtype, m=2, n=21, k=256, transpose="NT")
    assert_right(workload, DOTS.scheduled(workload.func, target))


def test_the_weight_is_read_where_it_lies(target):
    """No panels: the sum's block reads the argument itself."""
    schedule = DOTS.scheduled(ts.workload("matmul", m=2, n=64, k=256, transpose="NT").func, target)
    parts = next(name for name in block_names(schedule) if name.endswith("_update"))
    reads = schedule.get(schedule.get_sblock(parts)).reads
    assert {"A", "B"} <= {str(region.source.name) for region in reads}


def test_others_are_left_alone(depth, target):
    in_cache = ts.workload("matmul", m=4, n=64, k=128, transpose="NT")
    many = ts.workload("matmul", m=65, n=256, k=depth, transpose="NT")
    along_columns = ts.workload("matmul", m=1, n=256, k=depth)
    whole_numbers = ts.workload("quantized_matmul", m=1, n=64, k=256)
    for workload in (in_cache, many, along_columns, whole_numbers, ts.workload("relu", m=8, n=8)):
        assert DOTS.space(workload.func, target) is None, workload.label
    packed_before = ts.workload("matmul", m=1, n=256, k=depth, transpose="NT").func
    assert DOTS.space(packed_before.with_attr(CONSTANT_ARGUMENTS, [1]), target) is None


@pytest.mark.parametrize(
    ("rows", "columns", "taken"),
    [(64, 10, True), (65, 10, False), (16, 100, True), (17, 100, False), (10, 250, True), (11, 250, False)],
)
def test_more_rows_of_16_bits_by_few_columns(rows, columns, taken, target, assert_right):
    """A matrix that is widened is read as it lies, in cache or not."""
    workload = ts.workload("linear", dtype="float16", m=rows, n=columns, k=512)
    assert (DOTS.space(workload.func, target) is not None) == taken
    if taken:
        assert rules_for(workload.func, target)[0] is DOTS
        assert_right(workload, DOTS.scheduled(workload.func, target))


@pytest.mark.parametrize(
    "knobs", [{"mr": 0}, {"mr": 4}, {"nr": 65}, {"lanes": 0}, {"mr": 3, "nr": 64}, {"fetch": 2}]
)
def test_a_point_outside_is_refused(knobs, target):
    workload = ts.workload("matmul", m=3, n=64, k=256, transpose="NT")
    with pytest.raises(InputError):
        DOTS.scheduled(workload.func, target, knobs)


@pytest.mark.parametrize(("depth", "fetches"), [(2144, 1), (2148, 0)])
def test_sums_that_end_within_a_vector_stay_in_registers(depth, fetches):
    """With fetches they would not: LLVM stores those of whole vectors in each step."""
    func = ts.workload("linear", m=3, n=864, k=depth).func
    assert DOTS.space(func, AVX512).default["fetch"] == fetches
    loop = inner_loop(generate_code(DOTS.scheduled(func, AVX512).mod, AVX512).mod.inspect_source("s"))
    assert (loop.bits, loop.stores, loop.spills) == (512, 0, 0)
