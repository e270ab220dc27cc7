"""Loops with an incomplete last iteration: the others have no condition, whatever integers index them."""

import numpy as np
import pytest
import tvm
from tunesmith.kernels.operator import as_prim_func
from tunesmith.schedules.passes.loop_partition import partition, partition_loops
from tunesmith.tuning.records.compilation import build
from tvm import s_tir, te, tirx
from tvm_ffi import structural_walk


def doubled(extent, dtype, marked):
    """Return a module that doubles a vector in steps of 16, which do not divide it."""
    x = te.placeholder((tirx.IntImm(dtype, extent),), "float32", name="x")
    sch = s_tir.Schedule(as_prim_func([x, te.compute(x.shape, lambda i: x[i] * 2.0, name="y")]))
    steps, lane = sch.split(sch.get_loops(sch.get_sblock("y"))[0], [None, 16])
    sch.vectorize(lane)
    if marked:
        partition(sch, steps)
    return sch.mod


def conditions(nest):
    """Return the conditions in a loop nest, those of its blocks too."""
    found = []
    structural_walk(nest, (tirx.IfThenElse, lambda branch: found.append(branch.condition)))
    structural_walk(nest, (s_tir.SBlockRealize, lambda block: found.append(block.predicate)))
    return [c for c in found if not isinstance(c, tirx.IntImm)]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_only_the_last_iteration_of_a_marked_loop_has_a_condition(dtype, target):
    mod = doubled(101, dtype, marked=True)
    assert len(conditions(mod["main"].body)) == 1
    whole, last = partition_loops(mod)["main"].body
    assert (int(whole.extent), conditions(whole)) == (6, [])
    assert len(conditions(last)) == 1
    x = np.arange(101, dtype="float32")
    y = tvm.runtime.tensor(np.full_like(x, np.nan))
    build(mod, target)["main"](tvm.runtime.tensor(x), y)
    np.testing.assert_array_equal(y.numpy(), 2 * x)


def test_a_function_without_marks_stays_as_it_is():
    marked, plain = doubled(101, "int64", marked=True), doubled(101, "int64", marked=False)
    both = tvm.IRModule({"marked": marked["main"], "plain": plain["main"]})
    result = partition_loops(both)
    assert result["plain"].same_as(plain["main"])
    assert not result["marked"].same_as(marked["main"])


@pytest.mark.parametrize("mnemonic", ["vpcmp", "kunpck"])
def test_no_mask_is_computed_in_the_machine_code(mnemonic):
    code = build(doubled(1001, "int64", marked=True), {"kind": "llvm", "mcpu": "x86-64-v4"}).mod
    assert mnemonic not in code.inspect_source("asm")


def in_rows(first, end):
    """Return a module that sums what lies between two of 24 elements twice, others once, in rows of 4."""
    x, k = te.placeholder((6, 4, 3), "float32", name="x"), te.reduce_axis((0, 3), "k")

    def factor(row, column):
        inside = te.all(tirx.likely(row * 4 + column >= first), tirx.likely(row * 4 + column < end))
        return tirx.if_then_else(inside, 2.0, 1.0)

    y = te.compute((6, 4), lambda r, c: te.sum(x[r, c, k] * factor(r, c), axis=k), name="y")
    sch = s_tir.Schedule(as_prim_func([x, y]))
    row, column, steps = sch.get_loops(block := sch.get_sblock("y"))
    sch.reorder(row, steps, column)
    sch.decompose_reduction(block, row)
    partition(sch, column)
    return sch.mod


@pytest.mark.parametrize(("first", "end"), [(0, 5), (9, 24), (6, 7), (10, 19)])
def test_what_begins_or_ends_to_hold_beyond_a_loop_is_cut_within(first, end, target):
    x = np.arange(72, dtype="float32").reshape(6, 4, 3)
    inside = (np.arange(24) >= first) & (np.arange(24) < end)
    y = tvm.runtime.tensor(np.full((6, 4), np.nan, "float32"))
    build(in_rows(first, end), target)["main"](tvm.runtime.tensor(x), y)
    np.testing.assert_array_equal(y.numpy(), x.sum(axis=2) * (1 + inside.reshape(6, 4)))
