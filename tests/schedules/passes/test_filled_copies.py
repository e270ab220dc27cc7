"""Weights of bytes that fill no panels: groups are made of them as they lie, by masks, and not of a copy."""

import re

import pytest
import tunesmith as ts
from tunesmith.kernels.shapes import parse_shape
from tunesmith.machine.dot_instructions import dot_instruction
from tunesmith.schedules.code_generation import finished
from tunesmith.schedules.cpu.paired import PAIRED
from tunesmith.schedules.cpu.quantized import QUANTIZED

HERE = dot_instruction(ts.host_target(), "uint8", "int8")
summing = pytest.mark.skipif(
    str(HERE) != "vpdpbusd_512", reason="this CPU widens bytes to multiply them, or has no masks"
)
PAIRS = dot_instruction(ts.host_target(), "bfloat16", "bfloat16")


def copies(schedule, target, weight):
    """Return the buffers that the weight is filled up in."""
    script = finished(schedule.mod, target).script()
    return re.findall(rf"{weight}_pad\w* = T.alloc_buffer", script)


@summing
@pytest.mark.parametrize("blocks", [{"pack": 1, "split_columns": 1}, {"pack": 2, "split_columns": 0}])
@pytest.mark.parametrize(
    ("op", "shape", "weight"),
    [
        ("quantized_matmul", "m=20,n=150,k=64", "B"),  # columns fill no panels
        ("quantized_matmul", "m=20,n=128,k=61", "B"),  # sums no groups
        ("quantized_matmul", "m=20,n=83,k=43", "B"),
        ("quantized_linear", "m=20,n=150,k=128,zero=3", "weight"),  # turned: rows of the weight are columns
        ("quantized_linear", "m=20,n=83,k=130,zero=3", "weight"),
        ("quantized_conv2d", "n=1,h=7,w=6,ci=13,co=83,kh=3,kw=3,padding=1,data_zero=100", "weight"),
    ],
)
def test_no_copy_is_filled_up(op, shape, weight, blocks, target, assert_right):
    workload = ts.workload(op, **parse_shape(shape))
    schedule = QUANTIZED.scheduled(workload.func, target, {"nr": 32, "block_columns": 2, **blocks})
    assert_right(workload, schedule)
    assert len(copies(schedule, target, weight)) == 1, "but the panels"


@pytest.mark.skipif(PAIRS is None, reason="this CPU sums no pairs of bfloat16")
def test_weights_of_bfloat16_are_filled_up(target, assert_right):
    """To TVM masked loads of bfloat16 are integers."""
    workload = ts.workload("matmul", dtype="bfloat16", m=20, n=150, k=64)
    schedule = PAIRED.scheduled(workload.func, target)
    assert_right(workload, schedule)
    assert len(copies(schedule, target, "B")) == 2
