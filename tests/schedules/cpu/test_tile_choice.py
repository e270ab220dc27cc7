"""What tiles and their blocks follow from: the caches of a machine that this one need not be."""

from dataclasses import replace
from math import ceil

import pytest
import tunesmith as ts
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules.cpu.block_choice import default_blocks
from tunesmith.schedules.cpu.conv2d import default_tile
from tunesmith.schedules.cpu.tile_choice import TileChoice
from tunesmith.schedules.cpu.weight_panels import PACK_FIRST, PACK_IN_BLOCK, PACK_NOTHING
from tunesmith.schedules.nests.contraction import find_contraction

AVX512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
MIB = 1 << 20
OF_FEW_CORES = replace(facts(AVX512), l2_bytes=MIB, l3_bytes=32 * MIB)
OF_MANY_CORES = replace(facts(AVX512), l2_bytes=2 * MIB, l3_bytes=480 * MIB)


def choice(machine, products=1, dtype="float32", **shape):
    return TileChoice(find_contraction(ts.workload("matmul", dtype=dtype, **shape).func), machine, products)


@pytest.mark.parametrize(
    ("k", "panels"), [(256, 8), (512, 4), (1024, 2), (2048, 1), (4096, 1)], ids=lambda value: str(value)
)
def test_panels_of_a_block_keep_to_a_part_of_l2_where_l3_is_far(k, panels):
    """A panel of 64 columns has 256 bytes for each step of the sum; half a MiB is a quarter of L2."""
    blocks = default_blocks(choice(OF_MANY_CORES, m=512, n=4096, k=k), 6, 64)
    assert blocks["block_columns"] == panels


def test_blocks_have_more_panels_where_l3_is_near():
    """A sixteenth of a share of 16 MiB, or four where these are less than half of it."""
    assert default_blocks(choice(OF_FEW_CORES, m=512, n=4096, k=256), 6, 64)["block_columns"] == 16
    assert default_blocks(choice(OF_FEW_CORES, m=512, n=4096, k=2048), 6, 64)["block_columns"] == 4


@pytest.mark.parametrize(
    ("machine", "n", "fetches"), [(OF_MANY_CORES, 4096, 1), (OF_MANY_CORES, 512, 0), (OF_FEW_CORES, 4096, 0)]
)
def test_panels_are_fetched_where_l3_is_far_and_l2_does_not_hold_them(machine, n, fetches):
    made = choice(machine, m=512, n=n, k=512)
    tile = {"mr": 8, "nr": 32, "block_rows": 64, "block_columns": 4, "split_columns": 0, "pack": 2}
    assert made.weight.is_worth_fetching(tile) == fetches


@pytest.mark.parametrize(
    ("n", "k", "rows", "by_columns"),
    [
        (104, 256, 784, 0),  # four panels, the last of one vector
        (128, 256, 784, 1),
        (1000, 128, 784, 1),  # 63 vectors are nearly 64
        (104, 256, 24, 1),  # too few rows to share
        (112, 4096, 784, 1),  # a large weight is read by one thread or the other
    ],
)
def test_threads_share_rows_where_a_narrow_panel_would_keep_one_waiting(n, k, rows, by_columns):
    made = choice(OF_FEW_CORES, m=rows, n=n, k=k, transpose="NT")
    assert default_blocks(made, 8, 32)["split_columns"] == by_columns


@pytest.mark.parametrize(("m", "by_columns"), [(384, 0), (512, 1)])
def test_threads_share_rows_of_a_weight_in_l2_where_each_has_one_block_of_them(m, by_columns):
    """Half of L2 holds 42 tiles of 6 rows: of 43, in two blocks, all would wait for panels packed first."""
    blocks = default_blocks(choice(OF_FEW_CORES, m=m, n=512, k=512), 6, 64)
    assert (blocks["split_columns"], blocks["pack"]) == (by_columns, PACK_IN_BLOCK)


def test_operands_of_several_products_fit_more_panels():
    assert default_blocks(choice(OF_MANY_CORES, 4, m=512, n=4096, k=1024), 32, 32)["block_columns"] == 16


@pytest.mark.parametrize(("n", "packed"), [(256, False), (448, False), (512, True), (640, True)])
def test_a_weight_of_half_of_l2_is_packed_however_wide_the_tile_is(n, packed):
    made = choice(OF_MANY_CORES, m=512, n=n, k=n)
    assert (default_blocks(made, 6, 64)["pack"] != 0) == packed


@pytest.mark.parametrize(("k", "narrow"), [(3072, False), (4096, True)], ids=lambda value: str(value))
def test_a_panel_that_l2_does_not_hold_is_dearer_than_a_narrow_one_that_it_does(k, narrow):
    """Of 64 columns 3072 lines are 3/4 of L2, 4096 all of it."""
    made = choice(OF_FEW_CORES, m=1024, n=1024, k=k)
    assert (made.cost(8, 2) < made.cost(6, 4)) == narrow


@pytest.mark.parametrize(
    ("m", "k", "pack"),
    [
        (100, 20000, PACK_IN_BLOCK),
        (400, 20000, PACK_FIRST),  # one thread would wait for a tenth of many rows
        (100, 6000, PACK_FIRST),  # L3 holds what is packed
    ],
)
def test_panels_of_a_weight_of_memory_are_not_written_first(m, k, pack):
    """Of nine panels one thread has five, and packs these for itself."""
    assert default_blocks(choice(OF_FEW_CORES, m=m, n=712, k=k), 5, 80)["pack"] == pack


@pytest.mark.parametrize(
    ("m", "products", "by_columns"),
    [(32, 4, 1), (32, 1, 0), (200, 4, 0)],  # of floats packing is less, of many rows waiting is more
)
def test_threads_share_panels_whose_groups_take_longer_to_pack_than_one_waits(m, products, by_columns):
    """Of 13 panels one thread has 7; by rows each would pack all."""
    made = choice(OF_FEW_CORES, products=products, m=m, n=416, k=640)
    assert default_blocks(made, 4, 32)["split_columns"] == by_columns


@pytest.mark.parametrize(("channels", "fed"), [(64, True), (3, False)])
def test_tiles_of_a_window_have_as_many_rows_as_l2_feeds(channels, fed):
    """Panels of 3 channels stay in L1: three rows by five vectors compute the least."""
    target = as_target({"kind": "llvm", "mcpu": "znver5", "mtriple": "x86_64-linux-gnu", "num-cores": 2})
    func = ts.workload("conv2d", n=4, h=26, w=26, ci=channels, co=72, kh=3, kw=3, padding=1).func
    default = ts.schedule_rules()["conv2d"].space(func, target).default
    assert (default["mr"] >= 4, default["nr"]) == (fed, 80)


@pytest.mark.parametrize(
    ("images", "outputs", "size", "nr", "pack"),
    [
        (1, 512, 4, 64, PACK_NOTHING),
        (4, 512, 4, 64, PACK_NOTHING),
        (1, 598, 4, 64, PACK_NOTHING),
        (4, 598, 4, 64, PACK_IN_BLOCK),  # rows of 598 begin within lines, and 16 tiles would read these
        (4, 598, 7, 32, PACK_IN_BLOCK),
        (1, 512, 7, 32, PACK_NOTHING),
    ],
)
def test_few_rows_read_more_lines_at_a_time_where_units_wait_for_l3(images, outputs, size, nr, pack):
    window = ts.workload("conv2d", n=images, h=size, w=size, ci=512, co=outputs, kh=3, kw=3, padding=1)
    halves = replace(OF_FEW_CORES, unit_bits=256)
    default = default_tile(TileChoice(find_contraction(window.func), halves))
    assert (default["nr"], default["pack"]) == (nr, pack)


@pytest.mark.parametrize(
    ("columns", "rows", "pack"),
    [
        (30, 3600, PACK_FIRST),
        (30, 80, PACK_NOTHING),  # few tiles
        (24, 3600, PACK_NOTHING),  # halves of vectors
        (50, 3600, PACK_NOTHING),  # a mask for one vector of many
    ],
)
def test_a_weight_of_few_vectors_that_a_mask_ends_is_packed(columns, rows, pack):
    nest = find_contraction(ts.workload("matmul", m=rows, n=columns, k=270).func)
    made = TileChoice(nest, replace(OF_FEW_CORES, unit_bits=256))
    assert default_blocks(made, 8, ceil(columns / made.lanes) * made.lanes)["pack"] == pack


@pytest.mark.parametrize(("m", "k", "rows"), [(25600, 384, 10), (2560, 384, 40), (25600, 96, 160)])
def test_blocks_have_fewer_rows_beside_a_weight_that_l2_is_to_keep(m, k, rows):
    """Of data from afar, and a panel of 32 columns that L1 does not hold."""
    halves = replace(OF_FEW_CORES, unit_bits=256)
    blocks = default_blocks(choice(halves, m=m, n=128, k=k), 8, 32)
    assert (blocks["pack"], blocks["split_columns"], blocks["block_rows"]) == (PACK_NOTHING, 0, rows)


def test_threads_share_blocks_of_whole_lines_evenly():
    """28 lines of 4 tiles, of which L2 holds 18: blocks of 4 lines would leave one thread with 4 of 7."""
    shape = {"n": 1, "h": 28, "w": 28, "ci": 512, "co": 128, "kh": 1, "kw": 1}
    machine = replace(OF_FEW_CORES, l2_bytes=MIB // 2, unit_bits=256)
    made = TileChoice(find_contraction(ts.workload("conv2d", **shape).func), machine)
    blocks = default_blocks(made, 7, 32)
    lines, of_block = blocks["block_rows"] / 4, ceil(28 * 4 / blocks["block_rows"])
    assert lines == int(lines) and of_block % 2 == 0


@pytest.mark.parametrize(("n", "panels"), [(1290, 7), (1280, 20), (277, 1)])
def test_blocks_that_are_filled_up_have_as_many_panels_as_threads_share_evenly(n, panels):
    """Of 41 panels each thread has 21 in any case; 40 are full, and of 9 one thread has 4."""
    made = choice(OF_FEW_CORES, 4, m=16, n=n, k=640)
    assert default_blocks(made, 8, 32, fills_blocks=True)["block_columns"] == panels


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype", "near", "far"),
    [
        (1024, 1024, 1024, "float32", True, True),
        (1024, 1024, 1000, "float32", False, True),  # 1.27 of the time element by element, on a Zen 4
        (1024, 1024, 1024, "float64", False, True),  # 1.12 there
        (700, 256, 1024, "float32", False, True),  # 0.84 on a Xeon
        (400, 128, 2000, "float32", False, False),  # 0.97 there
        (128, 768, 768, "float32", False, False),
    ],
)
def test_data_along_the_rows_are_turned_for_fewer_panels_where_l3_is_far(m, n, k, dtype, near, far):
    shape = {"m": m, "n": n, "k": k, "dtype": dtype, "transpose": "TN"}
    found = [choice(machine, **shape).is_worth_staging(64) for machine in (OF_FEW_CORES, OF_MANY_CORES)]
    assert found == [near, far]
