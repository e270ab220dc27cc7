"""Buffers of bfloat16 that stay so: TVM computes in float32, and keeps a function's own buffers in it too.

An instruction that takes numbers of 16 bits from a buffer needs these there. So the buffer becomes one of
integers, and what is written to it the bits of the number. These are rounded to the nearest number, of two as
near to the even one, as TVM rounds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from ml_dtypes import bfloat16
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import ForKind
from tvm_ffi import structural_map, structural_walk

from ..expressions import is_choice, op_name, stores_of
from ..restatement import without_mark

BITS_MARK = "tunesmith.bfloat16_bits"
"""Annotation of a loop in a function whose own buffers of bfloat16 stay so."""

_NUMBER, _BITS = "bfloat16", "uint16"
_REINTERPRET = "tirx.reinterpret"


def keep_bfloat16(body: Any) -> Any:
    """Return statements whose own buffers of bfloat16 hold the bits of their numbers."""
    own: list[Any] = []
    structural_walk(body, [(tirx.AllocBuffer, lambda allocation: own.append(allocation.buffer))])
    bits = {b: tirx.decl_buffer(b.shape, _BITS, str(b.name)) for b in own if str(b.dtype) == _NUMBER}
    if not bits:
        return body

    def loaded(load: Any) -> Any:
        if load.source not in bits:
            return load
        return T.reinterpret(bits[load.source][tuple(load.indices)], dtype=str(load.ty.dtype))

    def called(call: Any) -> Any:
        if op_name(call) == "tirx.address_of":
            return tirx.address_of(_before(call.args[0]))
        return (
            T.reinterpret(_before(call), dtype=str(call.ty.dtype)) if op_name(call) == _REINTERPRET else call
        )

    def stored(store: Any) -> Any:
        if store.buffer not in bits:
            return store
        return tirx.BufferStore(bits[store.buffer], _bits(store.value), store.indices)

    def allocated(allocation: Any) -> Any:
        return tirx.AllocBuffer(bits.get(allocation.buffer, allocation.buffer))

    return structural_map(
        body,
        [
            (TensorLoad, loaded),
            (tvm.ir.Call, called),
            (tirx.BufferStore, stored),
            (tirx.AllocBuffer, allocated),
        ],
    )


def _keep_marked(func: Any, _mod: Any, _context: Any) -> Any:
    marked: list[Any] = []

    def look_into(loop: Any) -> Any:
        if BITS_MARK not in loop.annotations:
            return loop
        marked.append(loop)
        return without_mark(loop, BITS_MARK)

    body = structural_map(func.body, [(tirx.For, look_into)])
    return func.with_body(keep_bfloat16(body)) if marked else func


keep_marked_bfloat16 = tirx.transform.prim_func_pass(_keep_marked, opt_level=0)
"""The pass that does it to marked functions."""


def store_constants_singly(func: Any) -> Any:
    """Return a function whose loops store constants of bfloat16 in its arguments one by one.

    TVM knows no vectors of such a constant, whatever it is cast from. LLVM makes them. A function without any
    stays as it is.
    """
    own: list[Any] = []
    structural_walk(
        func.body,
        [
            (tirx.AllocBuffer, lambda allocation: own.append(allocation.buffer)),
            (s_tir.SBlock, lambda block: own.extend(block.alloc_buffers)),
        ],
    )

    def is_constant(store: Any) -> bool:
        number = isinstance(store.value, tirx.FloatImm) and str(store.buffer.dtype) == _NUMBER
        return number and not any(store.buffer.same_as(buffer) for buffer in own)

    def singly(loop: Any) -> Any:
        if loop.kind != ForKind.VECTORIZED or not any(map(is_constant, stores_of(loop.body))):
            return loop
        serial = ForKind.SERIAL
        return tirx.For(loop.loop_var, loop.min, loop.extent, serial, loop.body, annotations=loop.annotations)

    body = structural_map(func.body, [(tirx.For, singly)])
    return func if body.same_as(func.body) else func.with_body(body)


def _before(node: Any) -> Any:
    """Return what an expression is that other types are given to one after the other."""
    return _before(node.args[0]) if op_name(node) == _REINTERPRET else node


def _bits(number: Any) -> Any:
    """Return the bits of an expression of bfloat16, or of a vector of it."""
    lanes = int(number.ty.dtype.lanes)
    dtype = of_lanes(_BITS, lanes)
    if isinstance(number, tirx.FloatImm):
        return tirx.IntImm(_BITS, int(np.array(number.value, bfloat16).view(_BITS)))
    if isinstance(number, tirx.Broadcast):
        return tirx.Broadcast(_bits(number.value), number.lanes)
    if isinstance(number, tirx.Shuffle):
        return tirx.Shuffle([_bits(each) for each in number.vectors], number.indices)
    if isinstance(number, tirx.Select):
        return tirx.Select(number.condition, _bits(number.true_value), _bits(number.false_value))
    if is_choice(number):
        condition, yes, no = number.args
        return T.if_then_else(condition, _bits(yes), _bits(no))
    if isinstance(number, tirx.Cast) and str(number.value.ty.dtype).startswith("float32"):
        return _rounded(number.value, lanes)
    found = _before(number)
    return found if str(found.ty.dtype) == dtype else T.reinterpret(found, dtype=dtype)


def _rounded(number: Any, lanes: int) -> Any:
    """Return the bits of a float32 that is rounded to bfloat16."""
    bits = T.reinterpret(number, dtype=of_lanes("uint32", lanes))
    odd = tirx.bitwise_and(tirx.shift_right(bits, constant(16, lanes)), constant(1, lanes))
    return tirx.Cast(
        of_lanes(_BITS, lanes),
        tirx.shift_right(bits + odd + constant(0x7FFF, lanes), constant(16, lanes)),
    )


def widened(bits: Any) -> Any:
    """Return the float32, or the vector of it, whose upper half these bits are, and whose lower is zero."""
    lanes = int(bits.ty.dtype.lanes)
    word = tirx.shift_left(tirx.Cast(of_lanes("uint32", lanes), bits), constant(16, lanes))
    return T.reinterpret(word, dtype=of_lanes("float32", lanes))


def as_float32(vector: Any) -> Any:
    """Return a vector in float32. What is named keeps no bfloat16: TVM would take its bits for integers."""
    dtype, lanes = str(vector.ty.dtype), int(vector.ty.dtype.lanes)
    if not dtype.startswith(_NUMBER):
        return vector.astype(of_lanes("float32", lanes))
    return widened(T.reinterpret(vector, dtype=of_lanes(_BITS, lanes)))


def of_lanes(dtype: str, lanes: int) -> str:
    """Return the type of a vector of so many elements; of one it is that of the element."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def constant(value: int, lanes: int) -> Any:
    """Return a uint32, or a vector of it."""
    one = tirx.IntImm("uint32", value)
    return one if lanes == 1 else tirx.Broadcast(one, lanes)
