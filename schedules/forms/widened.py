"""Sums of products whose operands are widened first.

    wide_data[...] = wide(the data), wide_weight[...] = wide(the weight)
    output[...] = sum of wide_data * wide_weight

Where a CPU sums no products of bytes it sums products of int16, which hold every byte. Numbers of 16 bits
that are summed in float32 are widened once so, instead of for each tile that reads them.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, te
from tvm.tirx import IterVar

from ...machine.dot_instructions import WIDE, WIDENED
from ...machine.errors import InputError
from ..analysis import block_of, schedule_to_read
from ..nests.contraction import Contraction, find_contraction
from ..nests.surroundings import WIDE_DATA, WIDE_WEIGHT
from ..restatement import replaced, with_stages
from ..transforms import inline_blocks

HALVES = ("float16", "bfloat16")
"""Types of 16 bits whose products are summed in float32."""


def restate(func: Any, bits: int) -> Any:
    """Widen the operands of a sum of products; what made them is computed where they are widened.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_contraction` finds sums.
    bits : int
        Of what they become: 16 of integers, 32 of floats.

    Raises
    ------
    InputError
        There are no such sums: a trace may name a form that is not one of its function.
    """
    nest = find_contraction(func)
    wide = None if nest is None else _wide(nest, bits)
    if nest is None or wide is None:
        raise InputError(f"the function has no one sum of products to widen to {bits} bits")
    sch = schedule_to_read(func)
    block = block_of(sch, nest.block)
    data, weight = nest.operands(block)
    tensors = _define(block, data, weight, wide)
    widened = s_tir.Schedule(with_stages(func, nest.block, (data.source, weight.source), tensors))
    inline_blocks(widened, nest.prologue)
    return widened.mod["main"]


def has_halves(nest: Contraction) -> bool:
    """Tell whether products of numbers of 16 bits are summed in float32."""
    return nest.dtype == "float32" and bool({nest.data_dtype, nest.weight_dtype} & {*HALVES})


def _wide(nest: Contraction, bits: int) -> str | None:
    """Return the type of so many bits that holds both operands, None where there is none."""
    if bits == 16 and {nest.data_dtype, nest.weight_dtype} <= {*WIDENED}:
        return WIDE
    return nest.dtype if bits == 32 and has_halves(nest) else None


def _define(block: Any, data: Any, weight: Any, wide: str) -> list[Any]:
    """Return the TE tensors data, weight and the sums."""

    def operand(load: Any, name: str) -> tuple[Any, Any]:
        shape = [int(extent) for extent in load.source.shape]
        given = te.placeholder(shape, str(load.source.dtype), load.source.name)
        return given, te.compute(shape, lambda *i: given[i].astype(wide), name=name)

    (x, wide_x), (w, wide_w) = operand(data, WIDE_DATA), operand(weight, WIDE_WEIGHT)
    summed = [v for v in block.iter_vars if v.iter_type == IterVar.CommReduce]
    axes = {v.var: te.reduce_axis((0, int(v.dom.extent)), name=v.var.name) for v in summed}
    dtype, output = str(block.writes[0].source.dtype), block.writes[0].source

    def at(*index: Any) -> Any:
        new = {**dict(zip(block.body.indices, index, strict=True)), **{v: a.var for v, a in axes.items()}}
        a, b = (
            tensor[tuple(replaced(i, new) for i in load.indices)].astype(dtype)
            for tensor, load in ((wide_x, data), (wide_w, weight))
        )
        return te.sum(a * b, axis=list(axes.values()))

    return [x, w, te.compute([int(e) for e in output.shape], at, name=str(block.name_hint))]
