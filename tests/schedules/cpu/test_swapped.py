"""Products whose operands change places: which do, that all their points are right, traces, registers."""

from dataclasses import replace

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.cpu import tile_choice
from tunesmith.schedules.cpu.swapped import SWAPPED
from tunesmith.schedules.cpu.weight_panels import PACK_FIRST, PACK_IN_BLOCK
from tunesmith.schedules.cpu.widened import WIDENED_MATMUL
from tunesmith.schedules.forms.swapped import OUTPUT, TURNED, find_swapped, restate
from tunesmith.schedules.nests.contraction import find_contraction
from tunesmith.tuning.records.compilation import build, replay_trace, trace_text

X86, ARM = "x86_64-linux-gnu", "aarch64-linux-gnu"


def target_of(mcpu, triple=X86):
    return as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": triple, "num-cores": 2})


AVX512, AVX2 = target_of("x86-64-v4"), target_of("haswell")


def linear(dtype="float32", **more):
    return ts.workload("linear", dtype=dtype, **{"m": 64, "n": 256, "k": 256, **more})


def product(transpose, dtype="float32", **more):
    return ts.workload("matmul", dtype=dtype, transpose=transpose, **{"m": 64, "n": 256, "k": 256, **more})


WORKLOADS = {
    "gelu": linear(activation="gelu"),
    "relu": linear(activation="relu"),
    "residual": linear(residual=1),
    "product": product("NT"),
    "data_along_rows": product("TT"),
    "squares_of_8": linear(m=96, n=200, k=512),
    "squares_of_4": linear(m=96, n=260, k=512, activation="silu"),
    "odd_sum": linear(n=512, k=259),
    "three_vectors": linear(m=96, n=512, k=512),
    "one_panel_of_a_little_weight": linear(m=48, n=512),
    "half": linear("float16"),
    "bfloat16": linear("bfloat16", activation="relu"),
    "double": linear("float64", residual=1),
}
OTHERS = {
    "rows_that_are_no_vectors": linear(m=63),
    "columns_that_are_no_squares": linear(n=254),
    "more_data_than_weight": linear(m=128),
    "weight_along_the_columns": product("NN"),
    "bytes": ts.workload("quantized_linear", m=64, n=256, k=256, zero=128),
    "integers": product("NT", "int8"),
    "batched": ts.workload("batch_matmul", b=4, m=64, n=256, k=256, transpose="NT"),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_the_default_and_right(name, assert_right, target):
    workload = WORKLOADS[name]
    halves = workload.dtype in ("float16", "bfloat16")
    assert rules_for(workload.func, AVX512)[0] is (WIDENED_MATMUL if halves else SWAPPED)
    if SWAPPED.space(workload.func, target) is not None:
        assert_right(workload, SWAPPED.scheduled(workload.func, target))


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_alone(name):
    assert SWAPPED.space(OTHERS[name].func, AVX512) is None


def test_a_constant_weight_is_laid_out_beforehand():
    func = WORKLOADS["gelu"].func.with_attr(CONSTANT_ARGUMENTS, [1])
    assert find_swapped(func) is None


def test_a_weight_larger_than_l2_is_shared_where_panels_are_not():
    """48 rows are one panel: threads share the weight, and all panels are packed before."""
    knobs = SWAPPED.space(linear(m=48, n=3072, k=768).func, AVX512).default
    assert (knobs["nr"], knobs["split_columns"]) == (48, 0)


def test_what_many_blocks_read_is_turned_once():
    """173 tiles of 4 rows are 173 blocks; 16 tiles of 8 are a block for each of two threads."""
    for columns, depth, packs in ((692, 104, PACK_FIRST), (128, 1024, PACK_IN_BLOCK)):
        knobs = SWAPPED.space(linear(m=32, n=columns, k=depth).func, AVX512).default
        assert (knobs["split_columns"], knobs["pack"]) == (0, packs), columns


def test_tiles_of_one_vector_are_for_units_that_take_halves():
    """80 rows are 5 vectors of 16: what halves makes no difference to an AVX2 that has 10 of 8."""
    zen4, intel = target_of("znver4"), target_of("sapphirerapids")
    func = linear(m=80, n=3072, k=768).func
    assert SWAPPED.space(func, zen4).default["nr"] == 16
    assert SWAPPED.space(func, intel) is None
    assert SWAPPED.space(func, AVX2).default["nr"] == 16


def test_a_few_rows_are_left_to_dots():
    """Half a vector of rows; and 16 of a weight from memory, where registers are 16."""
    from_memory = {"n": 4096, "k": facts(AVX2).l3_bytes // (4096 * 4) + 32}
    assert SWAPPED.space(linear(m=8, **from_memory).func, target_of("znver4")) is None
    assert SWAPPED.space(linear(m=16, **from_memory).func, AVX2) is None
    assert SWAPPED.space(linear(m=32, **from_memory).func, AVX2) is not None
    assert SWAPPED.space(linear(m=16, **from_memory).func, target_of("znver4")) is not None


@pytest.mark.parametrize(
    ("rows", "l3_mib", "preferred"), [(128, 300, False), (96, 300, True), (128, 32, True)]
)
def test_many_rows_by_a_weight_from_far_away_are_left_to_others(rows, l3_mib, preferred, monkeypatch):
    machine = replace(facts(AVX512), l2_bytes=2 << 20, l3_bytes=l3_mib << 20)
    monkeypatch.setattr(tile_choice, "facts", lambda _: machine)
    assert SWAPPED.space(linear(m=rows, n=3072, k=768).func, AVX512).preferred == preferred


def test_threads_share_the_weight_where_it_comes_from_memory():
    near, far = facts(AVX512).l3_bytes // 8192, facts(AVX512).l3_bytes // 2048
    for depth, shares_columns in ((near, 1), (far, 0)):
        func = linear(m=128, n=1024, k=depth).func
        assert SWAPPED.space(func, AVX512).default["split_columns"] == shares_columns


@pytest.mark.parametrize("name", ["gelu", "squares_of_8", "data_along_rows", "three_vectors"])
def test_points_drawn_at_random_are_right(name, assert_points_right, target):
    workload = WORKLOADS[name]
    points = SWAPPED.space(workload.func, target).points
    drawn = np.random.default_rng(0).choice(len(points), size=6, replace=False)
    assert_points_right(SWAPPED, workload, [points[i] for i in drawn])


def test_points_are_whole_squares():
    func = linear(n=512, k=512).func
    with pytest.raises(InputError, match=r"mr \* block_rows the columns \(512\), and both are whole"):
        SWAPPED.scheduled(func, AVX512, {"mr": 8, "block_rows": 1})
    with pytest.raises(InputError, match=r"nr \* block_columns divides the rows \(64\)"):
        SWAPPED.scheduled(func, AVX512, {"nr": 48, "block_columns": 1})
    with pytest.raises(InputError, match="squares is one of"):
        SWAPPED.scheduled(func, AVX512, {"squares": 2})


def test_the_form_is_a_product_of_the_weights_rows():
    workload = WORKLOADS["gelu"]
    nest = find_contraction(restate(workload.func))
    assert (nest.row_extent, nest.columns, nest.depth) == (256, 64, 256)
    assert (nest.prologue, nest.epilogue, nest.rest) == ((), (), ())


def test_the_result_is_turned_in_registers_within_its_block():
    """Neither the sums nor what is turned of them exist as a whole."""
    schedule = SWAPPED.scheduled(WORKLOADS["gelu"].func, AVX512)
    text = schedule.mod.script()
    assert "T.Shuffle" in text and OUTPUT in text and TURNED in text
    lowered = build(schedule, AVX512).mod.inspect_source("ll")
    assert "shufflevector" in lowered


def test_a_trace_begins_with_the_form_and_is_replayed():
    func = WORKLOADS["relu"].func
    schedule = SWAPPED.scheduled(func, AVX512)
    trace = trace_text(schedule)
    assert '"tunesmith.algorithm.swapped"' in trace
    assert replay_trace(trace, func).mod.script() == schedule.mod.script()
    with pytest.raises(InputError, match=r"algorithm swapped, which does not fit.*lies along the sum"):
        replay_trace(trace, OTHERS["weight_along_the_columns"].func)


@pytest.mark.parametrize(
    ("machine", "bits"), [(AVX2, 256), (AVX512, 512), (target_of("neoverse-n1", ARM), 128)]
)
def test_the_tile_stays_in_registers_of_other_machines(machine, bits):
    schedule = SWAPPED.scheduled(WORKLOADS["three_vectors"].func, machine)
    loop = inner_loop(build(schedule, machine).mod.inspect_source("s"))
    assert (loop.bits, loop.stores, loop.spills) == (bits, 0, 0) and loop.multiply_adds >= 8
