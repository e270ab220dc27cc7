"""Quotients that all lanes share lose the lane; others keep it. Multiples of a divisor leave the sum."""

import pytest
import tunesmith as ts
import tvm
import tvm_ffi
from tunesmith.machine.target import as_target
from tunesmith.schedules import rule
from tunesmith.schedules.code_generation import generate_code
from tunesmith.schedules.expressions import index_variables
from tunesmith.schedules.passes.quotients import lessen_quotients, share_quotients
from tunesmith.schedules.restatement import replaced
from tvm import tirx
from tvm.sym import Analyzer
from tvm.tirx import FloorDiv, FloorMod
from tvm_ffi import structural_walk

LANES = 16


def vector(number, divisor):
    """Return a vectorized loop that stores a quotient and a remainder of a number of its lane."""
    lane, p, q = (tirx.Var(name, "int64") for name in ("lane", "p", "q"))
    out = tirx.decl_buffer((2, LANES), "int64", "out")
    stores = [
        tirx.BufferStore(out, of(number(p, q, lane), tirx.const(divisor, "int64")), [i, lane])
        for i, of in enumerate((FloorDiv, FloorMod))
    ]
    zero, lanes = (tirx.const(value, "int64") for value in (0, LANES))
    return tirx.For(lane, zero, lanes, tirx.ForKind.VECTORIZED, tirx.SeqStmt(stores))


def divided(loop):
    """Tell whether a number with the lane in it is divided."""
    numbers = []
    structural_walk(loop.body, [(each, lambda node: numbers.append(node.a)) for each in (FloorDiv, FloorMod)])
    return loop.loop_var in index_variables(numbers)


def values(loop, p, q):
    """Compute what a loop stores."""
    found = []

    def compute(store):
        variables = {v.name: v for v in index_variables([store.value])}
        for lane in range(LANES):
            at = {"p": p, "q": q, "lane": lane}
            given = {v: tirx.const(at[name], "int64") for name, v in variables.items()}
            found.append(int(Analyzer().simplify(replaced(store.value, given))))

    structural_walk(loop.body, (tirx.BufferStore, compute))
    return found


@pytest.mark.parametrize(
    ("number", "divisor", "shared"),
    [
        (lambda p, q, lane: p * 128 + q * 16 + lane, 512, True),
        (lambda p, q, lane: lane + p * 48, 48, True),
        # 24 is no multiple of the lanes, nor are steps of 8; what goes by two is of two quotients.
        (lambda p, q, lane: p * 128 + q * 16 + lane, 24, False),
        (lambda p, q, lane: p * 128 + q * 8 + lane, 512, False),
        (lambda p, q, lane: p * 128 + q * 16 + lane * 2, 512, False),
        (lambda p, q, lane: p * 128 + q * 16 + lane + 1, 512, False),
    ],
)
def test_the_lane_is_taken_out_where_it_changes_nothing(number, divisor, shared):
    loop = vector(number, divisor)
    found = share_quotients(loop)
    assert divided(loop) and divided(found) != shared
    for p, q in ((0, 0), (3, 7), (11, 5)):
        assert values(found, p, q) == values(loop, p, q)


@pytest.mark.parametrize("mcpu", ["x86-64-v4", "haswell"])
def test_a_weight_that_is_ordered_by_phase_is_read_in_vectors(mcpu, target, assert_right):
    """3 taps by strides of 2 are filled up: by a condition of the phase, which vectors of columns share."""
    workload = ts.workload("conv2d_transpose", n=1, h=2, w=8, ci=320, co=512, kh=3, kw=3, stride=2)
    cpu = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    code = generate_code(rule("conv2d").scheduled(workload.func, cpu).mod, cpu).mod.inspect_source("asm")
    assert not any(element in code for element in ("gather", "scatter", "vmovss"))
    assert_right(workload, rule("conv2d").scheduled(workload.func, target))


@pytest.mark.parametrize(
    ("added", "left", "taken"),
    [(3704, 4, 100), (37, 0, 1), (36, 36, 0), (-1, 36, -1), (-75, 36, -3)],
)
def test_multiples_of_the_divisor_are_taken_out_of_a_quotient(added, left, taken):
    f, out = tirx.Var("f", "int64"), tirx.decl_buffer((1,), "int64", "out")
    store = tirx.BufferStore(out, FloorDiv(f + tirx.const(added, "int64"), tirx.const(37, "int64")), [0])
    mod = lessen_quotients(tvm.IRModule({"main": tirx.PrimFunc([f, out], store)}))
    f, value = mod["main"].params[0], mod["main"].body.value
    quotient = FloorDiv(f + tirx.const(left, "int64"), tirx.const(37, "int64"))
    assert tvm_ffi.structural_equal(value, quotient + tirx.const(taken, "int64"))
    for number in (0, 36, 37, 1000):
        given = {f: tirx.const(number, "int64")}
        assert int(Analyzer().simplify(replaced(value, given))) == (number + added) // 37


@pytest.mark.parametrize("mcpu", ["x86-64-v4", "haswell"])
@pytest.mark.parametrize("shape", [{"c": 100, "d": 37, "more": 31}, {"b": 64, "c": 7, "d": 3, "more": 100}])
def test_rows_behind_each_other_are_moved_in_vectors(shape, mcpu, target, assert_right):
    """The second part of a row begins where no vector does, and no lane works out where it is."""
    workload = ts.workload("concat", **shape, axis="c")
    cpu = as_target({"kind": "llvm", "mcpu": mcpu, "mtriple": "x86_64-linux", "num-cores": 2})
    code = generate_code(rule("general").scheduled(workload.func, cpu).mod, cpu).mod.inspect_source("asm")
    assert not any(element in code for element in ("gather", "scatter", "vpmul"))
    assert_right(workload, rule("general").scheduled(workload.func, target))
