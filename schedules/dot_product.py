"""Sums of neighbouring products in one instruction: how a schedule puts a `DotInstruction` in place.

TVM finds in the loops what an intrinsic describes, and puts the instruction there. It knows those that were
registered in its process: an intrinsic is when it is used, or when a trace names it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tvm import s_tir
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from ..machine.dot_instructions import DOT_INSTRUCTIONS, WIDE, WIDENED, DotInstruction, performed_by
from .passes.bfloat16_bits import BITS_MARK
from .space import Constraint, Knob, KnobSpace
from .transposition import performing


def register_intrinsics(trace: str) -> None:
    """Register the intrinsics that a trace names."""
    for instruction in DOT_INSTRUCTIONS:
        for data_first in (True, False):
            if _dot_products_name(instruction, data_first) in trace:
                _register_dot_products(instruction, data_first)
        for types in _operands(instruction):
            if _parts_name(instruction, *types) in trace:
                _register_parts(instruction, *types)


def instruction_of(lanes: int, products: int, data_dtype: str, weight_dtype: str) -> DotInstruction:
    """Return the instruction of this shape for operands of these types, as they are or widened.

    A space offers no others.
    """
    types = (data_dtype, weight_dtype)
    of_shape = [i for i in DOT_INSTRUCTIONS if (i.lanes, i.products) == (lanes, products)]
    return next(i for i in of_shape if types in _operands(i))


def with_instruction(space: KnobSpace, instruction: DotInstruction) -> KnobSpace:
    """Return a space with one knob more, the products that an instruction sums, which has but one value."""
    lanes, products = instruction.lanes, instruction.products
    rule = Constraint(
        f"lanes is {lanes} and products is {products}: those of {instruction.mnemonic}",
        lambda k: (k["lanes"], k["products"]) == (lanes, products),
    )
    knob = Knob("products", (products,), "products that an instruction sums in each lane")
    return KnobSpace(
        (*space.knobs, knob), (rule, *space.constraints), {**space.default, "products": products}
    )


def gather_products(
    sch: s_tir.Schedule, block: Any, column: int, sums: int, vectors: int, instruction: DotInstruction
) -> Any:
    """Gather ``vectors`` instructions of one row into a block; return it.

    Its loops are those of the block before, columns and sums that much shorter. Conditions that later splits
    bring stay outside of it: `tensorize` wants none.
    """
    loops = sch.get_loops(block)
    loops[column], vector, lane = sch.split(loops[column], [None, vectors, instruction.lanes])
    loops[sums], product = sch.split(loops[sums], [None, instruction.products])
    sch.reorder(*loops, vector, lane, product)
    sch.blockize(lane)
    return sch.blockize(vector)


def use_dot_products(
    sch: s_tir.Schedule, start: Any, block: Any, instruction: DotInstruction, data_first: bool
) -> None:
    """Put instructions into a block of `gather_products`, whose ``start`` sets the sums to zero.

    ``data_first``: whether its products are written data times weight.
    """
    if instruction.code:
        sch.annotate(sch.get_loops(block)[0], BITS_MARK, 1)
    (zeros,), (products,) = sch.get_child_blocks(start), sch.get_child_blocks(block)
    # A panel of one vector has no loop over vectors.
    for vector in (*sch.get_loops(zeros), *sch.get_loops(products)):
        sch.unroll(vector)
    (zero,) = sch.get_child_blocks(zeros)
    sch.vectorize(sch.get_loops(zero)[-1])
    sch.tensorize(products, _register_dot_products(instruction, data_first))


def use_sums_of_parts(
    sch: s_tir.Schedule, lane: Any, instruction: DotInstruction, data_dtype: str, weight_dtype: str
) -> None:
    """Put an instruction in place of a loop over lanes, in each of which neighbouring products are summed.

    Operands of other types are widened to the instruction's.
    """
    sch.tensorize(lane, _register_parts(instruction, data_dtype, weight_dtype))


def _dot_products_name(instruction: DotInstruction, data_first: bool) -> str:
    first = "" if data_first else "weight_first_"
    name = f"tunesmith_dot_products_{first}{instruction.lanes}x{instruction.products}"
    types = instruction.data_dtype, instruction.weight_dtype
    # Traces of the time when there was but one instruction name no types.
    return name if types == ("uint8", "int8") else "_".join((name, *types))


def _operands(instruction: DotInstruction) -> list[tuple[str, str]]:
    """Return the types of operands that an instruction multiplies, as they are or widened."""
    types = (instruction.data_dtype, instruction.weight_dtype)
    return [(data, weight) for data in WIDENED for weight in WIDENED] if types == (WIDE, WIDE) else [types]


def _parts_name(instruction: DotInstruction, data_dtype: str, weight_dtype: str) -> str:
    shape = f"{instruction.lanes}x{instruction.products}"
    return f"tunesmith_parts_{shape}_{data_dtype}_{weight_dtype}"


@cache
def _register_dot_products(instruction: DotInstruction, data_first: bool) -> str:
    """Register what an instruction does; return its name."""
    name = _dot_products_name(instruction, data_first)
    described = _dot_products(instruction, data_first)
    TensorIntrin.register(name, described, performed_by(instruction), override=True)
    return name


@cache
def _register_parts(instruction: DotInstruction, data_dtype: str, weight_dtype: str) -> str:
    """Register how an instruction sums parts of a product of two rows; return its name."""
    name = _parts_name(instruction, data_dtype, weight_dtype)
    described = _parts(instruction, data_dtype, weight_dtype)
    TensorIntrin.register(name, described, _parts_in_registers(instruction, described), override=True)
    return name


def _dot_products(instruction: DotInstruction, data_first: bool) -> Any:
    """Describe what an instruction does as TVM finds it in the loops, operands as they are written."""
    lanes, products, sums = instruction.lanes, instruction.products, instruction.sums_dtype

    def product(data: Any, weight: Any) -> Any:
        return data * weight if data_first else weight * data

    @T.prim_func(s_tir=True)
    def described(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (products,), instruction.data_dtype, offset_factor=1)
        B = T.match_buffer(b, (lanes, products), instruction.weight_dtype, offset_factor=1)
        C = T.match_buffer(c, (lanes,), sums, offset_factor=1)
        with T.sblock("root"):
            if data_first:
                T.reads(C[0:lanes], A[0:products], B[0:lanes, 0:products])
            else:
                T.reads(C[0:lanes], B[0:lanes, 0:products], A[0:products])
            T.writes(C[0:lanes])
            for j, q in T.grid(lanes, products):
                with T.sblock("dot"):
                    vj, vq = T.axis.remap("SR", [j, q])
                    C[vj] = C[vj] + product(T.cast(A[vq], sums), T.cast(B[vj, vq], sums))

    return described


def _parts(instruction: DotInstruction, data_dtype: str, weight_dtype: str) -> Any:
    lanes, products, elements = instruction.lanes, instruction.products, instruction.elements
    sums = instruction.sums_dtype

    @T.prim_func(s_tir=True)
    def described(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (elements,), data_dtype, offset_factor=1)
        B = T.match_buffer(b, (elements,), weight_dtype, offset_factor=1)
        C = T.match_buffer(c, (lanes,), sums, offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:elements], B[0:elements])
            T.writes(C[0:lanes])
            for j, q in T.grid(lanes, products):
                with T.sblock("parts"):
                    vj, vq = T.axis.remap("SR", [j, q])
                    C[vj] = C[vj] + T.cast(A[vj * products + vq], sums) * T.cast(B[vj * products + vq], sums)

    return described


def _parts_in_registers(instruction: DotInstruction, described: Any) -> Any:
    (A, B, C), zero, elements = described.params, [T.int64(0)], instruction.elements
    loaded = [each.vload(zero, f"{each.dtype}x{elements}") for each in (A, B)]
    types = (instruction.data_dtype, instruction.weight_dtype)
    data, weight = (T.cast(each, f"{dtype}x{elements}") for each, dtype in zip(loaded, types, strict=True))
    sums = instruction.added(C.vload(zero, f"{instruction.sums_dtype}x{instruction.lanes}"), data, weight)
    return performing(described, [C.vstore(zero, sums)])
