"""Panels that are fetched ahead: which lines, that sums stay in registers, and that results are right."""

import re
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
import tunesmith as ts
import tvm_ffi
from tunesmith.kernels.operator import CONSTANT_ARGUMENTS
from tunesmith.machine.errors import InputError
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules.assembly import summing_loops
from tunesmith.schedules.code_generation import finished, generate_code
from tunesmith.schedules.cpu import tile_choice
from tunesmith.schedules.expressions import index_variables
from tunesmith.schedules.passes.panel_prefetch import PANELS_MARK, steps_between
from tunesmith.schedules.restatement import replaced
from tunesmith.tuning.records.compilation import replay_trace, trace_text
from tvm import tirx
from tvm.sym import Analyzer
from tvm_ffi import structural_walk

FETCH = {"fetch": 1, "pack": 2, "split_columns": 1, "block_columns": 2, "beside": 1}


def cpu(mcpu, triple="x86_64-linux"):
    return as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": triple, "num-cores": 2})


def scheduled(workload, target, **knobs):
    rule = ts.schedule_rules()["conv2d" if workload.name == "conv2d" else "matmul"]
    if "vectors" in knobs:
        knobs["nr"] = knobs.pop("vectors") * facts(target).lanes("float32")
    return rule.scheduled(workload.func, target, {**FETCH, **knobs})


@pytest.mark.parametrize(
    ("name", "shape", "knobs"),
    [
        ("matmul", {"m": 64, "n": 128, "k": 48}, {"mr": 4, "vectors": 2, "block_rows": 4}),
        ("matmul", {"m": 30, "n": 90, "k": 50}, {"mr": 4, "vectors": 2, "block_rows": 4}),  # ends cut
        ("matmul", {"m": 64, "n": 192, "k": 48}, {"mr": 4, "vectors": 3, "block_rows": 16, "pack": 0}),
        (
            "linear",
            {"m": 33, "n": 64, "k": 40, "activation": "gelu"},
            {"mr": 6, "vectors": 2, "block_rows": 6},
        ),
        ("batch_matmul", {"b": 3, "m": 24, "n": 64, "k": 32}, {"mr": 6, "vectors": 2, "block_rows": 4}),
        ("conv2d", {"n": 1, "h": 9, "w": 9, "ci": 16, "co": 64, "kh": 3, "kw": 3, "padding": 1}, {"skip": 1}),
        ("conv2d", {"n": 2, "h": 8, "w": 8, "ci": 24, "co": 40, "kh": 1, "kw": 1, "stride": 2}, {"nr": 16}),
    ],
)
def test_results_are_right(name, shape, knobs, target, assert_right):
    workload = ts.workload(name, **shape)
    assert_right(workload, scheduled(workload, target, **knobs))


def test_tiles_that_meet_a_panel_fetch_each_line_of_the_next_once():
    target = cpu("x86-64-v4")
    workload = ts.workload("matmul", m=64, n=128, k=48)
    knobs = {"mr": 8, "nr": 32, "block_rows": 8}
    fetched, loops = [], {}

    def note(statement):
        if getattr(getattr(statement.value, "op", None), "name", "") == "tirx.prefetch":
            fetched.append(statement.value.args[0].args[0])

    body = finished(scheduled(workload, target, **knobs).mod, target)["main"].body
    walked = [(tirx.Evaluate, note), (tirx.For, lambda loop: loops.update({loop.loop_var: int(loop.extent)}))]
    structural_walk(body, walked)
    assert [str(element.source.name) for element in fetched] == ["B_global"] * 2  # a step's two lines
    panels = (5, 48, 32)  # one of them beyond the last
    simplify, lines = Analyzer().simplify, []
    for element in fetched:
        variables = sorted(index_variables(element.indices), key=lambda var: -loops[var])
        for values in product(*(range(loops[var]) for var in variables)):
            at = {v: tirx.IntImm("int64", i) for v, i in zip(variables, values, strict=True)}
            (place,) = (int(simplify(replaced(index, at))) for index in element.indices)
            lines.append(tuple(int(i) for i in np.unravel_index(place, panels)))
    # Of four panels each thread computes two: it asks for its second, and for the one after that.
    assert sorted(lines) == [(panel, k, c) for panel in (1, 2, 3, 4) for k in range(48) for c in (0, 16)]


@pytest.mark.parametrize(
    ("tiles", "steps", "between"),
    [
        (8, 768, 8),
        (7, 768, 4),
        (32, 768, 16),
        (1, 768, 1),
        (8, 767, 0),
        (16, 500, 4),
        (16, 502, 0),
        (3, 6, 2),
    ],
)
def test_steps_between_fetches_divide_the_sum_and_share_it_among_tiles(tiles, steps, between):
    assert steps_between(tiles, steps) == between


@pytest.mark.parametrize(
    ("target", "instruction", "store", "tile"),
    [
        (cpu("x86-64-v4"), "prefetcht1", r"vmov\w+\s+%zmm\d+, .*\(", (8, 48)),
        (cpu("x86-64-v4"), "prefetcht1", r"vmov\w+\s+%zmm\d+, .*\(", (7, 32)),
        (cpu("haswell"), "prefetcht1", r"vmov\w+\s+%ymm\d+, .*\(", (6, 16)),
        (cpu("neoverse-n1", "aarch64-linux"), "prfm", r"st[rp]\s+q", (8, 8)),
    ],
    ids=["avx512", "on the stack already", "avx2", "neon"],
)
def test_the_sums_stay_in_registers_between_fetches(target, instruction, store, tile):
    workload = ts.workload("matmul", m=8 * tile[0], n=4 * tile[1], k=256)
    knobs = {"mr": tile[0], "nr": tile[1], "block_rows": 8}
    stores = []
    for fetch in (0, 1):
        schedule = scheduled(workload, target, **knobs, fetch=fetch)
        assembly = generate_code(schedule.mod, target).mod.inspect_source("asm")
        assert (instruction in assembly) == bool(fetch)
        loops = summing_loops(assembly)
        lanes = schedule_lanes(workload, target)
        assert {loop.accumulators for loop in loops} == {tile[0] * tile[1] // lanes}
        assert [(loop.stores, loop.spills) for loop in loops] == [(0, 0)] * len(loops)
        stores.append(len(re.findall(store, assembly)))
    # What is stored is the tile's end, and no sums where lines are fetched.
    assert stores[1] <= stores[0]


def schedule_lanes(workload, target):
    return ts.schedule_rules()["matmul"].space(workload.func, target).default["lanes"]


def test_sums_of_whole_and_of_cut_tiles_are_on_the_stack():
    """64 rows are five tiles of 11 and one of 9, each of them with sums of its own, which bear one name."""
    target = cpu("x86-64-v4")
    workload = ts.workload("matmul", m=64, n=128, k=48)
    schedule = scheduled(workload, target, mr=11, nr=32, block_rows=6, pack=0)
    sizes = []

    def note(allocation):
        sizes.append(prod(int(extent) for extent in allocation.buffer.shape) * 4)

    structural_walk(finished(schedule.mod, target)["main"].body, (tirx.AllocBuffer, note))
    # What is as large as a KiB comes from the heap, by a call for each tile.
    assert len(sizes) == 2 * 11 and max(sizes) < 1024


@pytest.mark.parametrize(
    ("shape", "constant", "fetch"),
    [
        ((128, 3072, 768), True, 1),
        ((128, 3072, 768), False, 0),  # packed by block: what a thread has just written is near
        ((128, 128, 512), True, 1),  # L2 would hold it, but other layers evict it
        ((512, 768, 256), True, 1),
        ((700, 768, 256), True, 0),  # many rows in a block: the wait for a panel does not show
        ((700, 768, 1024), True, 1),  # L2 evicts panels itself
        ((8, 3072, 768), True, 0),  # one tile reads each panel once
        ((128, 3072, 767), True, 0),  # steps that nothing divides
    ],
)
def test_panels_that_come_from_afar_are_fetched_ahead_where_l3_is_far(shape, constant, fetch, monkeypatch):
    far = replace(facts(cpu("x86-64-v4")), l2_bytes=2 << 20, l3_bytes=480 << 20)
    monkeypatch.setattr(tile_choice, "facts", lambda target: far)
    func = ts.workload("matmul", **dict(zip("mnk", shape, strict=True))).func
    if constant:
        func = func.with_attr(CONSTANT_ARGUMENTS, [1])
    default = ts.schedule_rules()["matmul"].space(func, cpu("x86-64-v4")).default
    assert default["fetch"] == fetch
    monkeypatch.undo()
    assert ts.schedule_rules()["matmul"].space(func, cpu("x86-64-v4")).default["fetch"] == 0


def test_a_trace_keeps_what_is_fetched(target):
    workload = ts.workload("matmul", m=64, n=96, k=64)
    schedule = scheduled(workload, target, mr=4, vectors=2, block_rows=4)
    assert PANELS_MARK in trace_text(schedule)
    assert tvm_ffi.structural_equal(replay_trace(trace_text(schedule), workload.func).mod, schedule.mod)


@pytest.mark.parametrize("knobs", [{"pack": 1}, {"block_rows": 1}, {"block_columns": 1}])
def test_where_nothing_can_be_fetched_the_knob_says_so(knobs, target):
    workload = ts.workload("matmul", m=64, n=96, k=64)
    with pytest.raises(InputError, match="fetch=1 where a block has several panels") as error:
        scheduled(workload, target, mr=4, vectors=2, **{"block_rows": 4, **knobs})
    assert "\n" not in str(error.value)
