"""What the register tile becomes in machine code, for CPUs that this machine need not have."""

import re

import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for
from tunesmith.schedules.analysis import block_names
from tunesmith.schedules.assembly import summing_loops
from tunesmith.schedules.code_generation import finished, generate_code
from tunesmith.schedules.cpu.block_choice import default_blocks
from tunesmith.schedules.cpu.conv2d import CONV2D
from tunesmith.schedules.cpu.matmul import MATMUL
from tunesmith.schedules.cpu.tile_choice import tile_choice
from tunesmith.schedules.nests.contraction import find_contraction
from tvm import tirx
from tvm_ffi import structural_walk

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-linux-gnu"


def cpu(mcpu, mtriple=X86, cores=2):
    return as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": mtriple, "num-cores": cores})


# A multiply-add into a whole vector, and a vector that is kept on the stack for want of registers.
CPUS = {
    "x86-64-v4": (cpu("x86-64-v4"), r"vfmadd\w+ps\s.*%zmm\d+$", r"%zmm\d+, .*\(%rsp|\(%rsp.*, %zmm"),
    "haswell": (cpu("haswell"), r"vfmadd\w+ps\s.*%ymm\d+$", r"%ymm\d+, .*\(%rsp|\(%rsp.*, %ymm"),
    "neoverse-n1": (cpu("neoverse-n1", ARM), r"fmla\s+v\d+\.4s", r"\bq\d+.*\[sp"),
}

WORKLOADS = {
    "matmul": ts.workload("matmul", m=240, n=256, k=256),
    "conv2d": ts.workload("conv2d", n=1, h=28, w=28, ci=64, co=64, kh=3, kw=3, padding=1),
}


def inner_loop(assembly, multiply_add):
    """Return the lines of the loop without another in it that has the most multiply-adds."""
    lines = [line.strip() for line in assembly.splitlines()]
    starts = {line[:-1]: i for i, line in enumerate(lines) if re.fullmatch(r"\.LBB\w+:", line)}
    loops = []
    for end, line in enumerate(lines):
        jump = re.match(r"(?:j\w+|b\.?\w*|cbn?z|tbn?z)\s.*?(\.LBB\w+)$", line)
        if jump and starts.get(jump[1], end) < end:
            loops.append(lines[starts[jump[1]] : end])
    flat = [body for body in loops if not any(re.fullmatch(r"\.LBB\w+:", line) for line in body[1:])]
    return max(flat, key=lambda body: sum(bool(re.search(multiply_add, line)) for line in body))


@pytest.mark.parametrize("mcpu", CPUS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_inner_loop_is_multiply_adds_on_registers(name, mcpu):
    target, multiply_add, spill = CPUS[mcpu]
    rule = ts.schedule_rules()[name]
    schedule = rule.scheduled(WORKLOADS[name].func, target)
    knobs = rule.space(WORKLOADS[name].func, target).default
    assembly = generate_code(schedule.mod, target).mod.inspect_source("asm")
    loop = inner_loop(assembly, multiply_add)
    count = sum(bool(re.search(multiply_add, line)) for line in loop)
    tile = knobs["mr"] * knobs["nr"] // knobs["lanes"]
    assert tile >= 8
    # LLVM may unroll the sum further.
    assert count >= tile
    assert count % tile == 0
    assert [line for line in loop if re.search(spill, line)] == []


@pytest.mark.parametrize(("mcpu", "lanes"), [("x86-64-v4", 16), ("haswell", 4)])
def test_a_few_rows_read_a_weight_as_it_lies_in_whole_vectors_where_there_are_masks(mcpu, lanes):
    workload = ts.workload("matmul", m=4, n=1388, k=248)
    default = MATMUL.space(workload.func, cpu(mcpu)).default
    assert (default["lanes"], default["pack"]) == (lanes, 0)


@pytest.mark.parametrize(
    ("mcpu", "lanes", "registers"), [("x86-64-v4", 16, 32), ("haswell", 8, 16), ("neoverse-n1", 4, 32)]
)
def test_the_default_tile_follows_the_vectors_and_registers(mcpu, lanes, registers):
    target = CPUS[mcpu][0]
    assert facts(target).vector_registers == registers
    for name, workload in WORKLOADS.items():
        knobs = ts.schedule_rules()[name].space(workload.func, target).default
        vectors = knobs["nr"] // knobs["lanes"]
        assert knobs["lanes"] == lanes
        assert registers / 2 < (knobs["mr"] + 1) * vectors + 1 <= registers


@pytest.mark.parametrize(("mcpu", "rows", "mr"), [("x86-64-v4", 61, 8), ("haswell", 65, 6)])
def test_rows_that_are_left_are_cut_off_and_both_tiles_stay_in_registers(mcpu, rows, mr):
    target, rule = CPUS[mcpu][0], ts.schedule_rules()["matmul"]
    func = ts.workload("matmul", m=rows, n=256, k=256).func
    default = rule.space(func, target).default
    assert default["pad"] == 0
    shared_columns = {"mr": mr, "block_rows": -(-rows // mr), "split_columns": 1, "pack": 1}
    schedule = rule.scheduled(func, target, shared_columns)
    # No copy of the data, and no condition when all is done.
    assert "A_pad" not in schedule.mod.script() and "T.where" not in finished(schedule.mod).script()
    loops = summing_loops(generate_code(schedule.mod, target).mod.inspect_source("asm"))
    vectors = default["nr"] // default["lanes"]
    assert {loop.accumulators for loop in loops} == {mr * vectors, rows % mr * vectors}
    assert [loop.spills for loop in loops] == [0] * len(loops)


@pytest.mark.parametrize("mcpu", ["x86-64-v4", "haswell"])
def test_rows_that_are_left_by_threads_are_asked_for_in_the_last_tile_only(mcpu):
    target, rule = CPUS[mcpu][0], ts.schedule_rules()["matmul"]
    func = ts.workload("matmul", m=127, n=128, k=137).func
    default = rule.space(func, target).default
    assert (default["split_columns"], 127 % default["mr"] > 0) == (0, True)
    schedule = rule.scheduled(func, target)
    assert "A_pad" not in schedule.mod.script()  # no copy of the data
    sums = re.findall(r"(matmul_pad\[.*\]) = \1 \+ (.*)", finished(schedule.mod).script())
    assert ["if_then_else" in product for _, product in sums] == [False, True]
    tile = default["mr"] * default["nr"] // default["lanes"]
    loops = summing_loops(generate_code(schedule.mod, target).mod.inspect_source("asm"))
    assert 0 in [loop.spills for loop in loops if loop.accumulators == tile]


@pytest.mark.parametrize(
    ("shape", "mcpu", "alone"),
    [
        ((300, 301, 302), "x86-64-v4", True),
        ((300, 301, 302), "haswell", True),
        ((300, 301, 302), "znver4", False),  # units take halves of registers: not measured
        ((300, 301, 450), "x86-64-v4", False),  # a weight, 542 KB, that L2 does not hold
        ((900, 31, 302), "x86-64-v4", False),  # two blocks of rows for each thread
        ((4, 301, 302), "x86-64-v4", False),  # one tile
    ],
)
def test_threads_that_share_the_rows_pack_a_weight_for_themselves(shape, mcpu, alone, target, assert_right):
    workload, rule = ts.workload("matmul", **dict(zip("mnk", shape, strict=True))), MATMUL
    default = rule.space(workload.func, CPUS[mcpu][0] if mcpu in CPUS else cpu(mcpu)).default
    assert (default["split_columns"] == 0 and default["pack"] < 2) == alone
    own = {"mr": min(5, shape[0]), "split_columns": 0, "pack": 1}
    schedule = rule.scheduled(workload.func, target, own)
    # One loop on all threads: none waits for what others pack.
    assert len(re.findall(r"T\.parallel", schedule.mod.script())) == 1
    assert_right(workload, schedule)


@pytest.mark.parametrize(
    ("shape", "transpose", "alone"),
    [
        ((300, 301, 302), "NN", True),
        ((100, 301, 450), "NN", False),  # a weight of 542 KB, and L2 has 512 KiB
        ((434, 31, 302), "NN", True),  # data of 524 KB, of which half of L2 holds a thread's
        ((435, 31, 302), "NN", False),
        ((216, 31, 302), "TN", True),  # more data that lie along the rows are copied
        ((218, 31, 302), "TN", False),
        ((300, 301, 302), "NT", False),  # a weight that is turned
    ],
)
def test_l2_holds_what_threads_need_that_pack_for_themselves(shape, transpose, alone):
    workload = ts.workload("matmul", **dict(zip("mnk", shape, strict=True)), transpose=transpose)
    choice = tile_choice(find_contraction(workload.func), cpu("x86-64-v4"))
    assert choice.packs_alone == alone


@pytest.mark.parametrize(("cores", "by_rows"), [(2, True), (5, True), (9, False)])
def test_threads_share_tiles_of_rows_that_are_even_enough(cores, by_rows):
    nest = find_contraction(ts.workload("matmul", m=96, n=432, k=300).func)
    choice = tile_choice(nest, cpu("x86-64-v4", cores=cores))
    blocks = default_blocks(choice, 8, 48)  # of 12 tiles of rows, 9 panels
    assert (blocks["split_columns"] == 0) == by_rows


@pytest.mark.parametrize(
    ("mcpu", "shape", "unpacked"),
    [
        ("x86-64-v4", (4096, 256, 220), True),  # L2 holds it
        ("x86-64-v4", (4096, 256, 256), False),  # half of L2 is too much of it
        ("x86-64-v4", (256, 272, 512), True),
        ("x86-64-v4", (264, 272, 512), False),  # a thread has 17 tiles of rows
        ("x86-64-v4", (128, 96, 2048), True),
        ("x86-64-v4", (136, 96, 2048), False),  # sums of two times as many pages
        ("x86-64-v4", (96, 96, 2049), False),
        ("x86-64-v4", (80, 100, 256), True),
        ("x86-64-v4", (88, 100, 256), False),  # rows that begin within lines of a cache
        # Of rows of 4096 bytes L2 of 512 KiB keeps 128, of 4224 all.
        ("x86-64-v4", (64, 1024, 127), True),
        ("x86-64-v4", (64, 1024, 128), False),
        ("x86-64-v4", (64, 1056, 256), True),
        ("x86-64-v4", (14, 1024, 256), True),  # one tile reads it once
        # Tiles of 4 rows by 4 lines, which L1 would hold 64 of: where they lie 4096 bytes apart it keeps 8.
        ("x86-64-v4", (64, 1024, 60), False),
        ("x86-64-v4", (32, 1024, 60), True),  # hardly used
        ("x86-64-v4", (64, 1088, 60), True),
        ("znver4", (64, 1024, 60), True),  # which takes twice as long to multiply them
        ("haswell", (48, 256, 256), True),
        ("haswell", (102, 256, 256), False),  # a tile of 16 columns is one line wide
        ("haswell", (48, 250, 256), False),  # columns that fill no vectors, and no masks
    ],
)
def test_a_weight_that_few_tiles_read_is_not_packed(mcpu, shape, unpacked):
    machine, rule = cpu(mcpu), ts.schedule_rules()["matmul"]
    workload = ts.workload("matmul", **dict(zip("mnk", shape, strict=True)))
    knobs = rule.space(workload.func, machine).default
    assert (knobs["pack"] == 0) == unpacked
    turned = ts.workload("matmul", **dict(zip("mnk", shape, strict=True)), transpose="NT")
    assert rule.space(turned.func, machine).default["pack"] > 0
    constant = workload.func.with_attr("layout_free_buffers", [1])
    assert rule.space(constant, machine).default["pack"] == 2


@pytest.mark.parametrize(
    ("pixels", "channels", "window", "pack"),
    [(5, (393, 73), 1, 0), (5, (64, 51), 3, 0), (7, (17, 405), 3, 1), (8, (139, 51), 3, 1)],
)
def test_fewer_tiles_of_a_window_read_rows_that_begin_within_lines(pixels, channels, window, pack):
    data, out = channels
    workload = ts.workload(
        "conv2d", n=1, h=pixels, w=pixels, ci=data, co=out, kh=window, kw=window, padding=window // 2
    )
    assert CONV2D.space(workload.func, cpu("x86-64-v4")).default["pack"] == pack


@pytest.mark.parametrize(
    ("shape", "mr", "pack"),
    [
        ((128, 1024, 512), 11, 0),
        ((32, 992, 512), 11, 0),
        ((176, 1024, 512), 11, 0),
        ((180, 1024, 512), 8, 1),  # 17 tiles of rows
        ((128, 1024, 96), 8, 0),  # a weight that L2 holds
        ((128, 2048, 8192), 8, 1),  # and one that L3 does not
    ],
)
def test_taller_tiles_read_a_weight_from_l3_where_units_take_halves_of_registers(shape, mr, pack):
    workload = ts.workload("matmul", **dict(zip("mnk", shape, strict=True)))
    rule = ts.schedule_rules()["matmul"]
    knobs = rule.space(workload.func, cpu("znver4")).default
    assert (knobs["mr"], knobs["pack"]) == (mr, pack)
    assert rule.space(workload.func, cpu("znver5")).default["mr"] <= 8


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((130, 130, 130), (5, 48)),
        ((400, 40, 64), (8, 48)),
        ((197, 40, 64), (9, 48)),
    ],
)
def test_a_wider_tile_where_it_computes_fewer_columns(shape, tile):
    assert default_tile(shape, "x86-64-v4") == tile


@pytest.mark.parametrize(
    ("shape", "tile", "turned"),
    [
        ((256, 256, 256), (5, 64), (6, 64)),
        ((1000, 1000, 1000), (6, 64), (6, 64)),  # 21 panels of 48 leave a thread waiting
        ((192, 192, 768), (8, 48), (8, 48)),
        ((192, 320, 768), (5, 80), (8, 32)),  # four panels, as ten of two vectors are even
        ((100, 100, 100), (5, 64), (8, 32)),  # two panels of 64 would be uneven shares of 7 vectors
    ],
)
def test_a_wider_tile_where_units_take_whole_registers_and_wait_for_loads(shape, tile, turned):
    assert default_tile(shape, "x86-64-v4") == tile
    assert default_tile(shape, "x86-64-v4", transpose="NT") == turned
    assert default_tile(shape, "znver4") == (8, 32)


def test_a_tile_leaves_no_rows_of_a_weight_that_is_packed_beforehand():
    assert default_tile((512, 512, 512), "x86-64-v4") == (6, 64)
    assert default_tile((512, 512, 512), "x86-64-v4", constant=True) == (8, 32)
    assert default_tile((768, 512, 512), "x86-64-v4", constant=True) == (6, 64)


def default_tile(shape, mcpu, constant=False, **more):
    func = ts.workload("matmul", **dict(zip("mnk", shape, strict=True)), **more).func
    if constant:
        func = func.with_attr("layout_free_buffers", [1])
    knobs = ts.schedule_rules()["matmul"].space(func, cpu(mcpu)).default
    return knobs["mr"], knobs["nr"]


@pytest.mark.parametrize(
    ("rows", "knobs", "copied"),
    [
        (37, {"pack": 1}, False),
        (37, {"pack": 1, "pad": 1}, True),
        # Blocks of rows that are one loop with those of columns are not cut, but asked for.
        (37, {"block_rows": 2, "split_columns": 0, "pack": 2}, False),
        (37, {"block_rows": 2, "split_columns": 0, "pack": 1}, False),
        (37, {"block_rows": 2, "split_columns": 0, "pack": 0, "pad": 1}, True),
        (37, {"block_rows": 2, "pack": 1}, False),
        (36, {}, False),
    ],
)
def test_rows_are_padded_where_they_are_not_cut_off(rows, knobs, copied, target, assert_right):
    workload, rule = ts.workload("matmul", m=rows, n=70, k=33), ts.schedule_rules()["matmul"]
    schedule = rule.scheduled(workload.func, target, {"mr": 4, **knobs})
    assert ("A_pad" in schedule.mod.script()) == copied
    assert_right(workload, schedule)


@pytest.mark.parametrize("m, mr", [(50, 5), (49, 5), (64, 8), (197, 5), (13, 13)])
def test_rows_are_tiled_with_little_padding(m, mr):
    space = ts.schedule_rules()["matmul"].space(ts.workload("matmul", m=m, n=64, k=96).func, cpu("x86-64-v4"))
    assert space.default["mr"] == mr


@pytest.mark.parametrize(
    "columns, vectors", [(24, 2), (40, 3), (64, 2), (72, 5), (96, 2), (100, 7), (120, 2)]
)
def test_panels_are_as_wide_as_pads_few_columns(columns, vectors):
    workload = ts.workload("conv2d", n=1, h=28, w=28, ci=96, co=columns, kh=1, kw=1)
    default = ts.schedule_rules()["conv2d"].space(workload.func, cpu("x86-64-v4")).default
    assert default["nr"] == vectors * default["lanes"]


@pytest.mark.parametrize(
    ("cpu_name", "columns", "stored"),
    [
        ("haswell", 120, 8),
        ("haswell", 100, 4),
        ("haswell", 99, 8),
        ("haswell", 128, 8),
        ("x86-64-v4", 120, 16),
        ("x86-64-v4", 128, 16),
    ],
)
def test_vectors_that_end_beyond_the_columns_are_stored_by_masks_or_in_parts(cpu_name, columns, stored):
    func = ts.workload("conv2d", n=1, h=28, w=28, ci=64, co=columns, kh=1, kw=1, bias=1).func
    schedule = ts.schedule_rules()["conv2d"].scheduled(
        func, cpu(cpu_name), {"nr": 16 * (1 + (cpu_name != "haswell")), "mr": 4, "block_rows": 1}
    )
    (*_, last) = schedule.get_loops(schedule.get_sblock("bias_add"))
    assert int(schedule.get(last).extent) == stored


@pytest.mark.parametrize(
    ("columns", "lanes"),
    [(24, 8), (40, 8), (72, 8), (20, 8), (56, 16), (96, 16), (32, 16), (104, 16), (15, 16), (8, 8)],
)
def test_vectors_are_halves_where_units_take_these_and_fewer_columns_are_computed(columns, lanes):
    func = ts.workload("matmul", m=64, n=columns, k=96).func
    rule = ts.schedule_rules()["matmul"]
    assert rule.space(func, cpu("znver4")).default["lanes"] == lanes
    assert rule.space(func, cpu("x86-64-v4")).default["lanes"] == min(16, 1 << (columns - 1).bit_length())


@pytest.mark.parametrize(
    ("rows", "channels", "columns", "tile"),
    [
        (28, 8, 64, (4, 64)),
        (28, 9, 64, (7, 32)),  # sums of 81
        (30, 8, 64, (6, 64)),  # rows that are no fours
        (28, 8, 80, (4, 80)),  # five vectors: whole rows as it is
    ],
)
def test_short_sums_are_stored_in_long_stretches(rows, channels, columns, tile, assert_right, target):
    workload = ts.workload("conv2d", n=1, h=28, w=rows, ci=channels, co=columns, kh=3, kw=3, padding=1)
    rule = ts.schedule_rules()["conv2d"]
    default = rule.space(workload.func, cpu("x86-64-v4")).default
    assert (default["mr"], default["nr"]) == tile
    constant = workload.func.with_attr(CONSTANT_ARGUMENTS, [1])
    assert rule.space(constant, cpu("x86-64-v4")).default["nr"] == tile[1]
    narrow = rule.space(workload.func, cpu("haswell")).default
    assert narrow["mr"] * narrow["nr"] <= 14 * 8  # of 16 registers
    assert_right(workload, rule.scheduled(workload.func, target))


@pytest.mark.parametrize(
    ("image", "shared"),
    [
        ({"h": 28, "w": 28}, True),
        ({"h": 4, "w": 4}, False),  # data no larger than the weight
        ({"h": 7, "w": 29}, False),  # seven lines, whose tiles have conditions
        ({"h": 28, "w": 29}, True),
    ],
)
@pytest.mark.parametrize("constant", [False, True])
def test_threads_share_the_rows_where_data_exceed_the_weight(image, shared, constant):
    func = ts.workload("conv2d", n=1, **image, ci=96, co=128, kh=1, kw=1).func
    func = func.with_attr(CONSTANT_ARGUMENTS, [1]) if constant else func
    default = ts.schedule_rules()["conv2d"].space(func, cpu("x86-64-v4")).default
    assert default["split_columns"] == (not shared)
    if shared and image["w"] % default["mr"]:
        assert default["block_rows"] <= -(-image["w"] // default["mr"])


def test_cores_and_dtype_change_the_default():
    rule = ts.schedule_rules()["matmul"]
    func = ts.workload("matmul", m=1024, n=1024, k=256).func
    wide = ts.workload("matmul", dtype="float64", m=1024, n=1024, k=256).func
    two = rule.space(func, cpu("x86-64-v4")).default
    assert rule.space(wide, cpu("x86-64-v4")).default["lanes"] == 8
    many = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": X86, "num-cores": 64})
    share = rule.space(func, many).default
    assert share["block_rows"] * share["block_columns"] < two["block_rows"] * two["block_columns"]


@pytest.mark.parametrize("width", [11, 12], ids=["lines_cut_short", "lines_of_whole_tiles"])
def test_blocks_of_any_lines_are_right(width, target, assert_right):
    workload = ts.workload(
        "conv2d", n=2, h=5, w=width, ci=3, co=21, kh=1, kw=1, layout="NCHW", bias=1, relu=1
    )
    rule = ts.schedule_rules()["conv2d"]
    default = rule.space(workload.func, target).default
    # Four tiles in a line, ten lines: parts of a line, whole lines, and counts that divide neither.
    for block_rows in (1, 2, 3, 4, 8, 12, 16, 20, 28, 40):
        knobs = {**default, "mr": 3, "block_rows": block_rows}
        schedule = rule.scheduled(workload.func, target, knobs)
        if block_rows in (3, 12, 28):
            assert_right(workload, schedule)


@pytest.mark.parametrize("transpose", ["TN", "TT"])
@pytest.mark.parametrize(("m", "k"), [(48, 64), (50, 33)])
def test_data_that_lie_along_the_rows_are_turned(transpose, m, k, target, assert_right):
    """In squares where there are whole ones, else element by element; rows that are left are cut off."""
    workload = ts.workload("matmul", m=m, n=40, k=k, transpose=transpose)
    schedule = MATMUL.scheduled(workload.func, target, {"stage": 1})
    assert_right(workload, schedule)
    copied = schedule.get(schedule.get_sblock("matmul_update")).reads[1].source
    assert [int(extent) for extent in copied.shape] == [m, k]


@pytest.mark.parametrize(("m", "together"), [(48, 2), (40, 1)])
def test_a_thread_turns_squares_of_a_line_together(m, together):
    """Sixteen elements are a line of a cache: two squares of AVX2, where all are whole ones."""
    workload = ts.workload("matmul", m=m, n=40, k=64, transpose="TN")
    schedule = MATMUL.scheduled(workload.func, cpu("haswell"), {"stage": 1})
    stretch, _, squares = schedule.get_loops(schedule.get_sblock("A_global_o"))
    assert int(schedule.get(squares).extent) == together
    assert int(schedule.get(stretch).extent) * together * 8 == m


@pytest.mark.parametrize("shape", [{"n": 40}, {"n": 1, "shared": "B"}])
def test_a_batch_of_data_is_turned_each_by_itself(shape, target, assert_right):
    workload = ts.workload("batch_matmul", b=3, m=24, k=16, transpose="TN", **shape)
    assert_right(workload, MATMUL.scheduled(workload.func, target, {"stage": 1}))


def test_large_data_that_lie_along_the_rows_are_turned_by_default(target):
    """Steps of their sums are far apart; small ones are in cache, and few panels read them seldom."""

    def default(dtype="float32", **shape):
        return MATMUL.space(ts.workload("matmul", dtype=dtype, **shape).func, target).default["stage"]

    assert default(m=1024, n=1024, k=1024, transpose="TN") == 1
    assert default("bfloat16", m=1024, n=1024, k=1024, transpose="TN") == 0
    assert default(m=1024, n=1024, k=1024, transpose="NN") == 0
    assert default(m=64, n=1024, k=64, transpose="TN") == 0
    assert default(m=1024, n=32, k=1024, transpose="TT") == 0


@pytest.mark.parametrize("shape", [{"m": 20, "n": 256, "k": 33}, {"m": 9, "n": 250, "k": 64}])
@pytest.mark.parametrize("pack", [{"pack": 1, "block_columns": 4}, {"pack": 2}])
@pytest.mark.parametrize("beside", [2, 4])
def test_panels_are_packed_side_by_side(shape, pack, beside, target, assert_right):
    """Of every row of the weight several panels' parts are read before the next row."""
    workload = ts.workload("matmul", **shape)
    lanes = MATMUL.space(workload.func, target).default["lanes"]
    knobs = {**pack, "nr": lanes, "beside": beside}
    schedule = MATMUL.scheduled(workload.func, target, knobs)
    panels = next(name for name in block_names(schedule) if name.startswith("B"))
    *_, panel, _ = schedule.get_loops(schedule.get_sblock(panels))
    if pack["pack"] == 1:
        assert int(schedule.get(panel).extent) == beside
    assert_right(workload, schedule)


def test_panels_of_a_batch_and_a_convolution_are_packed_side_by_side(target, assert_right):
    for workload in (
        ts.workload("batch_matmul", b=3, m=12, n=128, k=24),
        ts.workload("conv2d", n=1, h=9, w=9, ci=12, co=128, kh=3, kw=3),
    ):
        rule = rules_for(workload.func, target)[-2 if "conv" in workload.label else 0]
        knobs = {"nr": 16, "block_columns": 8, "split_columns": 1, "pack": 1, "beside": 4}
        assert_right(workload, rule.scheduled(workload.func, target, knobs))


@pytest.mark.parametrize(
    ("workload", "beside"),
    [
        (ts.workload("matmul", m=128, n=4096, k=2048), 4),
        (ts.workload("matmul", m=128, n=96, k=4096), 3),  # three panels for each thread
        (ts.workload("matmul", m=128, n=256, k=256), 1),  # it keeps to L2
        (ts.workload("matmul", m=128, n=4096, k=2048, transpose="NT"), 1),  # rows of panels are turned
    ],
    ids=lambda each: getattr(each, "label", None),
)
def test_panels_of_a_large_weight_are_packed_side_by_side_by_default(workload, beside):
    assert MATMUL.space(workload.func, cpu("haswell")).default["beside"] == beside
    constant = workload.func.with_attr(CONSTANT_ARGUMENTS, [1])
    assert MATMUL.space(constant, cpu("haswell")).default["beside"] == 1


@pytest.mark.parametrize("shape", [{"m": 1, "n": 2005, "k": 37}, {"m": 5, "n": 131, "k": 64}])
def test_a_weight_whose_columns_fill_no_vectors_is_read_masked(shape, target, assert_right):
    """A few rows use it once: what packs it moves it three times."""
    func = ts.workload("matmul", **shape).func
    assert MATMUL.space(func, cpu("haswell")).default["pack"] == 1
    schedule = MATMUL.scheduled(func, cpu("x86-64-v4"))
    assert "B_pad" not in block_names(schedule)
    assert_right(ts.workload("matmul", **shape), schedule)
    code = generate_code(schedule.mod, cpu("x86-64-v4")).mod.inspect_source("asm")
    assert re.search(r"vmovups\s.*%zmm\d+ {%k\d} {z}", code)


@pytest.mark.parametrize(
    ("shape", "shared"),
    [
        ({"m": 40, "n": 48, "k": 256}, 1),
        ({"m": 144, "n": 240, "k": 256}, 1),
        ({"m": 3000, "n": 48, "k": 256}, 0),  # packing is little beside the rows
    ],
)
def test_a_weight_for_few_rows_is_packed_by_who_reads_it(shape, shared):
    """Three panels are no even shares; packed first they took up to three times as long."""
    func = ts.workload("matmul", transpose="NT", **shape).func
    default = MATMUL.space(func, cpu("x86-64-v4")).default
    assert (default["split_columns"], default["pack"]) == ((1, 1) if shared else (0, 2))
    constant = func.with_attr(CONSTANT_ARGUMENTS, [1])
    assert MATMUL.space(constant, cpu("x86-64-v4")).default["pack"] == 2


@pytest.mark.parametrize(
    ("length", "ci", "co", "kernel"), [(61, 16, 80, 5), (47, 20, 57, 3), (103, 8, 32, 1)]
)
@pytest.mark.parametrize(
    "tile", [{}, {"mr": 5, "nr": 32, "block_rows": 2}, {"mr": 7, "nr": 16, "block_rows": 1}]
)
def test_tiles_before_one_that_ends_a_line_have_no_conditions(
    length, ci, co, kernel, tile, target, assert_right
):
    """With one for each row, 2302 outputs of a window of 5, 64 to 80 channels, took twice as long."""
    workload = ts.workload("conv1d", n=2, l=length, ci=ci, co=co, kernel=kernel, padding=1)
    knobs = {**tile, **({"block_columns": 1} if tile else {})}
    assert_right(workload, CONV2D.scheduled(workload.func, target, knobs))
    avx512, whole_line = cpu("x86-64-v4"), -(-(length + 3 - kernel) // 6)
    blocks = {"block_rows": whole_line, "block_columns": 1, "split_columns": 0, "pack": 2}
    schedule = CONV2D.scheduled(workload.func, avx512, {"mr": 6, "nr": 16, **blocks})
    lines = finished(schedule.mod, avx512).script().splitlines()
    (first, *_) = [i for i, line in enumerate(lines) if "pad[" in line and "conv1d" in line]
    assert not [line for line in lines[first - 3 : first + 1] if " if " in line or "if_then_else" in line]


@pytest.mark.parametrize("fetch", [0, 1])
@pytest.mark.parametrize(("m", "n"), [(64, 2704), (100, 2008), (64, 208)])
def test_panels_before_one_that_is_cut_short_have_no_conditions(m, n, fetch, target, assert_right):
    """With one for each vector, 64 rows by 128 x 2704 took 2.4 times as long."""
    workload, avx512 = ts.workload("matmul", m=m, n=n, k=128), cpu("x86-64-v4")
    blocks = {"block_rows": m // 4, "block_columns": 3, "split_columns": 1, "pack": 0, "fetch": fetch}
    schedule = MATMUL.scheduled(workload.func, avx512, {"nr": 80, "mr": 4, **blocks})
    lines = finished(schedule.mod, avx512).script().splitlines()
    first = next(line for line in lines if "A_1[" in line and "prefetch" not in line)
    assert "if_then_else" not in first and "masked" not in first
    if facts(target).has_masks:
        assert_right(workload, schedule)


@pytest.mark.parametrize(
    ("columns", "sums", "most"),
    [
        (1280, 1024, 7),  # 40 panels: 5 blocks of 7 and what is left would be as even
        (1184, 1024, 8),  # 37 panels: nothing divides them
        (11008, 4096, 10),
        (1300, 1024, 8),  # 41, the last of which is filled up
    ],
)
def test_blocks_of_a_turned_weight_are_whole(columns, sums, most):
    """All blocks of panels are turned in squares."""
    workload = ts.workload("linear", m=128, n=columns, k=sums)
    knobs = MATMUL.space(workload.func, cpu("x86-64-v4")).default
    assert -(-columns // knobs["nr"]) % knobs["block_columns"] == 0 and knobs["block_columns"] <= most
    schedule = MATMUL.scheduled(workload.func, cpu("x86-64-v4"), knobs)
    assert "Shuffle" in finished(schedule.mod).script()


@pytest.mark.parametrize(
    ("op", "shape", "rows"),
    [
        # Even tiles of eight add one pixel to 1599; 13 rows divide it, and a page apart evict each other.
        ("conv1d", {"l": 3199, "ci": 512, "co": 512, "kernel": 3, "stride": 2}, 8),
        ("conv2d", {"h": 27, "w": 27, "ci": 256, "co": 256, "kh": 1, "kw": 1}, 9),
        ("conv2d", {"h": 28, "w": 28, "ci": 256, "co": 256, "kh": 1, "kw": 1}, 7),
    ],
)
def test_rows_divide_a_line_unless_even_tiles_add_next_to_nothing(op, shape, rows):
    workload = ts.workload(op, n=1, **shape)
    assert ts.schedule_rules()["conv2d"].space(workload.func, cpu("x86-64-v4")).default["mr"] == rows


@pytest.mark.parametrize("lines", [14, 40])
def test_padded_copies_of_channels_that_end_within_a_vector_are_vectors(lines):
    """A vector of all 72 that is there or is padding is set element by element."""
    func = ts.workload("conv2d", n=1, h=lines, w=9, ci=72, co=32, kh=3, kw=3, stride=2, padding=1).func
    done = finished(CONV2D.scheduled(func, CPUS["x86-64-v4"][0]).mod, CPUS["x86-64-v4"][0])
    loops: list[tirx.For] = []
    structural_walk(done["main"].body, (tirx.For, loops.append))
    widths = [int(loop.extent) for loop in loops if loop.kind == tirx.ForKind.VECTORIZED]
    assert widths and max(widths) <= 16
