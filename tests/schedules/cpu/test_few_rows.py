"""A few rows by a large matrix: where the rule applies, and that it is right."""

import re
from dataclasses import replace

import numpy as np
import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS, as_prim_func
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.analysis import block_names
from tunesmith.schedules.cpu import few_rows_space, tile_choice
from tunesmith.schedules.cpu.few_rows import FEW_ROWS
from tunesmith.schedules.cpu.float32_matrix_unit import FLOAT32_MATRIX_UNIT
from tunesmith.schedules.passes.loop_partition import partition_loops
from tvm import te


def cpu(mcpu):
    return as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})


@pytest.fixture(scope="module")
def depth(target):
    return beyond_tiles(target)


def beyond_tiles(target):
    """A sum as long as a weight of 256 columns needs to be beyond what tiles of AVX-512 read as fast.

    Only units that take registers in halves read from L3 as fast.
    """
    machine = facts(target)
    from_l3 = machine.l3_bytes // 2 if machine.takes_halves else 0
    return max(4 * machine.near_bytes, from_l3) // (256 * 4) + 32


def first_of_vectors(workload, target):
    """Return the default, but for a matrix unit, which a machine may have and is faster from 64 rows on."""
    return next(rule for rule in rules_for(workload.func, target) if rule is not FLOAT32_MATRIX_UNIT)


@pytest.mark.parametrize("rows", [1, 3, 7, 16, 64])
def test_every_kind_of_point_is_right(rows, depth, target, assert_points_right):
    workload = ts.workload("matmul", m=rows, n=256, k=depth)
    assert first_of_vectors(workload, target) is FEW_ROWS
    space = FEW_ROWS.space(workload.func, target)
    assert_points_right(FEW_ROWS, workload, space.points[:: max(1, len(space) // 4)])


def test_rows_that_fill_no_tile_are_cut_off(depth, target, assert_right):
    """Eleven rows in tiles of four: two whole ones, whose rows have no condition, and a smaller one."""
    workload = ts.workload("matmul", m=11, n=256, k=depth)
    schedule = FEW_ROWS.scheduled(workload.func, target, {"mr": 4, "vectors": 1, "depth": 8, "hold": 0})
    assert_right(workload, schedule)
    text = str(partition_loops(schedule.mod))
    whole = text[text.index("in range(T.int64(2)):", text.index("for k_0")) : text.index("if i_1 <")]
    assert "T.where" not in whole and "matmul_global[j_1, i_0 * T.int64(4) + i_1" in whole


def unrolled(target):
    """As many steps as are compiled in seconds: LLVM does without masks, element by element, for a minute."""
    return {} if facts(target).has_masks else {"depth": 1}


@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("columns", [250, 271])
def test_columns_that_threads_cannot_share_evenly_end_by_masks(rows, columns, target, assert_right):
    masks = cpu("x86-64-v4")
    workload = ts.workload("matmul", m=rows, n=columns, k=beyond_tiles(masks))
    default = FEW_ROWS.space(workload.func, masks).default
    assert default["lanes"] == 16
    for knobs in (default, {**default, "shares": 4, "vectors": 3}):
        schedule = FEW_ROWS.scheduled(workload.func, masks, {**knobs, **unrolled(target)})
        assert "B_pad" not in block_names(schedule)  # the weight is read where it lies
        assert_right(workload, schedule)
    assert FEW_ROWS.space(workload.func, cpu("haswell")) is None


@pytest.mark.parametrize(
    ("image", "mr"),
    [
        ({"h": 7, "w": 7, "kh": 3, "kw": 3, "padding": 1, "bias": 1, "relu": 1}, 7),  # tiles that fill lines
        ({"n": 2, "h": 5, "w": 6, "kh": 3, "kw": 2, "padding": 1, "stride": 2}, 3),
        ({"h": 7, "w": 7, "kh": 1, "kw": 1}, 5),
    ],
)
def test_columns_of_windows_end_by_masks(image, mr, target, assert_right):
    masks = cpu("x86-64-v4")
    workload = of_few_pixels(image, beyond_tiles(masks), 271)
    knobs = {"mr": mr, "vectors": 1, "hold": 1, **unrolled(target)}
    assert_right(workload, FEW_ROWS.scheduled(workload.func, masks, knobs))
    assert FEW_ROWS.space(workload.func, cpu("haswell")) is None


@pytest.mark.parametrize(("columns", "widths"), [(48, {1, 2}), (40, {1, 2}), (16, None), (80, {1, 2, 3, 4})])
def test_several_shares_have_columns(columns, widths):
    """Of 48 columns in panels of 48 one thread would have all, of 16 in any; the other overwrites them."""
    masks = cpu("x86-64-v4")
    space = FEW_ROWS.space(ts.workload("matmul", m=8, n=columns, k=1 << 17).func, masks)
    found = None if space is None else {point["vectors"] for point in space.points if point["shares"] == 2}
    assert found == widths


def test_what_is_added_to_columns_that_end_by_masks(target, assert_same_outputs):
    masks = cpu("x86-64-v4")
    depth = beyond_tiles(masks)
    shapes = {"A": (3, depth), "B": (depth, 271), "bias": (271,)}
    A, B, bias = (te.placeholder(shape, "float32", name=name) for name, shape in shapes.items())
    r = te.reduce_axis((0, depth), name="r")
    product = te.compute((3, 271), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="product")
    func = as_prim_func([A, B, bias, te.compute((3, 271), lambda i, j: product[i, j] + bias[j], name="y")])
    assert_same_outputs(func, FEW_ROWS.scheduled(func, masks, unrolled(target)))


@pytest.mark.parametrize("transpose", ["NN", "TN"])
def test_data_lies_as_it_is_read(transpose, depth, target, assert_right):
    workload = ts.workload("matmul", m=16, n=256, k=depth, transpose=transpose)
    schedule = FEW_ROWS.scheduled(workload.func, target, {"depth": 8})
    assert_right(workload, schedule)
    copied = schedule.get(schedule.get_sblock("A_global")).writes[0].source
    assert [int(extent) for extent in copied.shape] == [depth // 8, 16, 8]


@pytest.mark.parametrize(
    "image",
    [
        {"h": 7, "w": 7, "kh": 1, "kw": 1},
        {"h": 9, "w": 8, "kh": 1, "kw": 1, "stride": 2},
        {"n": 2, "h": 5, "w": 6, "kh": 3, "kw": 2, "padding": 1, "stride": 2},
        {"h": 7, "w": 7, "kh": 3, "kw": 3, "padding": 2, "dilation": 2, "bias": 1, "relu": 1},
    ],
)
def test_a_convolution_of_few_pixels(image, depth, target, assert_points_right):
    workload = of_few_pixels(image, depth)
    assert first_of_vectors(workload, target) is FEW_ROWS
    assert_points_right(FEW_ROWS, workload, [{"mr": 2, "vectors": 1, "depth": 4}])


@pytest.mark.parametrize(
    ("image", "mr"),
    [
        ({"n": 2, "h": 5, "w": 8, "kh": 3, "kw": 3, "padding": 1, "stride": 2}, 2),
        ({"h": 4, "w": 6, "kh": 5, "kw": 3, "padding": 3, "dilation": 2, "bias": 1}, 2),
        ({"h": 1, "w": 12, "kh": 1, "kw": 3, "padding": 1}, 3),
        ({"h": 7, "w": 9, "kh": 3, "kw": 3}, 7),
    ],
)
def test_tiles_of_lines_and_across_them(image, mr, depth, target, assert_right):
    workload = of_few_pixels(image, depth)
    assert_right(workload, FEW_ROWS.scheduled(workload.func, target, {"mr": mr, "vectors": 1, "depth": 4}))


@pytest.mark.parametrize(("mr", "left_out"), [(7, True), (4, False)])
def test_tiles_that_fill_lines_leave_out_those_that_meet_padding(mr, left_out, depth, target, run):
    """An infinite weight times padding is no number; and nothing is copied window by window."""
    workload = of_few_pixels({"h": 7, "w": 7, "kh": 3, "kw": 3, "padding": 1}, depth)
    schedule = FEW_ROWS.scheduled(workload.func, target, {"mr": mr, "vectors": 1, "depth": 4})
    assert ("pad_reindex" not in str(schedule.mod)) == left_out
    data, weight = (np.ones(arg.shape, arg.dtype) for arg in workload.args[:2])
    weight[0] = np.inf  # padding is over the first line
    (output,) = run(schedule, (data, weight))
    assert np.isfinite(output[0, 0]).all() == left_out
    assert np.isinf(output[0, 1:]).sum() >= 6 * 5 * 256


def of_few_pixels(image, depth, outputs=256):
    channels = -(-depth // (image["kh"] * image["kw"]) // 8) * 8 + 8
    return ts.workload("conv2d", **{"n": 1, **image}, ci=channels, co=outputs)


@pytest.fixture
def near_l3(monkeypatch):
    """A CPU whose units take whole registers, with these caches, whatever this machine has."""
    target = cpu("x86-64-v4")
    machine = replace(facts(target), l1_bytes=48 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)
    for module in (few_rows_space, tile_choice):
        monkeypatch.setattr(module, "facts", lambda _: machine)
    return target, machine


def test_sums_are_held_for_as_many_steps_as_l1_holds_rows_of_the_weight(near_l3):
    """But for very few rows by a weight of memory; windows are read a few channels at a time."""
    target, machine = near_l3

    def default(rows, columns, elements=2 * machine.near_bytes // 4):
        workload = ts.workload("matmul", m=rows, n=columns, k=-(-elements // columns // 32) * 32)
        knobs = FEW_ROWS.space(workload.func, target).default
        return knobs["hold"], knobs["depth"]

    beyond = machine.kept_by_l3 // 4
    assert default(4, 1120) == (1, 32)
    assert default(4, 1536) == (1, 16)  # every second row is in the same place
    assert default(16, 2048) == (1, 8)
    assert default(4, 2048) == (1, 16)  # one tile reads each row once
    assert default(48, 2016) == (1, 16)
    assert default(12, 1120, beyond) == (1, 16)
    assert default(4, 1120, beyond) == (0, 8)
    window = ts.workload("conv2d", n=1, h=5, w=5, ci=288, co=1120, kh=3, kw=3, padding=1)
    assert FEW_ROWS.space(window.func, target).default["depth"] == 8


def test_what_is_read_next_is_asked_for_where_memory_is_waited_for(near_l3):
    """A weight of memory, of which a thread reads less than a page at a time, or of more rows."""
    target, machine = near_l3
    beyond = machine.kept_by_l3 // 4  # floats of all of it

    def default(rows, columns, elements):
        workload = ts.workload("matmul", m=rows, n=columns, k=-(-elements // columns // 32) * 32)
        return FEW_ROWS.space(workload.func, target).default["fetch"]

    page = 4096 // 4 * machine.cores
    assert default(4, page // 2, beyond) == 1
    assert default(4, 4 * page, beyond) == 0
    assert default(16, 4 * page, beyond) == 1
    assert default(16, 4 * page, beyond // 4) == 0


def test_fetches_are_of_the_next_rows_of_the_weight(depth, target, assert_right):
    workload = ts.workload("matmul", m=3, n=256, k=depth)
    for fetch in (0, 1):
        schedule = FEW_ROWS.scheduled(workload.func, target, {"depth": 4, "vectors": 1, "fetch": fetch})
        assert_right(workload, schedule)
        text = str(partition_loops(schedule.mod))
        assert len(re.findall(r"T\.prefetch\(T\.address_of\(B(_1)?\[", text)) == 4 * fetch
    assert "k_0 * T.int64(4) + T.int64(7)" in text
    with pytest.raises(ts.InputError, match="fetch"):
        FEW_ROWS.scheduled(workload.func, target, {"fetch": 2})


@pytest.mark.parametrize(
    ("mcpu", "rows", "columns", "taken"),
    [
        ("znver5", 16, 704, False),
        ("znver5", 7, 704, True),
        ("znver5", 16, 1024, True),  # rows of the weight that evict each other
        ("znver5", 16, 2016, True),  # rows of the weight that are pages apart
        ("znver5", 8, 720, True),  # columns that fill no tiles
        ("znver5", 64, 704, True),  # more tiles than a weight with sums so long is read for
        ("znver4", 7, 704, True),
        ("znver4", 16, 1024, False),  # nor is any of that slower where units take halves of registers
        ("znver4", 48, 2016, False),
        ("znver4", 8, 720, False),
        ("haswell", 16, 704, True),  # tiles one line wide
    ],
)
def test_tiles_of_two_lines_read_a_weight_that_l3_holds(mcpu, rows, columns, taken):
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    machine = facts(target)
    depth = (2 * machine.l2_bytes * machine.cores // (4 * columns) + 8) // 8 * 8
    workload = ts.workload("matmul", m=rows, n=columns, k=max(depth, 2056 if rows == 64 else 0))
    assert (FEW_ROWS.space(workload.func, target) is not None) == taken


@pytest.mark.parametrize(
    ("mcpu", "width", "taken"), [("znver4", 1, True), ("znver4", 2, False), ("znver5", 2, True)]
)
def test_tiles_of_a_few_pixels_read_a_weight_that_l3_holds(mcpu, width, taken):
    """2x2 pixels leave out taps that meet only padding."""
    target = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    channels = facts(target).l2_bytes * 2 // (9 * 512 * 4) // 8 * 8 + 8
    workload = ts.workload("conv2d", n=1, h=width, w=width, ci=channels, co=512, kh=3, kw=3, padding=1)
    assert (FEW_ROWS.space(workload.func, target) is not None) == taken


def test_columns_that_threads_cannot_share_evenly(depth, assert_right):
    """Of 25 vectors one thread takes three fifths; with one row, or many, `matmul` is better."""
    target = as_target({"kind": "llvm", "mcpu": "haswell", "mtriple": "x86_64-linux", "num-cores": 2})
    for rows, shares in ((1, None), (2, 5), (8, 5), (9, None)):
        workload = ts.workload("matmul", m=rows, n=200, k=4 * depth)
        space = FEW_ROWS.space(workload.func, target)
        assert (None if space is None else space.default["shares"]) == shares
    few = ts.workload("matmul", m=4, n=200, k=4 * depth)
    assert_right(few, FEW_ROWS.scheduled(few.func, target))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types(dtype, depth, target, assert_right):
    workload = ts.workload("matmul", dtype=dtype, m=2, n=256, k=4 * depth)
    assert_right(workload, FEW_ROWS.scheduled(workload.func, target))


def test_others_are_left_alone(depth, target):
    small = ts.workload("matmul", m=1, n=256, k=64)
    many = ts.workload("matmul", m=65, n=256, k=depth)
    along_sum = ts.workload("matmul", m=1, n=256, k=depth, transpose="NT")
    odd = ts.workload("matmul", m=1, n=256, k=depth + 1)
    pixels = ts.workload("conv2d", n=1, h=9, w=9, ci=depth, co=256, kh=1, kw=1)
    first = ts.workload("conv2d", n=1, h=7, w=7, ci=depth, co=256, kh=1, kw=1, layout="NCHW")
    for workload in (small, many, along_sum, odd, pixels, first, ts.workload("relu", m=8, n=8)):
        assert FEW_ROWS.space(workload.func, target) is None, workload.label
    packed_before = ts.workload("matmul", m=4, n=256, k=depth).func.with_attr(CONSTANT_ARGUMENTS, [1])
    assert FEW_ROWS.space(packed_before, target) is None
