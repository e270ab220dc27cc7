"""Rows between whose pieces those of others lie, as channels of images: sums over images and columns."""

import pytest
import tunesmith as ts
from tunesmith.kernels.operator import as_prim_func
from tunesmith.machine.errors import InputError
from tunesmith.machine.target import as_target
from tunesmith.schedules.analysis import block_names, loops_by_kind
from tunesmith.schedules.code_generation import finished, generate_code
from tunesmith.schedules.cpu.rows import ROWS
from tvm import te, tirx, topi
from tvm_ffi import structural_walk

ZEN = {"kind": "llvm", "mcpu": "znver5", "mtriple": "x86_64-linux", "num-cores": 2}


@pytest.mark.parametrize("knobs", [{"block": 6}, {"block": 3, "parts": 5}, {"vectors": 1}], ids=str)
@pytest.mark.parametrize("columns", [64, 61, 9])
@pytest.mark.parametrize(("name", "axes"), [("sum", "bd"), ("mean", "ad"), ("max", "abd")])
def test_rows_in_pieces_are_right(name, axes, columns, knobs, target, assert_right):
    workload = ts.workload(name, a=5, b=10, c=6, d=columns, axes=axes)
    space = ROWS.space(workload.func, target)
    points = [{**space.default, "lanes": 8, "vectors": 2, **knobs, "whole": whole} for whole in (0, 1)]
    allowed = [point for point in points if space.allows(point)]
    assert allowed
    for point in allowed:
        assert_right(workload, ROWS.scheduled(workload.func, target, point))


@pytest.mark.parametrize(("block", "parts"), [(1, 1), (8, 1), (4, 2)])
def test_pieces_are_read_in_the_order_they_lie_in(block, parts, target):
    """Row after row they are 256 bytes here and there: sums take 1.6 times as long."""
    func = ts.workload("sum", a=3, b=10, c=8, d=64, axes="bd").func
    knobs = {"lanes": 8, "vectors": 2, "block": block, "parts": parts}
    schedule = ROWS.scheduled(func, target, knobs)
    update = next(name for name in block_names(schedule) if name.endswith("_update"))
    loops = [*map(schedule.get, schedule.get_loops(schedule.get_sblock(update)))]
    rows = [block] if block > 1 else []
    assert [int(loop.extent) for loop in loops[1:]] == [10 // parts, *rows, 4, 16]
    _, summed = loops_by_kind(schedule, schedule.get_sblock(update), 0)
    assert [schedule.get(loop) for loop in summed] == [loops[1], loops[-2]]


@pytest.mark.parametrize(
    ("shape", "block", "parts", "vectors"),
    [
        ({"a": 64, "b": 128, "c": 64, "d": 64, "axes": "bd"}, 64, 1, 1),
        ({"a": 64, "b": 128, "c": 64, "d": 64, "axes": "abd"}, 64, 8, 1),  # one block: parts for the threads
        ({"a": 63, "b": 127, "c": 64, "d": 64, "axes": "abd"}, 16, 1, 1),  # that cannot be had
        ({"a": 16, "b": 512, "c": 28, "d": 28, "axes": "acd"}, 64, 1, 4),  # long pieces
        ({"a": 64, "b": 2, "c": 512, "d": 512, "axes": "acd"}, 2, 8, 4),
        ({"a": 8, "b": 128, "c": 14, "d": 14, "axes": "acd"}, 1, 1, 4),  # the near caches hold it
        ({"c": 1 << 16, "d": 256, "axes": "d"}, 2, 1, 4),  # no pieces
        ({"b": 64, "c": 56, "d": 56, "axes": "b"}, 1, 1, 7),  # near: a part would be few elements of each
        ({"b": 64, "c": 100, "d": 100, "axes": "b"}, 1, 1, 25),
        ({"c": 1000, "d": 100, "axes": "c"}, 1, 1, 4),  # tiles enough
        ({"c": 4096, "d": 1000, "axes": "c"}, 1, 8, 125),  # long columns
    ],
)
def test_as_many_rows_are_taken_as_l1_holds_sums_of(shape, block, parts, vectors):
    default = ROWS.space(ts.workload("sum", **shape).func, as_target(ZEN)).default
    assert (default["block"], default["parts"], default["vectors"]) == (block, parts, vectors)


def test_parts_are_whole_pieces_which_are_whole_vectors(target):
    """A piece of 9 elements was as long as 8 parts of whole vectors: 64."""
    func = ts.workload("sum", a=8, b=10, c=2, d=9, axes="abd").func
    knobs = {"lanes": 8, "vectors": 1, "parts": 8, "whole": 1}
    schedule = ROWS.scheduled(func, target, knobs)
    assert "whole_rows_8_8" in schedule.mod.script()
    update = next(name for name in block_names(schedule) if name.endswith("_update"))
    extents = [int(schedule.get(loop).extent) for loop in schedule.get_loops(schedule.get_sblock(update))]
    assert extents[-2:] == [2, 8]
    with pytest.raises(InputError, match=r"parts divides the pieces of a row \(80\)"):
        ROWS.scheduled(func, target, {**knobs, "parts": 3})


@pytest.mark.parametrize("cpu", ["znver4", "haswell"])
@pytest.mark.parametrize("shape", [{"c": 12, "d": 23}, {"c": 7, "d": 70}, {"b": 5, "c": 3, "d": 41}], ids=str)
def test_maxima_with_their_positions_are_right_in_tiles_of_any_width(shape, cpu, assert_right):
    """Each copy of what binds a name has one of its own, which is a vector where lanes are masked."""
    workload = ts.workload("argmax", **shape, axes=next(iter(shape)))
    target = as_target({**ZEN, "mcpu": cpu})
    for vectors in (1, 2, 3):
        schedule = ROWS.scheduled(workload.func, target, {"lanes": 16, "vectors": vectors})
        assert_right(workload, schedule)
        generate_code(schedule.mod, target)
    code = finished(schedule.mod, target)["main"].body
    loops: list[tirx.For] = []
    structural_walk(code, (tirx.IfThenElse, loops.append))
    assert bool(loops) == (cpu == "haswell")


@pytest.mark.parametrize(
    ("columns", "vectors", "tiles"), [(1001, 32, 2), (1001, 8, 8), (70, 4, 2), (1001, 63, 1)]
)
def test_tiles_of_any_width_are_spread_over_threads(columns, vectors, tiles, target):
    """What is left of a row of rows had been computed apart, and all of them on one thread."""
    func = ts.workload("max", c=2048, d=columns, axes="c").func
    schedule = ROWS.scheduled(func, target, {"lanes": 16, "vectors": vectors, "parts": 1})
    loop = schedule.get(schedule.get_loops(schedule.get_sblock("max_update"))[0])
    assert (int(loop.extent), loop.kind) == (tiles, tirx.ForKind.PARALLEL)


def test_values_that_are_kept_are_reduced_in_parts(target, assert_same_outputs):
    x = te.placeholder((2, 1009), "float32", name="x")
    func = as_prim_func([x, topi.sum(topi.exp(x), axis=1)])
    knobs = {"lanes": 8, "vectors": 2, "parts": 4, "whole": 2}
    schedule = ROWS.scheduled(func, target, knobs)
    assert "whole_values_16_4" in schedule.mod.script()
    assert_same_outputs(func, schedule)
