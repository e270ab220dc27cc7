from itertools import pairwise

import pytest
import tunesmith as ts
import tvm
from tunesmith.machine.facts import facts
from tunesmith.schedules.loop_nest import loop_nest
from tunesmith.schedules.steps import changed_lines, schedule_steps
from tvm import s_tir


@pytest.fixture(scope="module")
def func():
    return ts.workload("matmul", m=8, n=16, k=4).func


@pytest.fixture
def sch(func):
    return s_tir.Schedule(func)


def steps(sch, func):
    return [(step.primitive, step.code) for step in schedule_steps(sch, func)]


def test_loops_and_blocks_have_their_names_and_defaults_are_left_out(sch, func):
    block = sch.get_sblock("matmul")
    sch.set_scope(sch.cache_write(block, 0, "local"), 0, "global")
    i, _, _ = sch.get_loops(block)
    outer, inner = sch.split(i, [None, 4])
    sch.reorder(inner, outer)
    assert steps(sch, func) == [
        (
            "cache_write",
            'matmul_local = sch.cache_write("matmul", write_buffer_index=0, storage_scope="local")',
        ),
        ("split", "i_0, i_1 = sch.split(i, factors=[None, 4])"),
        ("reorder", "sch.reorder(i_1, i_0)"),
    ]


def test_calls_of_one_primitive_in_a_row_are_one_step(sch, func):
    i, j, _ = sch.get_loops(sch.get_sblock("matmul"))
    sch.unroll(i)
    sch.get_loops(sch.get_sblock("matmul"))
    sch.unroll(j)
    assert steps(sch, func) == [("unroll", "sch.unroll(i)\nsch.unroll(j)")]


def test_a_fuse_of_one_loop_is_told_with_the_step_that_needs_its_name(sch, func):
    i, j, _ = sch.get_loops(sch.get_sblock("matmul"))
    fused = sch.fuse(i)
    sch.reorder(j, fused)
    assert steps(sch, func) == [("reorder", "i_fused = sch.fuse(i)\nsch.reorder(j, i_fused)")]


def test_what_was_sampled_is_a_number(sch, func):
    i, _, _ = sch.get_loops(sch.get_sblock("matmul"))
    sch.split(i, sch.sample_perfect_tile(i, 2, decision=[2, 4]))
    assert steps(sch, func) == [("split", "i_0, i_1 = sch.split(i, factors=[2, 4])")]


@pytest.mark.parametrize("operator", ["conv2d", "linear_relu", "relu"])
def test_the_last_step_is_the_schedule(operator):
    shapes = {
        "conv2d": {"n": 1, "h": 8, "w": 8, "ci": 4, "co": 32, "kh": 3, "kw": 3},
        "linear_relu": {"m": 5, "n": 33, "k": 7},
        "relu": {"m": 64, "n": 256},
    }
    workload = ts.workload(operator, **shapes[operator])
    schedule, _ = ts.apply_default(workload.func, ts.host_target())
    found = schedule_steps(schedule, workload.func)
    tvm.ir.assert_structural_equal(found[-1].schedule.mod["main"], schedule.mod["main"])
    assert found[-1].nest == loop_nest(schedule.mod["main"])
    nests = [loop_nest(workload.func), *(step.nest for step in found)]
    assert all(before != after for before, after in pairwise(nests))


def test_an_unscheduled_function_has_no_steps(sch, func):
    sch.get_loops(sch.get_sblock("matmul"))
    assert schedule_steps(sch, func) == []


def test_a_line_that_moves_to_the_right_is_the_same_line():
    assert changed_lines("for i\n  body", "for i_0\n  for i_1\n    body") == [
        "- for i",
        "+ for i_0",
        "+   for i_1",
        "      body",
    ]


def test_what_is_far_from_a_change_is_left_out():
    before = "\n".join("abcdefghijklm")
    after = before.replace("a", "A").replace("m", "M")
    assert changed_lines(before, after) == ["- a", "+ A", "  b", "  c", "  ...", "  k", "  l", "- m", "+ M"]


def test_another_algorithm_is_a_step():
    workload = ts.workload("transpose", c=20, d=33)
    schedule = ts.schedule_rules()["transpose"].scheduled(workload.func, ts.host_target())
    first, second, *_ = schedule_steps(schedule, workload.func)
    assert (first.primitive, second.primitive) == ("annotate", "split")
    squares = min(facts(ts.host_target()).lanes("float32"), 16)
    assert f'"tunesmith.algorithm.squares_{squares}_0"' in first.code and "another algorithm" in first.words
    assert "squares: x -> transpose" in first.nest


def test_a_form_of_several_blocks_is_begun_anew_for_each_step():
    """TVM changes a function whose root has been noted; a step that went before would be found done."""
    workload = ts.workload("matmul", m=64, n=64, k=64, dtype="float16")
    schedule = ts.schedule_rules()["widened_matmul"].scheduled(workload.func, ts.host_target())
    found = schedule_steps(schedule, workload.func)
    assert "wide_data" in found[0].nest
    tvm.ir.assert_structural_equal(found[-1].schedule.mod["main"], schedule.mod["main"])
