"""Who shares a contraction, and where its weight is packed, follow from costs where L3 is far away."""

from dataclasses import replace

import pytest
import tunesmith as ts
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules.cpu import tile_choice
from tunesmith.schedules.cpu.block_choice import default_blocks
from tunesmith.schedules.cpu.conv2d import CONV2D
from tunesmith.schedules.cpu.matmul import MATMUL
from tunesmith.schedules.cpu.sharing_cost import is_priced, sharing_cost
from tunesmith.schedules.cpu.tile_choice import TileChoice
from tunesmith.schedules.cpu.weight_panels import PACK_FIRST, PACK_IN_BLOCK, PACK_NOTHING
from tunesmith.schedules.nests.contraction import find_contraction

AVX512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux-gnu", "num-cores": 2})
FAR_L3 = replace(facts(AVX512), l2_bytes=2 << 20, l3_bytes=300 << 20)
NEAR_L3 = replace(FAR_L3, l3_bytes=32 << 20)


def product(machine=FAR_L3, **shape):
    return TileChoice(find_contraction(ts.workload("matmul", **shape).func), machine)


def convolution(machine=FAR_L3, **shape):
    return TileChoice(find_contraction(ts.workload("conv2d", **shape).func), machine)


def cost(choice, block_rows, by_columns, pack):
    blocks = {"block_rows": block_rows, "split_columns": int(by_columns), "pack": pack}
    return sharing_cost(choice, 8, 48, blocks)


def default_of(monkeypatch, machine=FAR_L3, rule=MATMUL, operator="matmul", **shape):
    monkeypatch.setattr(tile_choice, "facts", lambda _: machine)
    return rule.space(ts.workload(operator, **shape).func, AVX512).default


def test_costs_hold_for_products_on_threads_with_a_far_l3():
    assert is_priced(product(m=197, n=333, k=2048))
    assert not is_priced(product(NEAR_L3, m=197, n=333, k=2048))
    assert not is_priced(product(m=16, n=16, k=16))  # one thread
    assert not is_priced(product(replace(FAR_L3, unit_bits=256), m=197, n=333, k=2048))


@pytest.mark.parametrize(
    ("shape", "by_columns", "pack"),
    [
        ({"m": 512, "n": 384, "k": 2048}, 1, PACK_IN_BLOCK),  # L2 does not hold it: no thread packs all
        ({"m": 64, "n": 1684, "k": 416}, 1, PACK_IN_BLOCK),
        ({"m": 64, "n": 336, "k": 256}, 0, PACK_NOTHING),  # L2 holds rows of whole lines
        ({"m": 700, "n": 43, "k": 512}, 0, PACK_IN_BLOCK),  # one panel, whose rows begin within lines
    ],
)
def test_threads_pack_what_they_read(shape, by_columns, pack):
    blocks = default_blocks(product(**shape), 8, 48)
    assert (blocks["split_columns"], blocks["pack"]) == (by_columns, pack)


def test_what_another_core_has_packed_costs_most():
    choice = product(m=192, n=384, k=1024)
    first, own = (cost(choice, 12, False, pack) for pack in (PACK_FIRST, PACK_IN_BLOCK))
    columns = cost(choice, 24, True, PACK_IN_BLOCK)
    assert columns < own < first


@pytest.mark.parametrize(("k", "dearer"), [(500, False), (1000, True)])
def test_a_weight_that_each_thread_packs_comes_from_l3_if_it_is_more_than_half_of_l2(k, dearer):
    own = cost(product(m=192, n=384, k=k), 12, False, PACK_IN_BLOCK)
    assert (own > cost(product(m=192, n=384, k=100), 12, False, PACK_IN_BLOCK)) == dearer


def test_panels_packed_once_are_worth_it_for_many_blocks_of_rows():
    """Each block of rows would pack them again: 16 of them by each thread."""
    choice = product(m=2048, n=48, k=2048)
    first, own = (cost(choice, 8, False, pack) for pack in (PACK_FIRST, PACK_IN_BLOCK))
    assert first < own


def test_a_narrow_last_panel_counts_its_own_vectors():
    wide, narrow = (cost(product(m=192, n=n, k=256), 12, False, 1) for n in (96, 64))
    assert wide * 4 / 6 < narrow < wide * 0.8  # its tiles wait longer for loads


def test_rows_within_lines_cost_more_where_they_lie():
    inside, whole = (product(m=192, n=n, k=256) for n in (380, 384))
    costs = [cost(choice, 12, False, PACK_NOTHING) for choice in (inside, whole)]
    packed = [cost(choice, 12, False, PACK_IN_BLOCK) for choice in (inside, whole)]
    assert costs[0] > costs[1]
    assert packed[0] == packed[1]


def test_the_default_is_the_cheapest_tile(monkeypatch):
    shape = {"m": 197, "n": 333, "k": 2048}
    default, choice = default_of(monkeypatch, **shape), product(**shape)
    least = sharing_cost(choice, default["mr"], default["nr"], default)
    for rows, vectors in choice.tiles(range(2, 6), 5, 11):
        nr = vectors * choice.lanes
        assert least <= sharing_cost(choice, rows, nr, default_blocks(choice, rows, nr))


def test_data_that_are_turned_leave_no_rows(monkeypatch):
    default = default_of(monkeypatch, m=700, n=329, k=2160, transpose="TN")
    assert default["stage"] == 1
    assert 700 % default["mr"] == 0


def test_a_panel_beyond_l2_is_read_again_by_each_tile():
    """2 images of 12x12 pixels of 520 to 64 channels, 5x5, take 1.5 times as long by 4 vectors as by 2."""
    blocks = {"block_rows": 24, "split_columns": 0, "pack": PACK_IN_BLOCK}
    long, short = (product(m=288, n=64, k=k) for k in (10000, 5000))
    assert sharing_cost(long, 6, 32, blocks) < sharing_cost(long, 6, 64, blocks)
    assert sharing_cost(short, 6, 64, blocks) < sharing_cost(short, 6, 32, blocks)


def test_a_weight_beyond_l2_is_packed_rather_than_read_by_each_tile():
    """12x12 pixels of 640 to 160 channels, 3x3 by 2."""
    choice = convolution(n=1, h=24, w=24, ci=640, co=160, kh=3, kw=3, stride=2, padding=1)
    lies, packed = (cost(choice, 9, False, pack) for pack in (PACK_NOTHING, PACK_IN_BLOCK))
    assert packed < lies


def test_columns_that_meet_within_a_line_are_written_by_two_threads():
    """28x28 pixels of 20 to 181 channels take 2.4 times as long so as by rows."""
    inside, whole = (product(m=784, n=n, k=20) for n in (181, 192))
    columns = [cost(choice, 98, True, PACK_IN_BLOCK) for choice in (inside, whole)]
    rows = [cost(choice, 49, False, PACK_IN_BLOCK) for choice in (inside, whole)]
    assert columns[0] - rows[0] > 1000 + columns[1] - rows[1]


def test_padded_data_come_from_the_core_that_copied_them():
    """Threads that share the columns read all of the copy, which both have made."""
    copied = convolution(n=1, h=32, w=32, ci=64, co=192, kh=3, kw=3, padding=1)
    as_it_lies = replace(copied, nest=replace(copied.nest, staged_bytes=0))
    columns = [cost(choice, 8, True, PACK_IN_BLOCK) for choice in (copied, as_it_lies)]
    rows = [cost(choice, 8, False, PACK_IN_BLOCK) for choice in (copied, as_it_lies)]
    assert columns[0] > columns[1]
    assert rows[0] == rows[1]


def test_threads_share_the_rows_where_that_costs_the_same():
    """12544 pixels of 30 to 96 channels take 0.75 of the time of three vectors for each thread."""
    choice = product(m=12544, n=96, k=30)
    columns, rows = (cost(choice, 98, by_columns, PACK_NOTHING) for by_columns in (True, False))
    assert columns == rows
    assert default_blocks(choice, 8, 48)["split_columns"] == 0


def test_a_convolution_takes_the_cheapest_tile_that_divides_its_lines(monkeypatch):
    shape = {"n": 4, "h": 7, "w": 7, "ci": 256, "co": 333, "kh": 3, "kw": 3, "stride": 2, "padding": 1}
    default = default_of(monkeypatch, rule=CONV2D, operator="conv2d", **shape)
    assert default["pack"] == PACK_IN_BLOCK  # not for the other thread: that takes 1.4 times as long
    shape = {"n": 1, "h": 40, "w": 40, "ci": 64, "co": 320, "kh": 5, "kw": 5, "padding": 2}
    default = default_of(monkeypatch, rule=CONV2D, operator="conv2d", **shape)
    near = default_of(monkeypatch, NEAR_L3, CONV2D, "conv2d", **shape)
    assert 40 % default["mr"] == 0
    assert (near["mr"], near["nr"]) == (8, 32)  # it waits for more loads
    choice = convolution(**shape)
    assert sharing_cost(choice, default["mr"], default["nr"], default) < sharing_cost(choice, 8, 32, near)


def layer(operator="linear", machine=FAR_L3, **shape):
    """Return a choice for a constant weight, as a model's is."""
    func = ts.workload(operator, **shape).func.with_attr(CONSTANT_ARGUMENTS, [1])
    return TileChoice(find_contraction(func), machine)


@pytest.mark.parametrize(("m", "by_columns"), [(32, 1), (208, 0)])
def test_rows_hide_how_far_a_fetched_weight_is(m, by_columns):
    """By rows each thread reads all of it: 32 rows by 768 x 256 take 1.3 times as long so, 128 0.9."""
    choice = layer(m=m, n=768, k=256)
    assert is_priced(choice)
    assert default_blocks(choice, 8, 48)["split_columns"] == by_columns


def test_what_no_tile_has_fetched_costs_more_than_what_one_has():
    choice = layer(m=128, n=96, k=512)
    blocks = {"block_rows": 8, "split_columns": 0, "pack": PACK_FIRST}
    one, two = (sharing_cost(choice, 8, 48, {**blocks, "block_columns": panels}) for panels in (1, 2))
    assert one > 1.2 * two


def test_a_weight_that_the_call_packs_is_fetched_if_l2_does_not_hold_it():
    constant = layer(m=64, n=768, k=256)
    blocks = {"mr": 8, "nr": 48, "block_rows": 8, "block_columns": 2, "pack": PACK_FIRST}
    varying = replace(constant.nest, constant_weight=False)
    assert constant.weight.is_worth_fetching(blocks)
    assert not replace(constant, nest=varying).weight.is_worth_fetching(blocks)


def test_a_constant_weight_has_wide_tiles_where_loads_wait(monkeypatch):
    """16x16 pixels of 96 to 384 channels take 0.74 of the time by 8 x 3 that they take by 8 x 2."""
    shape = {"n": 1, "h": 16, "w": 16, "ci": 96, "co": 384, "kh": 1, "kw": 1}
    func = ts.workload("conv2d", **shape).func.with_attr(CONSTANT_ARGUMENTS, [1])
    found = {}
    for machine in (FAR_L3, NEAR_L3):
        monkeypatch.setattr(tile_choice, "facts", lambda _, machine=machine: machine)
        found[machine.l3_bytes] = CONV2D.space(func, AVX512).default
    far, near = found[FAR_L3.l3_bytes], found[NEAR_L3.l3_bytes]
    assert far["nr"] > near["nr"] == 32
    assert far["pack"] == near["pack"] == PACK_FIRST


@pytest.mark.parametrize(("k", "panels"), [(1024, 2), (2560, 2), (4096, 1)])
def test_two_panels_of_a_constant_weight_are_a_block_so_that_tiles_ask_for_the_next(monkeypatch, k, panels):
    """Two panels of 2560 rows fill five eighths of L2, of 4096 all of it."""
    monkeypatch.setattr(tile_choice, "facts", lambda _: FAR_L3)
    func = ts.workload("linear", m=64, n=3072, k=k).func
    choice = tile_choice.tile_choice(find_contraction(func.with_attr(CONSTANT_ARGUMENTS, [1])), AVX512)
    assert choice.nest.constant_weight
    assert default_blocks(choice, 5, 64)["block_columns"] == panels
    varying = replace(choice, nest=replace(choice.nest, constant_weight=False, weight_lies=False))
    assert default_blocks(varying, 5, 64)["block_columns"] == (2 if k == 1024 else 1)
