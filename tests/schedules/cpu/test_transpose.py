"""Transpositions: which are found, that squares in registers are right, and that traces find them."""

import pytest
import tunesmith as ts
from tunesmith.machine.target import as_target
from tunesmith.schedules.code_generation import generate_code
from tunesmith.schedules.cpu.transpose import TRANSPOSE, find_transposition, whole_squares
from tunesmith.schedules.transposition import transposition_intrinsic
from tunesmith.tuning.processes.worker_group import WorkerGroup
from tunesmith.tuning.records.compilation import trace_text

SHAPES = {
    "matrix": {"c": 64, "d": 96, "order": "abdc"},
    "small_squares": {"c": 20, "d": 12, "order": "abdc"},
    "channels_first": {"a": 2, "b": 24, "c": 8, "d": 32, "order": "adbc"},
    "channels_last": {"a": 2, "b": 32, "c": 24, "d": 8, "order": "acdb"},
    "reversed": {"a": 16, "b": 3, "c": 5, "d": 8, "order": "dcba"},
}


def of(shape, dtype="float32"):
    return ts.workload("transpose", dtype=dtype, **shape)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_kind_of_point_is_right(name, dtype, target, assert_right):
    workload = of(SHAPES[name], dtype)
    space = TRANSPOSE.space(workload.func, target)
    for knobs in [space.default, *space.points[:: max(1, len(space) // 6)]]:
        assert_right(workload, TRANSPOSE.scheduled(workload.func, target, knobs))


@pytest.mark.parametrize(
    "workload",
    [
        of({"a": 4, "b": 8, "c": 16, "d": 32, "order": "acbd"}),  # the last axis stays
        of({"c": 7, "d": 13, "order": "abdc"}),  # no square divides it
        of({"c": 64, "d": 96, "order": "abdc"}, "float16"),
        ts.workload("relu", m=8, n=8),
        ts.workload("matmul", m=8, n=8, k=8),
    ],
    ids=lambda w: f"{w.label} {w.dtype}",
)
def test_others_are_left_alone(workload, target):
    assert TRANSPOSE.space(workload.func, target) is None


def test_the_loop_that_is_contiguous_in_the_input_is_found():
    nest = find_transposition(of(SHAPES["channels_first"]).func)
    assert (nest.row, nest.column, nest.extents, nest.dtype) == (1, 2, (2, 32, 24, 8), "float32")


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_a_square_is_vectors_only(lanes):
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2})
    workload = of({"c": lanes, "d": lanes, "order": "abdc"})
    scheduled = TRANSPOSE.scheduled(workload.func, target, {"lanes": lanes})
    text = scheduled.mod.script()
    assert text.count("T.Shuffle(") == lanes * (lanes.bit_length() - 1)
    assert transposition_intrinsic(lanes, "float32") == f"tunesmith_transpose_{lanes}_float32"


def test_a_trace_is_replayed_where_the_intrinsic_is_unknown(target, tmp_path):
    workload = of(SHAPES["matrix"])
    trace = tmp_path / "trace.json"
    schedule = TRANSPOSE.scheduled(workload.func, target)
    shuffles = schedule.mod.script().count("T.Shuffle(")
    assert shuffles
    trace.write_text(trace_text(schedule))
    code = f"""
import tunesmith as ts
from tunesmith.schedules.transposition import transposition_intrinsic
from tunesmith.tuning.records.compilation import replay_trace
w = ts.workload("transpose", c=64, d=96, order="abdc")
assert transposition_intrinsic.cache_info().misses == 0
assert replay_trace(open({str(trace)!r}).read(), w.func).mod.script().count("T.Shuffle(") == {shuffles}
"""
    with WorkerGroup(1) as group:
        group.workers[0].call(exec, code, 120)


def test_a_transposed_weight_is_packed_in_squares(target, assert_right):
    workload = ts.workload("linear_relu", m=64, n=128, k=96)
    schedule = ts.schedule_rules()["matmul"].scheduled(workload.func, target)
    assert "T.Shuffle(" in schedule.mod.script()
    assert_right(workload, schedule)


@pytest.mark.parametrize("name", ["matrix", "channels_first", "channels_last"])
def test_every_vector_is_written_past_the_caches(name, target, assert_right):
    """Where TVM matches no square in the output itself, what is between is stored so, too."""
    workload = of(SHAPES[name])
    streamed = TRANSPOSE.scheduled(workload.func, target, {"stream": 1})
    assert_right(workload, streamed)
    code = generate_code(streamed.mod, target).mod.inspect_source("asm")
    ordinary = generate_code(TRANSPOSE.scheduled(workload.func, target).mod, target).mod.inspect_source("asm")
    assert ("vmovnt" in code, "vmovnt" in ordinary) == (True, False)


@pytest.mark.parametrize(
    ("mcpu", "dtype", "side", "lanes", "stream"),
    [
        ("x86-64-v4", "float32", 256, 16, 0),
        ("x86-64-v4", "float32", 4096, 8, 1),
        ("x86-64-v4", "float64", 4096, 4, 1),
        ("haswell", "float32", 4096, 8, 1),
        ("x86-64-v4", "float32", 4092, 4, 1),
    ],
)
def test_past_the_caches_squares_are_of_256_bits(mcpu, dtype, side, lanes, stream):
    machine = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    default = TRANSPOSE.space(of({"c": side, "d": side, "order": "abdc"}, dtype).func, machine).default
    assert (default["lanes"], default["stream"]) == (lanes, stream)


@pytest.mark.parametrize(
    ("extent", "lanes", "wanted", "squares"),
    # As many as are wanted, fewer, more than wanted, and one where a prime leaves nothing else.
    [(64, 8, 4, 4), (48, 8, 4, 3), (56, 8, 4, 7), (88, 8, 4, 1), (56, 8, 1, 1)],
)
def test_squares_in_a_row_of_a_block(extent, lanes, wanted, squares):
    assert whole_squares(extent, lanes, wanted) == squares
