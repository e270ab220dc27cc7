"""How the straight-line code of scheduled functions is counted."""

import pytest
import tunesmith as ts
from tunesmith.tuning.strategies.code_size import code_of
from tvm import s_tir
from tvm.script import tirx as T

LANES = 16


def scheduled(unroll=None, vectorize=None, max_step=None, parallel=None):
    """A matmul of 32x64x8 whose loops i, j, k are inside one another, with some of them marked."""
    schedule = s_tir.Schedule(ts.workload("matmul", m=32, n=64, k=8).func)
    loops = dict(zip("ijk", schedule.get_loops(schedule.get_sblock("matmul")), strict=True))
    schedule.reorder(loops["i"], loops["k"], loops["j"])
    if unroll:
        schedule.unroll(loops[unroll])
    if vectorize:
        schedule.vectorize(loops[vectorize])
    if max_step:
        schedule.annotate(loops["i"], "pragma_auto_unroll_max_step", max_step)
        schedule.annotate(loops["i"], "pragma_unroll_explicit", 1)
    return schedule.mod["main"]


@pytest.mark.parametrize(
    ("marks", "instructions"),
    [
        ({}, 1),
        # A vector of 64 elements is four instructions, of 16 lanes each.
        ({"vectorize": "j"}, 4),
        ({"unroll": "j"}, 64),
        # 8 * 64 steps are 512: allowed by a limit of 512, all 32 rows of them are not.
        ({"max_step": 512}, 512),
        ({"max_step": 511}, 64),
        ({"max_step": 63}, 1),
        # TVM counts a vector as one step: 32 * 8 steps of four instructions.
        ({"max_step": 512, "vectorize": "j"}, 1024),
        ({"max_step": 255, "vectorize": "j"}, 32),
    ],
)
def test_the_longest_part_is_what_tvm_unrolls(marks, instructions):
    assert code_of(scheduled(**marks), LANES).longest == instructions


def test_narrower_registers_need_more_instructions():
    assert code_of(scheduled(vectorize="j"), 4).longest == 16


def test_a_loop_between_ends_a_block():
    @T.prim_func(s_tir=True)
    def twice(a: T.Buffer((8,)), b: T.Buffer((8,)), c: T.Buffer((64,))):
        for i in T.unroll(8):
            b[i] = a[i]
        for i in range(64):
            c[i] = a[0]

    assert code_of(twice, LANES).longest == 8


def test_unrolled_parts_in_a_row_are_one_block():
    @T.prim_func(s_tir=True)
    def twice(a: T.Buffer((8,)), b: T.Buffer((8,)), c: T.Buffer((8,))):
        for i in T.unroll(8):
            b[i] = a[i]
        for i in T.unroll(8):
            c[i] = b[i] + a[i]

    assert code_of(twice, LANES).longest == 16


@pytest.mark.parametrize(
    ("marks", "lanes", "executed"),
    [({}, LANES, 32 * 64 * 8), ({"unroll": "j"}, LANES, 32 * 64 * 8), ({"vectorize": "j"}, 4, 32 * 8 * 16)],
)
def test_vectors_are_executed_less_often(marks, lanes, executed):
    assert code_of(scheduled(**marks), lanes).executed == executed
