"""Transpositions: which are found, that squares in registers are right, and that traces find them."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import tunesmith as ts
from hypothesis import assume, given
from hypothesis import strategies as st
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules.code_generation import finished, generate_code
from tunesmith.schedules.cpu import transpose_space
from tunesmith.schedules.cpu.transpose import TRANSPOSE, squares_in_block
from tunesmith.schedules.forms import buffered_squares, skewed_squares
from tunesmith.schedules.forms.squares import find_transposition, restate
from tunesmith.schedules.passes import streaming
from tunesmith.schedules.transposition import transposition_intrinsic
from tunesmith.tuning.processes.worker_group import WorkerGroup
from tunesmith.tuning.records.compilation import trace_text

ORDERS = ["".join(order) for order in permutations("abcd")]
EXTENTS = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 33])

SHAPES = {
    "matrix": {"c": 64, "d": 96, "order": "abdc"},
    "small_squares": {"c": 20, "d": 12, "order": "abdc"},
    "channels_first": {"a": 2, "b": 24, "c": 8, "d": 32, "order": "adbc"},
    "channels_last": {"a": 2, "b": 32, "c": 24, "d": 8, "order": "acdb"},
    "reversed": {"a": 16, "b": 3, "c": 5, "d": 8, "order": "dcba"},
    "odd": {"c": 37, "d": 49, "order": "abdc"},
    "axes_together": {"a": 3, "b": 7, "c": 4, "d": 18, "order": "dcab"},
}


def of(shape, dtype="float32"):
    return ts.workload("transpose", dtype=dtype, **shape)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8"])
def test_every_kind_of_point_is_right(name, dtype, target, assert_points_right):
    workload = of(SHAPES[name], dtype)
    space = TRANSPOSE.space(workload.func, target)
    assert_points_right(TRANSPOSE, workload, space.points[:: max(1, len(space) // 6)])


@given(extents=st.lists(EXTENTS, min_size=4, max_size=4), order=st.sampled_from(ORDERS), data=st.data())
def test_any_order_of_any_extents_is_right(extents, order, data, target, run):
    workload = of(dict(zip("abcd", extents, strict=True)) | {"order": order})
    space = TRANSPOSE.space(workload.func, target)
    assume(space is not None)
    x = np.arange(np.prod(extents), dtype="float32").reshape(extents)
    knobs = data.draw(st.sampled_from(space.points))
    (got,) = run(TRANSPOSE.scheduled(workload.func, target, knobs), [x])
    np.testing.assert_array_equal(got, x.transpose(["abcd".index(axis) for axis in order]))


@pytest.mark.parametrize(
    "workload",
    [
        of({"a": 4, "b": 8, "c": 16, "d": 32, "order": "acbd"}),  # the last axis stays
        of({"a": 4, "b": 8, "c": 16, "d": 1, "order": "bacd"}),  # the last that is longer than 1 stays
        of({"c": 8, "d": 32, "order": "abcd"}),
        of({"c": 3, "d": 96, "order": "abdc"}),  # no square fits in
        ts.workload("relu", m=8, n=8),
        ts.workload("matmul", m=8, n=8, k=8),
    ],
    ids=lambda w: f"{w.label} {w.dtype}",
)
def test_others_are_left_alone(workload, target):
    assert TRANSPOSE.space(workload.func, target) is None


@pytest.mark.parametrize(
    ("shape", "axes", "extents", "row"),
    [
        (SHAPES["channels_first"], ((0,), (1,), (2, 3)), (2, 32, 192), 1),
        (SHAPES["axes_together"], ((0,), (1,), (2, 3)), (18, 4, 21), 0),
        ({"a": 2, "b": 5, "c": 1, "d": 7, "order": "dcab"}, ((0,), (2, 3)), (7, 10), 0),
        (SHAPES["reversed"], ((0,), (1,), (2,), (3,)), (8, 5, 3, 16), 0),
    ],
)
def test_axes_that_stay_together_are_one(shape, axes, extents, row):
    found = find_transposition(of(shape).func)
    assert (found.axes, found.extents, found.row) == (axes, extents, row)


@pytest.mark.parametrize(
    ("shape", "lanes", "streamed"),
    [
        ({"c": 16, "d": 7}, 8, 0),
        ({"c": 7, "d": 16}, 8, 0),
        ({"c": 12, "d": 16}, 8, 1),
        ({"c": 8, "d": 1}, 4, 0),
    ],
)
def test_a_form_that_does_not_fit_is_refused(shape, lanes, streamed):
    with pytest.raises(InputError, match=f"no transposition that consists of squares of {lanes}"):
        restate(of(shape | {"order": "abdc"}).func, lanes, streamed)


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
    workload = of(SHAPES[name])
    streamed = TRANSPOSE.scheduled(workload.func, target, {"stream": 1})
    assert_right(workload, streamed)
    code = generate_code(streamed.mod, target).mod.inspect_source("asm")
    ordinary = generate_code(TRANSPOSE.scheduled(workload.func, target).mod, target).mod.inspect_source("asm")
    assert ("vmovnt" in code, "vmovnt" in ordinary) == (True, False)


@pytest.mark.parametrize(
    ("mcpu", "dtype", "side", "lanes", "form"),
    [
        ("x86-64-v4", "float32", 256, 16, ()),
        ("x86-64-v4", "float16", 256, 16, ()),
        ("x86-64-v4", "int8", 256, 32, ()),
        ("x86-64-v4", "float32", 4096, 16, ("stream",)),
        ("x86-64-v4", "float16", 8192, 32, ("stream",)),
        ("x86-64-v4", "float64", 4096, 8, ("stream",)),
        ("haswell", "float32", 4096, 8, ("stream",)),
        ("x86-64-v4", "float32", 4104, 16, ("stream", "skewed")),
        ("x86-64-v4", "float32", 4092, 16, ("stream", "skewed")),
        ("x86-64-v4", "float64", 4097, 8, ("stream", "skewed")),
        ("x86-64-v4", "float16", 8191, 32, ("stream", "skewed")),
        ("haswell", "float32", 4097, 8, ("stream", "skewed")),
        ("x86-64-v4", "int8", 16383, 32, ()),  # takes longer skewed
        ("x86-64-v4", "bfloat16", 8192, 16, ()),
    ],
)
def test_squares_are_as_wide_as_registers_allow(mcpu, dtype, side, lanes, form):
    machine = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    default = TRANSPOSE.space(of({"c": side, "d": side, "order": "abdc"}, dtype).func, machine).default
    switches = tuple(name for name in ("stream", "buffered", "skewed") if default[name])
    assert (default["lanes"], switches) == (lanes, form)


BUFFERED = {
    "rows_of_many_lines": {"c": 1030, "d": 43, "order": "abdc"},
    "in_parts": {"a": 2, "c": 1301, "d": 37, "order": "abdc"},
    "rows_that_follow_each_other": {"a": 3, "b": 51, "c": 9, "d": 17, "order": "acdb"},
    "short_rows": {"a": 3, "b": 24, "c": 1, "d": 100, "order": "adbc"},
    "rows_that_do_not": {"b": 517, "c": 3, "d": 33, "order": "adcb"},
}


@pytest.mark.parametrize("name", BUFFERED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("squares", "stretch"), [(16, 1), (256, 4)])
def test_rows_that_begin_anywhere_go_by_way_of_a_buffer(name, dtype, squares, stretch, target, assert_right):
    workload, lanes = of(BUFFERED[name], dtype), min(8, facts(target).lanes(dtype))
    knobs = {"buffered": 1, "stream": 1, "squares": squares, "stretch": stretch, "lanes": lanes}
    streamed = TRANSPOSE.scheduled(workload.func, target, knobs)
    assert_right(workload, streamed)
    assert "tunesmith_stream" in str(finished(streamed.mod, target))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ({"b": 90, "c": 5, "d": 70, "order": "adcb"}, "float32"),  # short rows, apart from each other
        ({"c": 37, "d": 20, "order": "abdc"}, "float32"),  # few lines
        (BUFFERED["in_parts"], "float16"),
    ],
)
def test_others_do_not(shape, dtype, target):
    func = of(shape, dtype).func
    with pytest.raises(InputError, match="buffered is 1 only with stream=1, rows of many lines and 32 bits"):
        TRANSPOSE.scheduled(func, target, {"buffered": 1, "stream": 1, "lanes": 4})
    with pytest.raises(InputError, match="no transposition by way of a buffer of squares of 4"):
        buffered_squares.restate(func, 4, 64, 4)


SKEWED = {
    "no_shift_repeats": {"c": 1031, "d": 43, "order": "abdc"},
    "shifts_that_repeat": {"c": 1038, "d": 64, "order": "abdc"},
    "images_that_begin_anywhere": {"a": 3, "b": 35, "c": 9, "d": 131, "order": "adbc"},
    "rows_apart": {"b": 131, "c": 3, "d": 33, "order": "adcb"},
    "rows_shifted_alike": {"a": 3, "b": 135, "c": 16, "d": 19, "order": "adcb"},
    "one_square": {"c": 49, "d": 31, "order": "abdc"},
}


@pytest.mark.parametrize("name", SKEWED)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8"])
@pytest.mark.parametrize(("squares", "stretch", "ahead"), [(16, 2, 0), (2, 1, 1)])
def test_rows_that_begin_anywhere_are_written_in_skewed_squares(
    name, dtype, squares, stretch, ahead, target, assert_right
):
    workload, lanes = of(SKEWED[name], dtype), min(16, facts(target).lanes(dtype))
    knobs = {"skewed": 1, "stream": 1, "squares": squares, "stretch": stretch, "lanes": lanes, "ahead": ahead}
    streamed = TRANSPOSE.scheduled(workload.func, target, knobs)
    assert_right(workload, streamed)
    text = str(finished(streamed.mod, target))
    assert ("tunesmith_stream" in text, "prefetch" in text) == (True, bool(ahead))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ({"c": 64, "d": 64, "order": "abdc"}, "float32"),  # squares divide the rows
        ({"c": 11, "d": 20, "order": "abdc"}, "float32"),  # no row has a whole square after any shift
        ({"c": 99, "d": 20, "order": "abdc"}, "bfloat16"),
    ],
)
def test_rows_without_skewed_squares(shape, dtype, target):
    func = of(shape, dtype).func
    with pytest.raises(InputError, match=r"skewed is 1 only with stream=1, buffered=0 and lanes of \["):
        TRANSPOSE.scheduled(func, target, {"skewed": 1, "stream": 1, "lanes": 8})
    with pytest.raises(InputError, match="no transposition in skewed squares of 8"):
        skewed_squares.restate(func, 8, 16, 2)


@pytest.mark.parametrize("mcpu", ["x86-64-v4", "haswell"])
@pytest.mark.parametrize("lanes_of_line", [("float32", 16), ("float64", 8), ("float16", 32)])
def test_skewed_blocks_are_so_many_lines(mcpu, lanes_of_line):
    dtype, line = lanes_of_line
    machine = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    space = TRANSPOSE.space(of({"c": 8193, "d": 8193, "order": "abdc"}, dtype).func, machine)
    assert space.default["lanes"] * space.default["squares"] == 16 * line
    assert space.default in space.points
    ordinary = space.check({"stream": 0})
    assert (ordinary["skewed"], ordinary["squares"], ordinary["stretch"]) == (0, 4, 64)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float64", 8)])
@pytest.mark.parametrize("mcpu", ["x86-64-v4", "haswell"])
def test_a_buffer_is_a_part_of_l2(dtype, size, mcpu):
    """Where rows are too short to be skewed and follow each other."""
    machine = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    space = TRANSPOSE.space(of({"c": 75, "d": 800_000, "order": "abdc"}, dtype).func, machine)
    assert space.default["buffered"] == 1
    room = space.default["lanes"] ** 2 * space.default["squares"] * space.default["stretch"] * size
    assert facts(machine).l2_bytes // 16 < room <= facts(machine).l2_bytes // 8
    assert space.default in space.points
    ordinary = space.check({"stream": 0})
    assert (ordinary["buffered"], ordinary["squares"], ordinary["stretch"]) == (0, 4, 64)


@pytest.mark.parametrize(
    ("count", "wanted", "squares"),
    # As many as are wanted, fewer, more than wanted, and some where a prime leaves nothing else.
    [(8, 4, 4), (6, 4, 3), (7, 4, 7), (11, 4, 4), (7, 1, 1), (1, 4, 1)],
)
def test_squares_in_a_row_of_a_block(count, wanted, squares):
    assert squares_in_block(count, wanted) == squares


@pytest.mark.parametrize(
    ("dtype", "rows", "squares"),
    [("float32", 8192, 2), ("float32", 8208, 1), ("float64", 4096, 2), ("float16", 16384, 2)],
)
def test_past_the_caches_lines_are_written_in_pairs(dtype, rows, squares):
    """Where squares of 16 lanes, as wide as a line, are even in number along the output's rows."""
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux-gnu", "num-cores": 2})
    workload = ts.workload("transpose", dtype=dtype, a=1, b=1, c=rows, d=4096, order="abdc")
    default = TRANSPOSE.space(workload.func, target).default
    assert (default["stream"], default["squares"]) == (1, squares)


@pytest.mark.parametrize(
    ("rows", "least", "blocks"),
    # Whole squares; fewer, longer blocks where squares would reach back over most of themselves; one only.
    [(256, 32, 8), (100, 32, 2), (200, 32, 5), (250, 32, 4), (64, 32, 2), (63, 32, 1), (20, 32, 1)],
)
def test_blocks_by_way_of_a_buffer_share_little(rows, least, blocks):
    assert buffered_squares._count_of_blocks(rows, least, 16) == blocks


@pytest.mark.parametrize(
    ("dtype", "rows", "far", "form"),
    [
        ("float32", 184, False, ("stream",)),  # squares of half lines
        ("float32", 184, True, ("stream", "buffered")),
        ("float32", 208, True, ("stream",)),
        ("float32", 289, False, ("stream", "skewed")),
        ("float32", 289, True, ("stream", "buffered")),
        ("float32", 441, True, ("stream", "skewed")),
        ("float64", 196, True, ("stream", "buffered")),
        ("float16", 401, True, ("stream", "skewed")),
    ],
)
def test_past_an_l3_that_is_far_away_short_rows_go_by_way_of_a_buffer(dtype, rows, far, form, monkeypatch):
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    machine = replace(facts(target), l2_bytes=2 << 20, l3_bytes=(300 if far else 32) << 20)
    for module in (transpose_space, streaming):
        monkeypatch.setattr(module, "facts", lambda _: machine)
    workload = of({"a": 800, "c": rows, "d": 256, "order": "abdc"}, dtype)
    default = TRANSPOSE.space(workload.func, target).default
    assert tuple(name for name in ("stream", "buffered", "skewed") if default[name]) == form
    assert default["stretch"] == 2 or not far or form == ("stream",)
