"""Buffers of a function's own are as long as the masked vectors of them, which are whole ones then."""

import pytest
import tunesmith as ts
import tvm
from tunesmith.machine.target import as_target
from tunesmith.schedules import rule
from tunesmith.schedules.code_generation import finished
from tunesmith.schedules.passes.whole_buffers import make_buffers_whole
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


def kept(bound, length, read=None):
    """Return a function that keeps the elements below a bound in a buffer so long, between two arrays."""
    read = read or bound

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((T.int64(32),), "float32"), y: T.Buffer((T.int64(32),), "float32")):
        there = T.meta_var(T.Ramp(T.int64(0), T.int64(1), 16) < T.Broadcast(T.int64(bound), 16))
        wanted = T.meta_var(T.Ramp(T.int64(0), T.int64(1), 16) < T.Broadcast(T.int64(read), 16))
        lanes = T.meta_var(T.Ramp(T.int64(0), T.int64(1), 16))
        own = T.alloc_buffer((T.int64(length),), "float32")
        T.masked_store(own, T.masked_load("float32x16", x, lanes, there), lanes, there)
        T.masked_store(y, T.masked_load("float32x16", own, lanes, wanted), lanes, wanted)

    return main.body


@pytest.mark.parametrize(
    ("bound", "length", "read", "found", "masked"),
    [
        (7, 7, 7, 16, {"x", "y"}),
        (7, 20, 7, 20, {"x", "y"}),  # nobody reads what is beyond
        (7, 20, 9, 20, {"x", "y", "own"}),  # a mask keeps what is read as it is
    ],
)
def test_masks_are_taken_off_where_nobody_asks_for_what_is_beyond(bound, length, read, found, masked):
    body = make_buffers_whole(kept(bound, length, read))
    assert lengths(body) == {"own": found}
    assert masked_buffers(body) == masked


def test_a_mask_is_kept_where_an_element_beyond_is_read():
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((T.int64(32),), "float32"), y: T.Buffer((T.int64(32),), "float32")):
        there = T.meta_var(T.Ramp(T.int64(0), T.int64(1), 16) < T.Broadcast(T.int64(7), 16))
        lanes = T.meta_var(T.Ramp(T.int64(0), T.int64(1), 16))
        own = T.alloc_buffer((T.int64(20),), "float32")
        own[9] = T.float32(1)
        T.masked_store(own, T.masked_load("float32x16", x, lanes, there), lanes, there)
        y[0] = own[9]

    assert masked_buffers(make_buffers_whole(main.body)) == {"x", "own"}


def test_sums_of_tiles_that_end_beyond_the_columns_have_no_masks(target, assert_right):
    """Where each vector of a tile asks which of its columns there are, sums would wait for masked stores."""
    workload = ts.workload("mean", a=3, b=5, c=7, d=41, axes="b")
    knobs = {"lanes": 16, "vectors": 2}
    avx512 = as_target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux", "num-cores": 2})
    body = finished(rule("rows").scheduled(workload.func, avx512, knobs).mod, avx512)["main"].body
    assert masked_buffers(body) == {"x", "mean"}
    assert lengths(body) == {"sum": 32}
    assert_right(workload, rule("rows").scheduled(workload.func, target, knobs))


def of_steps(first, second, lasting):
    """Return a function that stores a vector of its own buffer in each of some steps, and reads one.

    ``first``, ``second``: how many elements, given the step; ``lasting``: whether the buffer outlives it.
    """
    loads, lanes = "float32x16", T.Ramp(T.int64(0), T.int64(1), 16)
    x, y = (tirx.decl_buffer((64,), "float32", name) for name in "xy")
    own = tirx.decl_buffer((20,), "float32", "own")
    step = tirx.Var("step", "int64")
    masks = [lanes < tirx.Broadcast(count(step), 16) for count in (first, second)]
    body = tirx.SeqStmt(
        [
            tirx.Evaluate(T.masked_store(own, T.masked_load(loads, x, lanes, masks[0]), lanes, masks[0])),
            tirx.Evaluate(T.masked_store(y, T.masked_load(loads, own, lanes, masks[1]), lanes, masks[1])),
        ]
    )
    kept = tirx.AllocBuffer(own)
    if not lasting:
        body = tirx.SeqStmt([kept, body])
    loop = tirx.For(step, T.int64(0), T.int64(3), tirx.ForKind.SERIAL, body)
    return tirx.SeqStmt([kept, loop]) if lasting else loop


@pytest.mark.parametrize(
    ("second", "lasting", "masked"),
    [
        (lambda step: step + 3, False, {"x", "y"}),
        (lambda step: step + 4, False, {"x", "y", "own"}),  # more than was stored
        (lambda step: step + 3, True, {"x", "y", "own"}),  # what an earlier step has stored is read
    ],
)
def test_masks_that_depend_on_a_loop_are_taken_off_where_they_are_alike(second, lasting, masked):
    body = make_buffers_whole(of_steps(lambda step: step + 3, second, lasting))
    assert masked_buffers(body) == masked


def test_masks_are_kept_where_vectors_begin_anywhere():
    lanes = T.Ramp(tirx.Var("n", "int64"), T.int64(1), 16)
    x, own = (tirx.decl_buffer((20,), "float32", name) for name in ("x", "own"))
    mask = lanes < tirx.Broadcast(tirx.IntImm("int64", 20), 16)
    store = tirx.Evaluate(T.masked_store(own, T.masked_load("float32x16", x, lanes, mask), lanes, mask))
    body = make_buffers_whole(tirx.SeqStmt([tirx.AllocBuffer(own), store]))
    assert masked_buffers(body) == {"x", "own"} and lengths(body) == {"own": 20}


def test_a_buffer_stays_as_it_is_where_whole_vectors_go_on_in_its_next_row():
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((T.int64(16),), "float32"), y: T.Buffer((T.int64(16),), "float32")):
        there = T.meta_var(T.Ramp(T.int64(0), T.int64(1), 16) < T.Broadcast(T.int64(8), 16))
        lanes = T.meta_var(T.Ramp(T.int64(0), T.int64(1), 16))
        own = T.alloc_buffer((T.int64(2), T.int64(8)), "float32")
        own[T.int64(0), lanes] = x[lanes]
        T.masked_store(y, T.masked_load("float32x16", own, T.int64(1), lanes, there), lanes, there)

    body = make_buffers_whole(main.body)
    assert (lengths(body), masked_buffers(body)) == ({"own": 8}, {"own", "y"})
