"""Sums of four byte products in every lane of a vector: AVX-512 VNNI's ``vpdpbusd``.

One instruction adds, in each of 16 lanes, four products of an unsigned and a signed byte to an int32, exactly::

    sums[j] += data[0] * weight[j, 0] + data[1] * weight[j, 1] + data[2] * weight[j, 2] + data[3] * weight[j, 3]

So the four bytes of a row are broadcast as one int32, and the weight of a column lies in fours.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tvm import s_tir
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from ..machine.facts import has_feature

PRODUCTS = 4
"""Products that the instruction sums in each lane."""

LANES = 16
"""Its lanes, each an int32."""

DOT_PRODUCTS = "tunesmith_dot_products_16x4"
INTERLEAVING = "tunesmith_interleave_4x16"
"""Names under which TVM knows the intrinsics, which traces hold."""


def has_dot_products(target: Any) -> bool:
    """Tell whether a target's CPU has the instruction."""
    return has_feature(target, "avx512vnni")


@cache
def register_dot_products() -> None:
    """Register the intrinsics with TVM."""
    TensorIntrin.register(DOT_PRODUCTS, _dot_products, _vpdpbusd, override=True)
    TensorIntrin.register(INTERLEAVING, _interleaved, _in_registers, override=True)


@T.prim_func(s_tir=True)
def _dot_products(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (PRODUCTS,), "uint8", offset_factor=1)
    B = T.match_buffer(b, (LANES, PRODUCTS), "int8", offset_factor=1)
    C = T.match_buffer(c, (LANES,), "int32", offset_factor=1, scope="local")
    with T.sblock("root"):
        T.reads(C[0:LANES], A[0:PRODUCTS], B[0:LANES, 0:PRODUCTS])
        T.writes(C[0:LANES])
        for j, q in T.grid(LANES, PRODUCTS):
            with T.sblock("dot"):
                vj, vq = T.axis.remap("SR", [j, q])
                C[vj] = C[vj] + T.cast(A[vq], "int32") * T.cast(B[vj, vq], "int32")


@T.prim_func(s_tir=True)
def _vpdpbusd(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (PRODUCTS,), "uint8", offset_factor=1)
    B = T.match_buffer(b, (LANES, PRODUCTS), "int8", offset_factor=1)
    C = T.match_buffer(c, (LANES,), "int32", offset_factor=1, scope="local")
    with T.sblock("root"):
        T.reads(C[0:LANES], A[0:PRODUCTS], B[0:LANES, 0:PRODUCTS])
        T.writes(C[0:LANES])
        # LLVM wants the operands as bytes, though the instruction's own types are of int32.
        everywhere = T.reinterpret(
            T.broadcast(T.reinterpret(A.vload([0], "uint8x4"), dtype="int32"), LANES), dtype="int8x64"
        )
        C[T.ramp(T.int32(0), 1, LANES)] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.x86.avx512.vpdpbusd.512"),
            C.vload([0], "int32x16"),
            everywhere,
            B.vload([0, 0], dtype="int8x64"),
            dtype="int32x16",
        )


@T.prim_func(s_tir=True)
def _interleaved(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, (PRODUCTS, LANES), "int8", offset_factor=1, strides=[T.int64(), 1])
    B = T.match_buffer(b, (LANES, PRODUCTS), "int8", offset_factor=1)
    with T.sblock("root"):
        T.reads(A[0:PRODUCTS, 0:LANES])
        T.writes(B[0:LANES, 0:PRODUCTS])
        for j, q in T.grid(LANES, PRODUCTS):
            with T.sblock("interleave"):
                vj, vq = T.axis.remap("SS", [j, q])
                B[vj, vq] = A[vq, vj]


def gather_products(
    sch: s_tir.Schedule, block: Any, column: int, sums: int, lanes: int, products: int
) -> Any:
    """Make one instruction of ``lanes`` columns and ``products`` of the sum; return the block of instructions.

    Its loops are those of the block before, that much shorter. It stands for what `use_dot_products` replaces.
    """
    loops = sch.get_loops(block)
    loops[column], lane = sch.split(loops[column], [None, lanes])
    loops[sums], product = sch.split(loops[sums], [None, products])
    sch.reorder(*loops, lane, product)
    return sch.blockize(lane)


def use_dot_products(sch: s_tir.Schedule, start: Any, block: Any) -> None:
    """Put the instruction into a block of `gather_products` whose ``start`` sets the sums to zero."""
    sch.vectorize(sch.get_loops(sch.get_child_blocks(start)[0])[-1])
    # Tiles that are cut short have a condition, which `tensorize` wants outside of what it replaces.
    vector = sch.get_loops(block)[-1]
    sch.blockize(vector)
    sch.tensorize(block, DOT_PRODUCTS)


def interleave(sch: s_tir.Schedule, panels: Any, lanes: int) -> list[Any]:
    """Copy a weight into fours in registers; return the loops around."""
    *outer, column, _ = sch.get_loops(panels)
    _, lane = sch.split(column, [None, lanes])
    sch.tensorize(lane, INTERLEAVING)
    return list(outer)


_PLACES = [q * LANES + j for j in range(LANES) for q in range(PRODUCTS)]


@T.prim_func(s_tir=True)
def _in_registers(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, (PRODUCTS, LANES), "int8", offset_factor=1, strides=[T.int64(), 1])
    B = T.match_buffer(b, (LANES, PRODUCTS), "int8", offset_factor=1)
    with T.sblock("root"):
        T.reads(A[0:PRODUCTS, 0:LANES])
        T.writes(B[0:LANES, 0:PRODUCTS])
        B.vstore(
            [0, 0],
            T.Shuffle(
                [
                    A.vload([0, 0], "int8x16"),
                    A.vload([1, 0], "int8x16"),
                    A.vload([2, 0], "int8x16"),
                    A.vload([3, 0], "int8x16"),
                ],
                _PLACES,
            ),
        )
