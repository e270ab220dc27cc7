"""The AVX-512 VNNI dot product in a form that LLVM accepts.

TVM's own ``dot_16x4_vnni`` hands ``vpdpbusd`` its byte operands as int32x16; LLVM 22 wants bytes and refuses
the module, so every candidate that uses it would fail to build.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.s_tir.tensor_intrin.x86 import VNNI_DOT_16x4_INTRIN, dot_product_16x4_u8i8i32_desc
from tvm.script import tirx as T


@cache
def _dot_16x4_vnni() -> Any:
    @T.prim_func(s_tir=True)
    def dot_16x4_vnni(a: T.handle, b: T.handle, c: T.handle) -> None:
        """C[i] += sum over k of A[k] * B[i, k], in one instruction."""
        A = T.match_buffer(a, (4,), "uint8", offset_factor=1)
        B = T.match_buffer(b, (16, 4), "int8", offset_factor=1)
        C = T.match_buffer(c, (16,), "int32", offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:16], A[0:4], B[0:16, 0:4])
            T.writes(C[0:16])
            a_everywhere = T.reinterpret(
                T.broadcast(T.reinterpret(A.vload([0], "uint8x4"), dtype="int32"), 16), dtype="int8x64"
            )
            C[T.ramp(T.int32(0), 1, 16)] = T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id("llvm.x86.avx512.vpdpbusd.512"),
                C.vload([0], "int32x16"),
                a_everywhere,
                B.vload([0, 0], dtype="int8x64"),
                dtype="int32x16",
            )

    return dot_16x4_vnni


def register_vnni() -> None:
    """Replace TVM's VNNI intrinsic, under the same name, by the form that compiles."""
    TensorIntrin.register(
        VNNI_DOT_16x4_INTRIN, dot_product_16x4_u8i8i32_desc, _dot_16x4_vnni(), override=True
    )
