"""Buffers of a function's own are as long as the masked vectors of them, which are whole ones then."""

import pytest
import tunesmith as ts
import tvm
from tunesmith.machine.target import as_target
from tunesmith.schedules import rule
from tunesmith.schedules.code_generation import finished
from tunesmith.schedules.whole_buffers import make_buffers_whole
from tvm import tirx
from tvm.script import tirx as T
from tvm_ffi import structural_walk


def masked_buffers(body):
    """Return the names of what is loaded and stored by a mask."""
    found = set()
    structural_walk(
        body,
        (tvm.ir.Call, lambda call: found.add(call.args[0].name) if "masked" in str(call.op) else None),
    )
    return found


def lengths(body):
    found = {}
    structural_walk(
        body, (tirx.AllocBuffer, lambda a: found.update({a.buffer.name: int(a.buffer.shape[-1])}))
    )
    return found


def test_sums_of_columns_that_fill_no_vector_stay_in_registers(target, assert_right):
    workload = ts.workload("global_avg_pool2d", n=2, h=5, w=7, c=23)
    masks = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    body = finished(rule("rows").scheduled(workload.func, masks).mod, masks)["main"].body
    assert masked_buffers(body) == {"data", "average"}
    assert_right(workload, rule("rows").scheduled(workload.func, target))


def kept(bound, length):
    """Return a function that keeps the elements below a bound in a buffer so long, between two arrays."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((T.int64(32),), "float32"), y: T.Buffer((T.int64(32),), "float32")):
        there = T.meta_var(T.Ramp(T.int64(0), T.int64(1), 16) < T.Broadcast(T.int64(bound), 16))
        lanes = T.meta_var(T.Ramp(T.int64(0), T.int64(1), 16))
        own = T.alloc_buffer((T.int64(length),), "float32")
        T.masked_store(own, T.masked_load("float32x16", x, lanes, there), lanes, there)
        T.masked_store(y, T.masked_load("float32x16", own, lanes, there), lanes, there)

    return main.body


@pytest.mark.parametrize(
    ("bound", "length", "found"),
    [
        (7, 7, 16),
        # Elements beyond the bound are the buffer's own: a mask keeps them as they are.
        (7, 20, 20),
    ],
)
def test_only_masks_of_the_length_are_taken_off(bound, length, found):
    body = make_buffers_whole(kept(bound, length))
    assert lengths(body) == {"own": found}
    assert masked_buffers(body) == ({"x", "y"} if found != length else {"x", "y", "own"})
