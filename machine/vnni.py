"""The AVX-512 VNNI dot product in a form that LLVM accepts.

TVM's own ``dot_16x4_vnni`` hands ``vpdpbusd`` its byte operands as int32x16; LLVM 22 wants bytes and refuses
the module, so every candidate that uses it would fail to build.
"""

from __future__ import annotations

from tvm.s_tir import TensorIntrin
from tvm.s_tir.tensor_intrin.x86 import VNNI_DOT_16x4_INTRIN, dot_product_16x4_u8i8i32_desc

from .dot_instructions import VPDPBUSD_512, performed_by


def register_vnni() -> None:
    """Replace TVM's VNNI intrinsic, under the same name, by the form that compiles."""
    TensorIntrin.register(
        VNNI_DOT_16x4_INTRIN, dot_product_16x4_u8i8i32_desc, performed_by(VPDPBUSD_512), override=True
    )
