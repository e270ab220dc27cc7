"""Functions that work row by row: which they are, and that every point of their space is right."""

from dataclasses import replace
from itertools import combinations, product
from math import ceil, prod

import pytest
import tunesmith as ts
import tvm
from tunesmith.kernels.operator import as_prim_func
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import code_generation, rules_for
from tunesmith.schedules.algorithms import has_algorithm
from tunesmith.schedules.analysis import block_names
from tunesmith.schedules.code_generation import generate_code
from tunesmith.schedules.cpu import row_choice
from tunesmith.schedules.cpu.rows import ROWS
from tunesmith.schedules.expressions import is_choice, loads_of
from tunesmith.schedules.forms.whole_rows import kept_values, lengthened_axes, restate, restate_with_values
from tunesmith.schedules.lane_reduction import best_width
from tunesmith.schedules.nests.rows import find_rows
from tunesmith.schedules.passes import streaming
from tunesmith.schedules.restatement import held_blocks
from tvm import s_tir, te, topi
from tvm_ffi import structural_hash, structural_walk

AVX512 = {"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux"}


def of(function, *shapes, **options):
    inputs = [te.placeholder(shape, "float32", name=f"x{i}") for i, shape in enumerate(shapes)]
    return as_prim_func([*inputs, function(*inputs, **options)])


def grouped(x):
    """Subtract from each channel the largest value of its group of 4."""
    i, j = te.reduce_axis((0, 4)), te.reduce_axis((0, 48))
    top = te.compute((3, 5), lambda n, g: te.max(x[n, g * 4 + i, j], axis=[i, j]), name="top")
    return te.compute((3, 20, 48), lambda n, c, k: x[n, c, k] - top[n, c // 4], name="below")


ROWED = {
    "softmax": (of(topi.nn.softmax, (66, 520)), ((0, 1),), True, 520),
    "softmax_first_axis": (of(topi.nn.softmax, (128, 72), axis=0), ((1, 1),), False, 128),
    "layer_norm": (
        of(topi.nn.layer_norm, (4, 96, 96), (96,), (96,), axis=[2], epsilon=1e-5),
        ((0, 1), (1, 1)),
        True,
        96,
    ),
    # Its output block reads a whole tensor of products with what is reduced.
    "rms_norm": (
        of(topi.nn.rms_norm, (6, 7, 96), (96,), axis=[2], epsilon=1e-5),
        ((0, 1), (1, 1)),
        True,
        96,
    ),
    "sum": (of(topi.sum, (77, 1024), axis=1), ((0, 1),), True, 1024),
    "sum_middle": (of(topi.sum, (5, 64, 33), axis=1), ((0, 1), (1, 1)), False, 64),
    "sum_of_one_row": (of(topi.sum, (1, 65536), axis=1), ((0, 1),), True, 65536),
    "sum_first_and_last": (of(topi.sum, (32, 17, 128), axis=(0, 2)), ((0, 1),), True, 4096),
    "sum_of_prime_length": (of(topi.sum, (6, 1009), axis=1), ((0, 1),), True, 1009),
    "sum_of_one_odd_row": (of(topi.sum, (1, 65537), axis=1), ((0, 1),), True, 65537),
    "softmax_of_prime_length": (of(topi.nn.log_softmax, (5, 197)), ((0, 1),), True, 197),
    "layer_norm_of_odd_length": (
        of(topi.nn.layer_norm, (7, 333), (333,), (333,), axis=[1], epsilon=1e-5),
        ((0, 1),),
        True,
        333,
    ),
    "argmax": (of(topi.argmax, (65, 700), axis=1), ((0, 1),), True, 700),
    "global_pool": (of(topi.sum, (2, 32, 7, 7), axis=(2, 3)), ((0, 1), (1, 1)), True, 49),
    "softmax_before_axes_of_one": (of(topi.nn.softmax, (5, 300, 1, 1), axis=1), ((0, 1),), True, 300),
    "sum_before_an_axis_of_one": (of(topi.sum, (3, 64, 40, 1), axis=1), ((0, 1), (1, 1)), False, 64),
    "sum_that_keeps_axes": (of(topi.sum, (6, 9, 128), axis=2, keepdims=True), ((0, 1), (1, 1)), True, 128),
    "maximum_of_axes_of_one": (of(topi.max, (1, 1, 1), axis=1), ((1, 1),), False, 1),
    "grouped": (of(grouped, (3, 20, 48)), ((0, 1), (1, 4)), True, 192),
    "sum_of_a_batch": (of(topi.sum, (5, 3, 11, 13), axis=(0, 2, 3)), ((0, 1),), True, 715),
    "sum_of_parts_of_a_batch": (of(topi.sum, (64, 1, 47, 53), axis=(0, 2, 3)), ((0, 1),), True, 159424),
    "maximum_of_odd_images": (of(topi.max, (6, 13, 37), axis=(1, 2)), ((0, 1),), True, 481),
    # In whole vectors, the pieces of a row are longer than what is computed of them.
    "sum_of_pieces_of_exponentials": (
        of(lambda x: topi.sum(topi.exp(x), axis=(0, 2)), (4, 3, 640)),
        ((0, 1),),
        True,
        2560,
    ),
    "norm_of_odd_images": (
        ts.workload("group_norm", n=2, c=6, h=5, w=7, groups=2).func,
        ((0, 1), (1, 3)),
        True,
        105,
    ),
}
NOT_ROWS = {
    "product": ts.workload("matmul", m=8, n=8, k=8).func,
    "convolution": ts.workload("conv2d", n=1, h=8, w=8, ci=3, co=8, kh=3, kw=3).func,
    "elementwise": of(topi.exp, (8, 8)),
    "window": of(
        topi.nn.pool2d,
        (1, 16, 28, 28),
        kernel=(3, 3),
        stride=(2, 2),
        dilation=(1, 1),
        padding=(1, 1, 1, 1),
        pool_type="max",
    ),
    "everything": of(topi.sum, (33, 64)),
}


@pytest.mark.parametrize("name", ROWED)
def test_rows_are_found(name):
    func, rows, contiguous, length = ROWED[name]
    nest = find_rows(func)
    assert (nest.rows, nest.contiguous, nest.length) == (rows, contiguous, length)


@pytest.mark.parametrize("name", NOT_ROWS)
def test_what_has_no_rows_is_left_alone(name, target):
    assert find_rows(NOT_ROWS[name]) is None
    assert ROWS.space(NOT_ROWS[name], target) is None


def pairwise(points):
    """Return few points that hold every pair of two knobs' values which any of the points holds."""
    held = [set(combinations(point.items(), 2)) for point in points]
    left, chosen = set().union(*held), []
    while left:
        most = max(range(len(points)), key=lambda nth: len(held[nth] & left))
        chosen.append(points[most])
        left -= held[most]
    return chosen


def test_few_points_hold_every_pair():
    points = [dict(zip("abcd", values, strict=True)) for values in product(range(3), repeat=4)]
    chosen = pairwise(points)
    assert len(chosen) < 14  # of 81; nine are the least
    for (one, a), (other, b) in combinations(product("abcd", range(3)), 2):
        assert one == other or any(point[one] == a and point[other] == b for point in chosen)


@pytest.mark.parametrize("name", ROWED)
def test_every_kind_of_point_is_right(name, target, assert_same_outputs):
    func = ROWED[name][0]
    space = ROWS.space(func, target)
    chosen = [space.default, *pairwise(space.points)]
    tried: set[int] = set()
    for knobs in chosen:
        schedule = ROWS.scheduled(func, target, knobs)
        # Some points are no schedules of their own: chunks, for one, matter to few of them.
        if (loops := structural_hash(schedule.mod)) not in tried:
            tried.add(loops)
            assert_same_outputs(func, schedule, optimized=knobs == space.default)


@pytest.mark.parametrize(
    ("columns", "vectors", "together"), [(384, 1, True), (384, 2, True), (112, 1, True), (100, 1, False)]
)
def test_exponentials_are_summed_where_they_are_computed(columns, vectors, together):
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2})
    func = ts.workload("softmax", m=64, n=columns).func
    sch = ROWS.scheduled(func, target, {"vectors": vectors, "whole": 0, "block": 4})
    names = block_names(sch)
    sums = next(name for name in names if name.startswith("row_sum_rf") and name.endswith("update"))
    loops = [[sch.get(loop) for loop in sch.get_loops(sch.get_sblock(name))] for name in ("exp", sums)]
    shared = sum(one.same_as(other) for one, other in zip(*loops, strict=False))
    # Blocks of rows, rows of a block, and steps along a row.
    assert shared == (3 if together else 1)


@pytest.mark.parametrize(("length", "whole"), [(1009, 1), (1024, 0), (49, 1), (384, 0), (7, 0)])
def test_rows_that_vectors_do_not_divide_are_made_whole(length, whole):
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2})
    space = ROWS.space(of(topi.nn.softmax, (64, length)), target)
    assert space.default["whole"] == whole


def test_a_row_of_prime_length_that_cannot_be_made_whole_is_left_alone(target):
    assert best_width(1009, 16, 4) == 1
    assert ROWS.space(of(topi.argmax, (64, 1009), axis=1), target) is None
    assert ROWS.space(of(topi.argmax, (64, 13), axis=1), target) is not None


def test_whole_rows_need_vectors_that_do_not_divide_them(target):
    func = of(topi.sum, (6, 1024), axis=1)
    with pytest.raises(InputError, match="do not divide the row"):
        ROWS.scheduled(func, target, {"whole": 1})
    with pytest.raises(InputError, match="no multiple of 64"):
        restate(func, 64)


@pytest.mark.parametrize("images", [(6, 13, 37), (2, 3, 40, 56)])
def test_axes_that_lie_in_memory_like_one_become_one(images):
    """Read by line and column, sums of three axes of 3 to 1000 take 16 times as long."""
    func = of(topi.sum, images, axis=tuple(range(1, len(images))))
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2})
    restated = restate(func, 64)
    assert find_rows(func).axes == images[1:]
    assert find_rows(restated).axes == (ceil(prod(images[1:]) / 64) * 64,)
    assert ROWS.space(func, target).default["whole"] == 1
    reads = [load.indices for load in loads_of(restated.body) if load.source.same_as(func.params[0])]
    assert [int(index) for indices in reads for index in indices[1:-1]] == [0] * (len(images) - 2)


@pytest.mark.parametrize(
    ("func", "axes"),
    [
        (of(topi.sum, (32, 17, 128), axis=(0, 2)), (32, 128)),  # others lie between
        (of(topi.sum, (5, 3, 11, 13), axis=(0, 2, 3)), (5, 192)),  # of a batch, as statistics are
        (of(lambda x: topi.sum(topi.exp(x), axis=(1, 2)), (6, 13, 37)), (13, 64)),  # computed before
    ],
)
def test_axes_apart_stay_as_they_are(func, axes):
    assert lengthened_axes(func, 64) == axes
    assert find_rows(restate(func, 48)).axes[:-1] == axes[:-1]


@pytest.mark.parametrize(
    ("image", "vectors"), [((28, 28), 4), ((5, 5), 2), ((2, 3), None)], ids=["vectors", "one", "part"]
)
def test_no_vector_reaches_from_one_stretch_of_memory_into_the_next(image, vectors):
    """It would be read element by element: means of channels of 8 images of 28x28 took 11 times so long."""
    func = of(topi.sum, (8, 64, *image), axis=(0, 2, 3))
    space = ROWS.space(func, as_target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2}))
    assert (space and (space.default["whole"], space.default["vectors"])) == (vectors and (1, vectors))


def test_what_is_beyond_a_row_is_neutral():
    longer = restate(of(topi.nn.softmax, (5, 197)), 64)
    assert find_rows(longer).length == 256
    # Element by element, nothing is beyond.
    assert find_rows(longer).extents == (5, 197)


def test_values_between_are_as_long_as_what_is_reduced():
    func = of(topi.nn.softmax, (5, 333))
    longer = restate_with_values(func, 64)
    exponentials = held_blocks(longer)["T_softmax_exp"]
    assert [int(axis.dom.extent) for axis in exponentials.iter_vars] == [5, 384]
    ((_, neutral),) = kept_values(func)
    choice = exponentials.body.value
    assert (is_choice(choice), float(choice.args[2]), float(neutral)) == (True, 0, 0)
    # What is neutral is added as it is, and the output has as many elements as before.
    assert not any(is_choice(part) for part in loads_of(held_blocks(longer)["T_softmax_expsum"].body.value))
    assert find_rows(longer).extents == (5, 333)


@pytest.mark.parametrize("function", [topi.nn.log_softmax, lambda x: topi.sum(x, axis=1)])
def test_what_is_not_kept_is_no_longer(function):
    with pytest.raises(InputError, match="no values that are computed once"):
        restate_with_values(of(function, (5, 333)), 64)


@pytest.mark.parametrize(
    "knobs", [{}, {"stream": 1, "block": 2, "ahead": 1}, {"vectors": 1}, {"lanes": 8, "vectors": 1}]
)
@pytest.mark.parametrize("length", [333, 300, 20])
def test_exponentials_in_whole_vectors_are_right(length, knobs, target, assert_same_outputs):
    func = of(topi.nn.softmax, (6, length))
    stream = int(length > 20)
    assert_same_outputs(func, ROWS.scheduled(func, target, {"whole": 2, "stream": stream, **knobs}))


@pytest.mark.parametrize(("operator", "columns"), [("log_softmax", 322), ("softmax", 18)])
def test_a_polynomial_is_masked_in_registers_of_half_the_width(operator, columns, target, assert_right):
    """There it has names in it, which TVM bound twice."""
    workload = ts.workload(operator, m=3, n=columns)
    schedule = ROWS.scheduled(workload.func, target, {"lanes": 8, "vectors": 1, "whole": 2})
    assert_right(workload, schedule)


def test_there_are_three_forms_of_rows(target):
    func = ts.workload("softmax", m=4, n=333).func
    with pytest.raises(InputError, match="whole is at most 2: "):
        ROWS.scheduled(func, target, {"whole": 3})
    with pytest.raises(InputError):
        ROWS.scheduled(func, target, {"whole": -1})


def test_one_value_a_row_is_not_written_past_the_caches(target, assert_right):
    workload = ts.workload("mean", c=32, d=115, axes="d")
    assert_right(workload, ROWS.scheduled(workload.func, target, {"stream": 1}))


IMAGES = [
    ("sum", {"a": 3, "b": 40, "c": 12, "d": 20}),
    ("mean", {"a": 2, "b": 33, "c": 8, "d": 16}),
    ("max", {"b": 7, "c": 56, "d": 56}),
    ("sum", {"a": 2, "b": 9, "c": 6, "d": 7}),  # no whole vectors
]


@pytest.mark.parametrize("knobs", [{"vectors": v, "lanes": lanes} for v in (1, 5, 64) for lanes in (4, 16)])
@pytest.mark.parametrize(("name", "shape"), IMAGES)
def test_sums_over_images_are_right_in_tiles_of_lines(name, shape, knobs, target, assert_right):
    workload = ts.workload(name, **shape, axes="b")
    assert_right(workload, ROWS.scheduled(workload.func, target, knobs))
    if "a" not in shape:
        assert_right(workload, ROWS.scheduled(workload.func, target, {**knobs, "parts": 7}))


@pytest.mark.parametrize(
    ("name", "shape", "lanes", "vectors"),
    [
        ("sum", {"a": 64, "b": 128, "c": 64, "d": 64, "axes": "b"}, 16, 256),  # an image is a tile
        ("mean", {"a": 16, "b": 256, "c": 56, "d": 56, "axes": "b"}, 16, 196),
        ("sum", {"a": 16, "b": 256, "c": 112, "d": 112, "axes": "b"}, 16, 196),  # a quarter of one
        ("sum", {"a": 64, "b": 64, "c": 128, "d": 64, "axes": "c"}, 16, 4),  # no images: lines are apart
        ("argmax", {"a": 16, "b": 256, "c": 56, "d": 56, "axes": "b"}, 16, 98),  # two values: half as many
    ],
)
def test_neighbouring_lines_are_one(name, shape, lanes, vectors):
    default = ROWS.space(ts.workload(name, **shape).func, as_target({**AVX512, "mcpu": "znver5"})).default
    assert (default["lanes"], default["vectors"]) == (lanes, vectors)


@pytest.mark.parametrize(("vectors", "lines", "steps"), [(4, 4, 4), (8, 8, 8), (3, 2, 2), (1, 1, 1)])
def test_a_tile_of_lines_is_one_stretch_of_memory(vectors, lines, steps, target):
    func = ts.workload("sum", a=2, b=9, c=8, d=16, axes="b").func
    schedule = ROWS.scheduled(func, target, {"lanes": 16, "vectors": vectors})
    update = schedule.get_sblock("sum_update")
    extents = [int(schedule.get(loop).extent) for loop in schedule.get_loops(update)]
    # Images and parts of one; all sums, some elements of each of which are added at a time.
    assert extents == [2 * 8 // lines, 3, steps, 3, 16]


def test_lines_that_end_within_a_vector_are_whole_vectors_together(target):
    func = ts.workload("sum", a=2, b=9, c=8, d=12, axes="b").func
    schedule = ROWS.scheduled(func, target, {"lanes": 16, "vectors": 3})
    loops = schedule.get_loops(schedule.get_sblock("sum_update"))
    assert [int(schedule.get(loop).extent) for loop in loops] == [2 * 2, 3, 3, 3, 16]
    assert "T.where" not in schedule.mod.script()


@pytest.mark.parametrize(
    ("rows", "columns", "whole", "block"),
    [
        (65536, 300, 2, 1),  # vectors of 128 bits
        (65536, 333 + 512, 2, 1),  # any
        (65536, 197, 2, 1),
        (65536 * 4, 100, 2, 2),  # few vectors
        (65536 * 4 - 1, 100, 2, 1),  # no two rows
        (65536, 304, 1, 1),  # whole lines of memory
        (64, 300, 0, 1),  # caches hold it
    ],
)
def test_rows_of_a_softmax_past_the_caches_are_computed_in_whole_vectors(rows, columns, whole, block):
    func = ts.workload("softmax", m=rows, n=columns).func
    default = ROWS.space(func, as_target({**AVX512, "mcpu": "znver5"})).default
    assert (default["whole"], default["block"]) == (whole, block)


@pytest.mark.parametrize(
    ("operator", "shape"),
    [
        ("softmax", {"m": 64, "n": 1009}),
        ("layer_norm", {"m": 64, "n": 1009}),
        ("argmax", {"c": 64, "d": 1009}),
    ],
)
def test_the_end_of_a_row_is_a_masked_vector(operator, shape):
    """Partial results of several axes were taken element by element, and numbers of elements in 32 bits."""
    target = as_target(AVX512)
    schedule = ROWS.scheduled(ts.workload(operator, **shape).func, target, {"whole": 1, "vectors": 4})
    chosen: list[object] = []
    structural_walk(
        code_generation.finished(schedule.mod, target)["main"].body,
        (tvm.ir.Call, lambda call: chosen.append(call) if is_choice(call) else None),
    )
    assert not chosen


def test_metaschedule_gets_the_points_that_are_no_other_function(target):
    func = of(topi.sum, (6, 1009), axis=1)
    with target:
        designs = ROWS(s_tir.Schedule(func))
    assert designs
    assert not any(has_algorithm(str(design.trace)) for design in designs)


@pytest.mark.parametrize(
    # 192 elements are no 4 parts of 48: three registers are a type that no CPU has.
    ("length", "width"),
    [(1024, 64), (1000, 50), (49, 7), (128, 32), (1003, 17), (192, 64)],
)
def test_parts_divide_the_row_and_fill_vectors(length, width):
    assert best_width(length, 16, 4) == width


def test_few_long_rows_are_cut_into_parts(target):
    func = ROWED["sum_of_one_row"][0]
    assert ROWS.space(func, target).default["parts"] == 4 * int(target.attrs["num-cores"])
    assert "T.parallel" in ROWS.scheduled(func, target).mod.script()


def test_neighbouring_rows_are_taken_together_as_far_as_there_are_any(target):
    # 64 sums of 100352 elements each: the whole line is read at once, not 64 bytes of it.
    default = ROWS.space(ts.workload("sum", a=32, b=56, c=56, d=64, axes="abc").func, target).default
    assert default["vectors"] * default["lanes"] == 64


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "lanes", "vectors"),
    [
        (512, 1024, "bfloat16", 16, 4),  # a maximum, then its position: few are read again
        (512, 1008, "bfloat16", 16, 3),
        (512, 1000, "bfloat16", 8, 5),
        (512, 1001, "bfloat16", 16, 4),
        (4096, 1008, "float32", 8, 63),  # both at once, not in 3 tiles for two threads
        (4096, 1024, "float32", 16, 32),  # for each of two threads one
        (4096, 1001, "float32", 16, 32),
        (21, 1000000, "float32", 16, 125),
        (21, 50000, "float32", 8, 5),  # few elements each, in L3
    ],
)
def test_neighbouring_rows_are_as_many_as_are_worth_it(rows, columns, dtype, lanes, vectors):
    func = ts.workload("argmax", dtype=dtype, c=rows, d=columns, axes="c").func
    default = ROWS.space(func, as_target({**AVX512, "mcpu": "znver5", "num-cores": 2})).default
    assert (default["lanes"], default["vectors"]) == (lanes, vectors)


@pytest.mark.parametrize(
    ("height", "width", "stream", "length"),
    # A line is whole vectors, or an image is one; past the caches too, if it is many.
    [(6, 32, 0, 32), (7, 14, 0, 98), (20, 28, 1, 560), (17, 31, 1, 527), (5, 64, 1, 64)],
)
def test_lines_of_an_image_are_one_if_they_are_no_vectors(height, width, stream, length, assert_right):
    workload = ts.workload("group_norm", n=2, c=12, h=height, w=width, groups=4)
    target = as_target(AVX512)
    schedule = ROWS.scheduled(workload.func, target, {"stream": stream, "lanes": 16})
    *_, steps, vector = map(schedule.get, schedule.get_loops(schedule.get_sblock("group_norm")))
    assert (int(steps.extent), int(vector.extent)) == (-(-length // 16), 16)
    here = ts.host_target()
    assert_right(workload, ROWS.scheduled(workload.func, here, {"stream": stream}))
    assert ("tunesmith_stream" in str(code_generation.finished(schedule.mod, target))) == bool(stream)


@pytest.mark.parametrize(("columns", "vectors"), [(48, 3), (80, 5), (100, 7)])
def test_any_number_of_vectors_of_neighbouring_rows_is_right(columns, vectors, target, assert_right):
    workload = ts.workload("argmax", a=2, c=13, d=columns, axes="c")
    assert_right(workload, ROWS.scheduled(workload.func, target, {"vectors": vectors}))
    along = ts.workload("sum", c=13, d=columns, axes="d")
    with pytest.raises(InputError, match="vectors along a row"):
        ROWS.scheduled(along.func, target, {"vectors": vectors})


@pytest.mark.parametrize(
    ("operator", "columns", "vectors", "block"),
    [
        ("log_softmax", 128, 1, 8),
        ("log_softmax", 512, 1, 4),
        # A row or two of these fit L1: their chains are few.
        ("log_softmax", 1024, 4, 2),
        # What is computed in place has two rows, but where LLVM unrolls the whole row.
        ("softmax", 112, 2, 2),
        ("softmax", 128, 4, 2),
        ("softmax", 256, 4, 1),
        ("softmax", 640, 4, 2),
        ("softmax", 77, 2, 2),
    ],
)
def test_rows_taken_together_are_chains_enough_for_an_exponential(operator, columns, vectors, block):
    space = ROWS.space(ts.workload(operator, m=64, n=columns).func, as_target(AVX512))
    assert (space.default["vectors"], space.default["block"]) == (vectors, block)


@pytest.mark.parametrize(
    ("mcpu", "columns", "block"),
    [("znver5", 512, 2), ("znver5", 96, 8), ("znver4", 512, 4), ("haswell", 512, 4)],
)
def test_two_rows_of_one_reduction_are_enough_where_units_are_wide(mcpu, columns, block):
    target = as_target({**AVX512, "mcpu": mcpu})
    assert ROWS.space(ts.workload("rms_norm", m=64, n=columns).func, target).default["block"] == block


@pytest.mark.parametrize(("columns", "vectors"), [(133, 1), (240, 1), (352, 4)])
def test_single_rows_of_few_vectors_have_one_chain_of_exponentials(columns, vectors):
    default = ROWS.space(ts.workload("log_softmax", m=63, n=columns).func, as_target(AVX512)).default
    assert (default["block"], default["vectors"]) == (1, vectors)


@pytest.mark.parametrize(
    ("mcpu", "rows", "columns", "lanes", "block"),
    [
        ("znver4", 64, 512, 8, 4),
        ("znver4", 64, 1024, 8, 2),
        ("znver4", 1, 8192, 8, 1),
        # One row at a time, or rows of a length that is no whole parts, want the widest registers.
        ("znver4", 63, 512, 16, 1),
        ("znver4", 64, 500, 16, 4),
        ("znver4", 64, 64, 16, 8),
        # So does a CPU whose units take these whole.
        ("x86-64-v4", 64, 512, 16, 4),
        ("znver5", 1, 8192, 16, 1),
        ("haswell", 64, 512, 8, 4),
    ],
)
def test_norms_take_registers_in_halves_where_units_do_and_rows_keep_them_busy(
    mcpu, rows, columns, lanes, block
):
    target = as_target({**AVX512, "mcpu": mcpu})
    default = ROWS.space(ts.workload("layer_norm", m=rows, n=columns).func, target).default
    assert (default["lanes"], default["block"]) == (lanes, block)


@pytest.mark.parametrize(
    ("operator", "columns", "block"), [("softmax", 128, 2), ("softmax", 192, 2), ("layer_norm", 128, 8)]
)
def test_registers_are_not_taken_apart_between_two_loops(operator, columns, block):
    """LLVM takes a part of a vector of several registers out bit by bit, through a CPU's other registers."""
    target = as_target(AVX512)
    knobs = {"lanes": 16, "vectors": 4, "block": block}
    schedule = ROWS.scheduled(ts.workload(operator, m=64, n=columns).func, target, knobs)
    code = generate_code(schedule.mod, target).mod.inspect_source("asm")
    assert "zmm" in code
    assert code.count("vpextrq") == 0 and code.count("vinsertps") < 8 * block


@pytest.mark.parametrize(
    ("operator", "rows", "threads"),
    [("softmax", 96, True), ("log_softmax", 96, True), ("softmax", 64, False), ("layer_norm", 96, False)],
)
def test_exponentials_are_worth_threads_sooner(operator, rows, threads, target):
    schedule = ROWS.scheduled(ts.workload(operator, m=rows, n=128).func, target)
    assert ("T.parallel" in schedule.mod.script()) == threads


@pytest.mark.parametrize(("columns", "block"), [(49, 4), (128, 2), (4096, 1)])
def test_short_rows_that_are_only_reduced_are_taken_together(columns, block):
    space = ROWS.space(ts.workload("sum", c=64, d=columns, axes="d").func, as_target(AVX512))
    assert space.default["block"] == block


@pytest.mark.parametrize(
    ("axes", "width"),
    [
        ((8, 56, 56), 8),
        ((10, 14, 14), 8),
        ((16, 7, 7), 16),
        ((8, 64, 64), 32),
        ((28, 28), 28),
        ((150, 197), 30),
        ((3, 35, 35), 7),
    ],
)
def test_parts_of_several_axes_lie_side_by_side(axes, width):
    """Of 8 channels of 56 by 56, what begins anywhere would be read one by one."""
    assert best_width(prod(axes), 8, 5, axes) == width


def test_parts_of_a_volume_are_whole_registers_or_part_of_one():
    """56 elements, three registers and a half, take twice as long as eight registers do."""
    assert best_width(8 * 56 * 56, 16, 4, (8, 56, 56)) == 128
    assert best_width(10 * 14 * 14, 16, 4, (10, 14, 14)) == 14
    assert best_width(28 * 28, 16, 4, (28, 28)) == 56  # of two axes a part of one is as fast


@pytest.mark.parametrize("shape", [(8, 8, 56, 56), (4, 16, 7, 7), (4, 8, 26, 26), (1, 3, 50, 197)])
def test_lines_that_no_vector_divides_are_read_in_vectors(shape, target, assert_right):
    """No load of 8 channels of 56 by 56 asks for the line of each of its elements."""
    workload = ts.workload("sum", **dict(zip("abcd", shape, strict=True)), axes="bcd")
    assert_right(workload, ROWS.scheduled(workload.func, target))
    code = generate_code(ROWS.scheduled(workload.func, target).mod, target)
    source = code.mod.inspect_source("ll")
    # Element by element there are as many as a vector has, at each of the places where vectors are read.
    assert source.count("load float") < facts(target).lanes("float32")


@pytest.mark.parametrize("channels", [6, 12])
def test_groups_of_one_channel_are_rows(channels, target, assert_right):
    workload = ts.workload("group_norm", n=2, c=channels, h=7, w=9, groups=6)
    assert rules_for(workload.func, target)[0].name == "rows"
    assert_right(workload, ROWS.scheduled(workload.func, target))


def test_a_mean_of_as_many_rows_as_a_vector_is_no_row(assert_right):
    """What is computed once a row has no vectors that a sum could take up, however many rows there are."""
    workload = ts.workload("layer_norm", dtype="float64", m=16, n=16)
    avx2 = as_target({"kind": "llvm", "mcpu": "haswell", "mtriple": "x86_64-linux"})
    assert ROWS.space(workload.func, avx2).default["lanes"] == 4
    assert_right(workload, ROWS.scheduled(workload.func, avx2))


@pytest.mark.parametrize(("operator", "axes"), [("max", "ab"), ("max", "d"), ("argmax", "c")])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_maxima_of_half_floats_are_right(operator, axes, dtype, target, assert_right):
    workload = ts.workload(operator, dtype=dtype, a=33, b=1, c=3, d=16, axes=axes)
    assert_right(workload, ROWS.scheduled(workload.func, target))


@pytest.mark.parametrize(
    ("operator", "rows", "l3", "ahead"),
    [
        ("softmax", 4608, 480, 4),
        ("softmax", 4608, 32, 0),
        ("softmax", 512, 480, 0),
        ("layer_norm", 4608, 480, 0),
        ("layer_norm", 16384, 480, 4),  # more than the L3 keeps of it
    ],
)
def test_rows_are_fetched_ahead_from_an_l3_far_away(operator, rows, l3, ahead, monkeypatch):
    target = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    machine = replace(facts(target), l2_bytes=2 << 20, l3_bytes=l3 << 20)
    for module in (row_choice, streaming):
        monkeypatch.setattr(module, "facts", lambda _: machine)
    func = ts.workload(operator, m=rows, n=384).func
    assert ROWS.space(func, target).default["ahead"] == ahead
