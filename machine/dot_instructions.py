"""Instructions that multiply narrow numbers and sum neighbouring products in every lane of a vector.

With p products of a ``data`` and a ``weight`` element, in each of the lanes, of integers exactly::

    sums[j] += data[0] * weight[j, 0] + ... + data[p - 1] * weight[j, p - 1]

A lane of the sums has 32 bits, so ``p`` elements of a row of data are broadcast as one int32, and the weight
of a column lies in groups of p.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from .facts import has_feature
from .streaming_store import IMPORT_LLVM

WIDE = "int16"
"""The type whose products are summed where a CPU sums none of bytes: every byte, signed or not, fits."""

WIDENED = ("int8", "uint8", WIDE)
"""The types that it holds."""


@dataclass(frozen=True)
class DotInstruction:
    """One such instruction.

    Parameters
    ----------
    mnemonic : str
        Its name in assembly.
    feature : str
        The CPU feature that brings it, by LLVM's name.
    lanes : int
        Lanes of the sums, each of 32 bits.
    products : int
        Products that are summed in each lane.
    data_dtype, weight_dtype : str
        The types of the operands.
    function : str
        LLVM's name of it, or that of the function in ``code``.
    adds : bool
        True where it adds to the sums itself; where it does not, another instruction does.
    sums_dtype : str
        The type of the sums.
    code : str
        LLVM IR of the function, one of int32, where TVM has no vectors of the operands' type; who calls it
        says so by `IMPORT_LLVM`.
    """

    mnemonic: str
    feature: str
    lanes: int
    products: int
    data_dtype: str
    weight_dtype: str
    function: str
    adds: bool
    sums_dtype: str = "int32"
    code: str = ""

    def __str__(self) -> str:
        """Name it with the bits of its vectors."""
        return f"{self.mnemonic}_{32 * self.lanes}"

    @property
    def elements(self) -> int:
        """Elements of an operand."""
        return self.lanes * self.products

    def added(self, sums: Any, data: Any, weight: Any) -> Any:
        """Return the expression of the sums after it.

        ``sums``: a vector of ``lanes`` of the sums' type; ``data``, ``weight``: vectors of `elements` of the
        operands' bits.
        """
        result = f"{self.sums_dtype}x{self.lanes}"
        if self.code:
            words = (T.reinterpret(each, dtype=f"int32x{self.lanes}") for each in (data, weight))
            return tirx.call_extern(result, self.function, sums, *words)
        function = T.llvm_lookup_intrinsic_id(self.function)
        if self.adds:
            return T.call_llvm_pure_intrin(function, sums, data, weight, dtype=result)
        return sums + T.call_llvm_pure_intrin(function, data, weight, dtype=result)


VPDPBUSD_512 = DotInstruction(
    "vpdpbusd", "avx512vnni", 16, 4, "uint8", "int8", "llvm.x86.avx512.vpdpbusd.512", adds=True
)

VDPBF16PS_512 = DotInstruction(
    *("vdpbf16ps", "avx512bf16", 16, 2, "bfloat16", "bfloat16", "tunesmith_vdpbf16ps_512"),
    adds=True,
    sums_dtype="float32",
    code="""
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
define <16 x float> @tunesmith_vdpbf16ps_512(<16 x float> %sums, <16 x i32> %a, <16 x i32> %b) alwaysinline {
  %data = bitcast <16 x i32> %a to <32 x bfloat>
  %weight = bitcast <16 x i32> %b to <32 x bfloat>
  %after = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(
      <16 x float> %sums, <32 x bfloat> %data, <32 x bfloat> %weight)
  ret <16 x float> %after
}
""",
)

DOT_INSTRUCTIONS = (
    VDPBF16PS_512,
    VPDPBUSD_512,
    DotInstruction(
        "vpdpbusd", "avx512vnni", 8, 4, "uint8", "int8", "llvm.x86.avx512.vpdpbusd.256", adds=True
    ),
    DotInstruction("vpdpbusd", "avxvnni", 8, 4, "uint8", "int8", "llvm.x86.avx512.vpdpbusd.256", adds=True),
    DotInstruction("usdot", "i8mm", 4, 4, "uint8", "int8", "llvm.aarch64.neon.usdot.v4i32.v16i8", adds=True),
    DotInstruction("sdot", "dotprod", 4, 4, "int8", "int8", "llvm.aarch64.neon.sdot.v4i32.v16i8", adds=True),
    DotInstruction(
        "udot", "dotprod", 4, 4, "uint8", "uint8", "llvm.aarch64.neon.udot.v4i32.v16i8", adds=True
    ),
    DotInstruction("vpmaddwd", "avx512bw", 16, 2, WIDE, WIDE, "llvm.x86.avx512.pmaddw.d.512", adds=False),
    DotInstruction("vpmaddwd", "avx2", 8, 2, WIDE, WIDE, "llvm.x86.avx2.pmadd.wd", adds=False),
    DotInstruction("pmaddwd", "sse2", 4, 2, WIDE, WIDE, "llvm.x86.sse2.pmadd.wd", adds=False),
)
"""Those known here, the one that sums most in front."""


def dot_instruction(
    target: Any, data_dtype: str, weight_dtype: str, depth: int | None = None
) -> DotInstruction | None:
    """Return the best instruction of a target's CPU for operands of these types, None where it has none.

    Operands that it takes only in `WIDE` are to be widened. ``depth``: how long sums are of which its
    operands are to be whole parts; None: any.
    """
    types = (data_dtype, weight_dtype)
    wide = (WIDE, WIDE) if all(each in WIDENED for each in types) else types
    fitting = (i for i in DOT_INSTRUCTIONS if (i.data_dtype, i.weight_dtype) in (types, wide))
    whole = (i for i in fitting if depth is None or depth % i.elements == 0)
    return next((i for i in whole if has_feature(target, i.feature)), None)


@cache
def performed_by(instruction: DotInstruction) -> Any:
    """Return the body of a tensor intrinsic: C[j] += the sum of A[q] * B[j, q], in one instruction."""
    lanes, products, elements = instruction.lanes, instruction.products, instruction.elements
    group, data = (f"{instruction.data_dtype}x{count}" for count in (products, elements))
    weight, sums = f"{instruction.weight_dtype}x{elements}", f"{instruction.sums_dtype}x{lanes}"
    attributes = {IMPORT_LLVM: instruction.code} if instruction.code else {}

    @T.prim_func(s_tir=True)
    def performed(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (products,), instruction.data_dtype, offset_factor=1)
        B = T.match_buffer(b, (lanes, products), instruction.weight_dtype, offset_factor=1)
        C = T.match_buffer(c, (lanes,), instruction.sums_dtype, offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:products], B[0:lanes, 0:products])
            T.writes(C[0:lanes])
            T.sblock_attr(attributes)
            C[T.ramp(T.int32(0), 1, lanes)] = instruction.added(
                C.vload([0], sums),
                T.reinterpret(
                    T.broadcast(T.reinterpret(A.vload([0], group), dtype="int32"), lanes), dtype=data
                ),
                B.vload([0, 0], dtype=weight),
            )

    return performed
