"""Rows that are fetched ahead: which, where, and that results are as they were."""

from dataclasses import replace
from itertools import product

import pytest
import tunesmith as ts
import tvm_ffi
from tunesmith.kernels.operator import as_prim_func
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules.code_generation import finished, generate_code
from tunesmith.schedules.cpu import general_space
from tunesmith.schedules.cpu.general import GENERAL
from tunesmith.schedules.cpu.rows import ROWS
from tunesmith.schedules.cpu.transpose import TRANSPOSE
from tunesmith.schedules.cpu.window import WINDOW
from tunesmith.schedules.expressions import index_variables
from tunesmith.schedules.passes import streaming
from tunesmith.schedules.passes.row_prefetch import AHEAD_MARK
from tunesmith.schedules.restatement import replaced
from tunesmith.tuning.records.compilation import replay_trace, trace_text
from tvm import te, tirx
from tvm.sym import Analyzer
from tvm_ffi import structural_walk

NORMS = {
    "layer_norm": {"m": 12, "n": 128},
    "rms_norm": {"m": 8, "n": 72},
    "softmax": {"m": 10, "n": 200},
    "log_softmax": {"m": 7, "n": 37},
    "group_norm": {"n": 2, "c": 8, "h": 4, "w": 4, "groups": 4},
}


def cpu(mcpu, triple="x86_64-linux"):
    return as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": triple, "num-cores": 2})


def prefetches(schedule, target):
    """Return the elements that are fetched, as loads."""
    calls = []

    def note(statement):
        if getattr(getattr(statement.value, "op", None), "name", "") == "tirx.prefetch":
            calls.append(statement.value.args[0].args[0])

    structural_walk(finished(schedule.mod, target)["main"].body, [(tirx.Evaluate, note)])
    return calls


def places(loads, **elsewhere):
    """Return buffers' names and indices of loads when all loops are at their begin, or elsewhere, by name."""
    simplify = Analyzer().simplify
    at = {var: elsewhere.get(str(var.name), 0) for load in loads for var in index_variables(load.indices)}
    at = {var: tirx.IntImm("int64", place) for var, place in at.items()}
    return [(str(c.source.name), [int(simplify(replaced(i, at))) for i in c.indices]) for c in loads]


def fetched(schedule, target):
    """Return the elements that are fetched when all loops are at their begin: buffers' names and indices."""
    return places(prefetches(schedule, target))


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("knobs", [{"ahead": 1}, {"ahead": 4, "block": 1, "stream": 1}])
def test_results_are_as_without(name, knobs, target, assert_right):
    workload = ts.workload(name, **NORMS[name])
    assert_right(workload, ROWS.scheduled(workload.func, target, knobs))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_each_line_of_the_next_rows_is_fetched_while_exponentials_are_computed(name):
    func, target = ts.workload(name, m=64, n=256).func, cpu("x86-64-v4")
    knobs = {"lanes": 16, "vectors": 4, "block": 2, "stream": 0}
    without, ahead = (ROWS.scheduled(func, target, {**knobs, "ahead": a}) for a in (0, 3))
    assert not fetched(without, target)
    # An iteration is four vectors, each a line; three blocks of two rows later.
    assert fetched(ahead, target) == [("x", [6 * 256 + column]) for column in (0, 16, 32, 48)]


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        (cpu("x86-64-v4"), "prefetcht1"),
        (cpu("haswell"), "prefetcht1"),
        (cpu("neoverse-n1", "aarch64-linux"), "prfm"),
    ],
    ids=["avx512", "avx2", "neon"],
)
def test_the_instruction(target, instruction):
    func = ts.workload("softmax", m=64, n=256).func
    for ahead in (0, 1):
        code = generate_code(ROWS.scheduled(func, target, {"ahead": ahead}).mod, target)
        assert (instruction in code.mod.inspect_source("asm")) == bool(ahead)


@pytest.mark.parametrize(
    ("name", "shape", "ahead"),
    [
        ("layer_norm", {"m": 8192, "n": 1024}, 2),  # rows of a page
        ("layer_norm", {"m": 32768, "n": 256}, 4),
        ("softmax", {"m": 512, "n": 16384}, 1),
        ("softmax", {"m": 128, "n": 1024}, 0),  # in the caches
        ("sum", {"a": 1, "b": 1, "c": 8192, "d": 1024, "axes": "d"}, 0),  # read once
        ("argmax", {"a": 1, "b": 1, "c": 16384, "d": 1024, "axes": "d"}, 2),
        ("argmax", {"a": 1, "b": 1, "c": 128, "d": 1024, "axes": "d"}, 0),
    ],
)
def test_rows_that_no_cache_holds_are_fetched_some_pages_ahead(name, shape, ahead):
    default = ROWS.space(ts.workload(name, **shape).func, cpu("x86-64-v4")).default
    assert default["ahead"] == ahead
    if ahead and name != "argmax":  # which writes little
        assert (default["block"], default["stream"]) == (1, 1)


def test_a_trace_keeps_what_is_fetched(target):
    func = ts.workload("rms_norm", m=8, n=256).func
    schedule = ROWS.scheduled(func, target, {"ahead": 2})
    assert AHEAD_MARK in trace_text(schedule)
    assert tvm_ffi.structural_equal(replay_trace(trace_text(schedule), func).mod, schedule.mod)


@pytest.mark.parametrize("axes", ["d", "c"])
def test_what_is_read_once_is_not_fetched_ahead(axes, target):
    func = ts.workload("sum", a=1, b=1, c=64, d=64, axes=axes).func
    with pytest.raises(InputError, match="ahead=0 unless rows lie contiguous and are read again") as error:
        ROWS.scheduled(func, target, {"ahead": 1})
    assert "\n" not in str(error.value)


def test_a_transposition_fetches_the_same_square_of_the_next_block():
    func, target = ts.workload("transpose", c=64, d=512, order="abdc").func, cpu("x86-64-v4")
    knobs = {"lanes": 16, "squares": 2, "stretch": 8, "stream": 1}
    without, ahead = (TRANSPOSE.scheduled(func, target, {**knobs, "ahead": a}) for a in (0, 1))
    assert not fetched(without, target)
    assert fetched(ahead, target) == [("x", [512 * row + 8 * 16]) for row in range(16)]


def all_places(schedule, target):
    """Return all elements that the first block of a transposition fetches."""
    mod, found, extents = finished(schedule.mod, target), set(), {}

    def note(loop):
        if str(loop.loop_var.name) in ("row", "step", "fetched"):
            extents[loop.loop_var] = range(int(loop.extent))

    structural_walk(mod["main"].body, [(tirx.For, note)])
    for load in prefetches(schedule, target):
        inside = {var: extents.get(var, [0]) for var in index_variables(load.indices)}
        for at in product(*inside.values()):
            elsewhere = {str(var.name): number for var, number in zip(inside, at, strict=True)}
            found |= {tuple(place) for _, place in places([load], **elsewhere)}
    return found


@pytest.mark.parametrize(
    ("shape", "order", "length", "begin", "rows", "lines"),
    [
        ({"c": 1030, "d": 200}, "abdc", 200, 100, 1030 // 4 // 16 * 16 + 16, 7),  # of the same rows the next
        ({"a": 3, "b": 80, "d": 70}, "adbc", 70, 80 * 70, 80, 5),  # rows that follow each other: next image
    ],
)
def test_by_way_of_a_buffer_all_that_the_next_block_reads_is_fetched(
    shape, order, length, begin, rows, lines
):
    workload, target = ts.workload("transpose", order=order, **{"c": 1, **shape}), cpu("x86-64-v4")
    knobs = {"lanes": 16, "squares": 16, "stretch": 4, "stream": 1, "buffered": 1}
    without, ahead = (TRANSPOSE.scheduled(workload.func, target, {**knobs, "ahead": a}) for a in (0, 1))
    assert not fetched(without, target)
    wanted = {(row * length + begin + 16 * line,) for row in range(rows) for line in range(lines)}
    assert all_places(ahead, target) == wanted


@pytest.mark.parametrize(
    ("shape", "order", "axis", "first"),
    [
        ({"c": 101, "d": 64}, "abdc", 2, 16),  # what a square takes of the next is fetched once
        ({"b": 101, "c": 16, "d": 64}, "adcb", 1, 0),  # its rows lie alike: it takes nothing
    ],
)
def test_skewed_squares_fetch_what_the_one_before_has_not(shape, order, axis, first):
    func, target = ts.workload("transpose", order=order, **shape).func, cpu("x86-64-v4")
    knobs = {"lanes": 16, "squares": 16, "stretch": 1, "stream": 1, "skewed": 1}
    without, ahead = (TRANSPOSE.scheduled(func, target, {**knobs, "ahead": a}) for a in (0, 1))
    assert not fetched(without, target)
    places = [[0, 0, 0, 16 + 15] for _ in range(16)]  # the last column of the next block
    for row, place in enumerate(places, first):
        place[axis] = row
    assert fetched(ahead, target) == [("x", place) for place in places]


def test_a_window_fetches_the_lines_that_the_next_block_pads():
    shape = {"h": 64, "w": 64, "c": 32, "kernel": 3, "padding": 1}
    func, target = ts.workload("max_pool2d", n=1, **shape).func, cpu("x86-64-v4")
    knobs = {"lanes": 16, "lines": 4, "group": 2, "vectors": 1}
    without, ahead = (WINDOW.scheduled(func, target, {**knobs, "ahead": a}) for a in (0, 1))
    assert not fetched(without, target)
    # Its first line is the fourth of 64 pixels, padded by one before.
    assert fetched(ahead, target) == [("data", [(3 * 64 - 1) * 32])]


@pytest.mark.parametrize("stream", [0, 1])
@pytest.mark.parametrize(
    ("operator", "shape", "inputs"),
    [
        ("silu", {"m": 8, "n": 512}, "x"),
        ("add", {"m": 8, "n": 512}, "AB"),
        ("scale_shift_clip", {"m": 64, "n": 96}, "x"),  # scale and shift are those of all rows
        ("scale_shift_clip", {"m": 64, "n": 301}, "x"),  # rows that begin anywhere
    ],
)
def test_elements_are_fetched_some_bytes_before_they_are_read(operator, shape, inputs, stream, assert_right):
    workload, target = ts.workload(operator, **shape), cpu("x86-64-v4")
    knobs = {"lanes": 32, "stream": stream, "chunk": 8}
    without, ahead = (GENERAL.scheduled(workload.func, target, {**knobs, "ahead": a}) for a in (0, 4096))
    assert not fetched(without, target)
    lines = [(name, [at]) for name in inputs for at in (1024, 1024 + 16)]
    found = fetched(ahead, target)
    assert found[: len(lines)] == lines and {name for name, _ in found} == set(inputs)
    assert_right(workload, GENERAL.scheduled(workload.func, ts.host_target(), {**knobs, "ahead": 4096}))


def test_rows_that_are_looked_up_are_not_fetched(target):
    """Where later ones lie would be read beyond the end of the positions."""
    table, at = te.placeholder((50, 64), name="table"), te.placeholder((9,), "int32", name="at")
    over = te.reduce_axis((0, 64))
    most = te.compute((9,), lambda i: te.max(table[at[i], over], axis=over), name="most")
    func = as_prim_func([table, at, te.compute((9, 64), lambda i, j: table[at[i], j] - most[i])])
    for rule, knobs in ((GENERAL, {"ahead": 4096}), (ROWS, {"ahead": 1})):
        elements = prefetches(rule.scheduled(func, target, knobs), target)
        assert "table" not in {str(element.source.name) for element in elements}


@pytest.mark.parametrize(("rows", "far", "ahead"), [(16384, True, 4096), (16384, False, 0), (64, True, 0)])
def test_elements_are_fetched_by_default_past_an_l3_that_is_far_away(rows, far, ahead, monkeypatch):
    target = cpu("x86-64-v4")
    machine = replace(facts(target), l2_bytes=2 << 20, l3_bytes=(300 if far else 32) << 20)
    for module in (general_space, streaming):
        monkeypatch.setattr(module, "facts", lambda _: machine)
    assert GENERAL.space(ts.workload("silu", m=rows, n=1024).func, target).default["ahead"] == ahead
