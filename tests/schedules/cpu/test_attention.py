"""Attention: where it is found, and that blocks, tiles and ragged ends are right."""

from math import prod

import pytest
import tunesmith as ts
from tunesmith.schedules import rules_for
from tunesmith.schedules.cpu.attention import ATTENTION, find_attention
from tvm import s_tir
from tvm_ffi import structural_walk

SHAPES = {
    "whole": {"heads": 2, "m": 32, "n": 64, "d": 32},
    "ragged_queries": {"heads": 2, "m": 37, "n": 48, "d": 16},
    "causal": {"heads": 2, "m": 24, "n": 40, "d": 16, "causal": 1},
    "grouped": {"heads": 6, "m": 16, "n": 32, "d": 8, "kv_heads": 2},
    "narrow": {"heads": 1, "m": 5, "n": 36, "d": 12},
    "parallel": {"heads": 4, "m": 64, "n": 128, "d": 64},
}


def of(shape, dtype="float32"):
    return ts.workload("attention", dtype=dtype, **shape)


@pytest.mark.parametrize("name", SHAPES)
def test_every_kind_of_point_is_right(name, target, assert_right):
    workload = of(SHAPES[name])
    assert rules_for(workload.func, target)[0] is ATTENTION
    space = ATTENTION.space(workload.func, target)
    for knobs in [space.default, *space.points[:: max(1, len(space) // 3)]]:
        assert_right(workload, ATTENTION.scheduled(workload.func, target, knobs))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_types(dtype, target, assert_right):
    workload = of(SHAPES["ragged_queries"], dtype)
    assert_right(workload, ATTENTION.scheduled(workload.func, target))


def test_its_blocks_are_found_by_what_they_compute():
    nest = find_attention(of(SHAPES["causal"]).func)
    assert (nest.product, nest.score, nest.row_max) == ("product", "score", "row_max")
    assert (nest.weight, nest.row_sum, nest.inverse, nest.mixed) == ("weight", "row_sum", "inverse", "mixed")
    assert (nest.output, nest.heads, nest.m, nest.n, nest.d) == ("attention", 2, 24, 40, 16)
    assert find_attention(of(SHAPES["causal"], "float16").func).output == "cast"


@pytest.mark.parametrize(
    "workload",
    [
        of({"heads": 2, "m": 16, "n": 17, "d": 16}),  # keys that fill no vectors
        of({"heads": 2, "m": 1, "n": 64, "d": 16}),  # one query is no matrix product
        ts.workload("softmax", m=8, n=16),
        ts.workload("batch_matmul", b=2, m=8, n=8, k=8),
    ],
    ids=lambda w: w.label,
)
def test_others_are_left_alone(workload, target):
    assert ATTENTION.space(workload.func, target) is None


def test_no_matrix_of_scores_is_kept(target):
    """What the lowered function allocates is a few blocks of scores, not a matrix of them."""
    scheduled = ATTENTION.scheduled(of({"heads": 2, "m": 512, "n": 512, "d": 64}).func, target)
    passes = (
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
    )
    mod = scheduled.mod
    for lower in passes:
        mod = lower(mod)
    sizes = []
    structural_walk(
        mod["main"].body,
        [(s_tir.SBlock, lambda b: sizes.extend(prod(map(int, x.shape)) for x in b.alloc_buffers))],
    )
    assert sizes and max(sizes) <= 512 * 64 < 512 * 512
