"""What the default schedules become on machines that are not here, read off their assembly."""

import pytest
import tunesmith as ts
from tunesmith.machine.facts import facts
from tunesmith.machine.target import as_target
from tunesmith.schedules import rules_for, schedule_rules
from tunesmith.schedules.assembly import inner_loop
from tunesmith.schedules.cpu.register_tile import register_tile
from tunesmith.schedules.cpu.weight_panels import PACK_FIRST
from tunesmith.tuning.records.compilation import build
from tvm import s_tir

TARGETS = {
    "avx2": ("x86_64-linux-gnu", "haswell", 256),
    "avx512": ("x86_64-linux-gnu", "x86-64-v4", 512),
    "neon": ("aarch64-linux-gnu", "neoverse-n1", 128),
}
WORKLOADS = {
    "matmul": {"m": 512, "n": 512, "k": 512},
    "conv2d": {"n": 1, "h": 56, "w": 56, "ci": 64, "co": 64, "kh": 3, "kw": 3, "stride": 1, "padding": 1},
}


@pytest.fixture(params=TARGETS)
def machine(request):
    triple, cpu, bits = TARGETS[request.param]
    return as_target({"kind": "llvm", "mtriple": triple, "mcpu": cpu, "num-cores": 2}), bits


def loop_of(schedule, target):
    return inner_loop(build(schedule, target).mod.inspect_source("s"))


@pytest.mark.parametrize("operator", WORKLOADS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_default_keeps_its_tile_in_vector_registers(machine, operator, dtype):
    (target, bits), rules = machine, schedule_rules()
    func = ts.workload(operator, dtype=dtype, **WORKLOADS[operator]).func
    rule = rules[operator]
    assert rule in rules_for(func, target)
    knobs = rule.space(func, target).default
    assert knobs["lanes"] == bits // int(dtype.removeprefix("float"))
    loop = loop_of(rule.scheduled(func, target), target)
    vectors = knobs["mr"] * knobs["nr"] // knobs["lanes"]
    assert loop.bits == bits
    assert loop.accumulators == vectors
    # LLVM may put several iterations of the sum into one.
    assert loop.multiply_adds % vectors == 0
    assert (loop.stores, loop.spills) == (0, 0)


def test_the_products_of_winograds_tiles_stay_in_vector_registers(machine):
    target, bits = machine
    func = ts.workload("conv2d", **WORKLOADS["conv2d"]).func
    rule = rules_for(func, target)[0]
    knobs = rule.space(func, target).default
    assert (rule.name, knobs["lanes"]) == ("winograd", bits // 32)
    loop = loop_of(rule.scheduled(func, target), target)
    assert (loop.bits, loop.accumulators) == (bits, knobs["mr"] * knobs["nr"] // knobs["lanes"])
    assert (loop.stores, loop.spills) == (0, 0)


def test_a_tile_that_does_not_fit_spills(machine):
    target, bits = machine
    lanes = bits // 32
    rows = facts(target).vector_registers
    sch = s_tir.Schedule(ts.workload("matmul", m=4 * rows, n=512, k=512).func)
    register_tile(
        sch,
        lanes=lanes,
        mr=rows,
        nr=2 * lanes,
        block_rows=1,
        block_columns=1,
        split_columns=1,
        pack=PACK_FIRST,
    )
    loop = loop_of(sch, target)
    assert loop.multiply_adds >= 2 * rows and loop.stores > 0
