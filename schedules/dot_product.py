"""Sums of four byte products in every lane of a vector: AVX-512 VNNI's ``vpdpbusd``.

One instruction adds, in each of 16 lanes, four products of a uint8 and an int8 to an int32, exactly::

    sums[j] += data[0] * weight[j, 0] + data[1] * weight[j, 1] + ... + data[3] * weight[j, 3]

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
    TensorIntrin.register(DOT_PRODUCTS, _dot_products(), _vpdpbusd(), override=True)
    TensorIntrin.register(INTERLEAVING, _interleaved(), _in_registers(), override=True)


def _dot_products() -> Any:
    @T.prim_func(s_tir=True)
    def described(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (PRODUCTS,), "uint8", offset_factor=1)
        B = T.match_buffer(b, (LANES, PRODUCTS), "int8", offset_factor=1)
        C = T.match_buffer(c, (LANES,), "int32", offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:LANES], A[0:PRODUCTS], B[0:LANES, 0:PRODUCTS])
            T.writes(C[0:LANES])
            for j, q in T.grid(LANES, PRODUCTS):
                with T.sblock("dot"):
                    vj, vq = T.axis.remap("SR", [j, q])
                    C[vj] = C[vj] + T.cast(A[vq], "int32") * T.cast(B[vj, vq], "int32")

    return described


def _vpdpbusd() -> Any:
    @T.prim_func(s_tir=True)
    def performed(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (PRODUCTS,), "uint8", offset_factor=1)
        B = T.match_buffer(b, (LANES, PRODUCTS), "int8", offset_factor=1)
        C = T.match_buffer(c, (LANES,), "int32", offset_factor=1)
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

    return performed


def _interleaved() -> Any:
    @T.prim_func(s_tir=True)
    def described(a: T.handle, b: T.handle) -> None:
        A = T.match_buffer(a, (PRODUCTS, LANES), "int8", offset_factor=1, strides=[T.int64(), 1])
        B = T.match_buffer(b, (LANES, PRODUCTS), "int8", offset_factor=1)
        with T.sblock("root"):
            T.reads(A[0:PRODUCTS, 0:LANES])
            T.writes(B[0:LANES, 0:PRODUCTS])
            for j, q in T.grid(LANES, PRODUCTS):
                with T.sblock("interleave"):
                    vj, vq = T.axis.remap("SS", [j, q])
                    B[vj, vq] = A[vq, vj]

    return described


def gather_products(sch: s_tir.Schedule, block: Any, column: int, sums: int, vectors: int) -> Any:
    """Gather ``vectors`` instructions of one row into a block; return it.

    Its loops are those of the block before, columns and sums that much shorter. Conditions that later splits
    bring stay outside of it: `tensorize` wants none.
    """
    loops = sch.get_loops(block)
    loops[column], vector, lane = sch.split(loops[column], [None, vectors, LANES])
    loops[sums], product = sch.split(loops[sums], [None, PRODUCTS])
    sch.reorder(*loops, vector, lane, product)
    sch.blockize(lane)
    return sch.blockize(vector)


def use_dot_products(sch: s_tir.Schedule, start: Any, block: Any) -> None:
    """Put instructions into a block of `gather_products`, whose ``start`` sets the sums to zero."""
    (zeros,), (instruction,) = sch.get_child_blocks(start), sch.get_child_blocks(block)
    # A panel of one vector has no loop over vectors.
    for vector in (*sch.get_loops(zeros), *sch.get_loops(instruction)):
        sch.unroll(vector)
    (zero,) = sch.get_child_blocks(zeros)
    sch.vectorize(sch.get_loops(zero)[-1])
    sch.tensorize(instruction, DOT_PRODUCTS)


def interleave(sch: s_tir.Schedule, panels: Any) -> list[Any]:
    """Copy a weight into fours in registers; return the loops around."""
    *outer, column, _ = sch.get_loops(panels)
    _, lane = sch.split(column, [None, LANES])
    sch.tensorize(lane, INTERLEAVING)
    return list(outer)


_PLACES = [q * LANES + j for j in range(LANES) for q in range(PRODUCTS)]


def _in_registers() -> Any:
    @T.prim_func(s_tir=True)
    def performed(a: T.handle, b: T.handle) -> None:
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

    return performed
