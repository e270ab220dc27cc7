"""Integer products whose operands are widened first, so that an instruction can sum them.

    data[...] = int16(the data), weight[...] = int16(the weight)
    output[...] = sum of int32(data) * int32(weight)

Where a CPU sums no products of bytes it sums products of int16, which hold every byte.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, te
from tvm.tirx import IterVar

from ..machine.dot_instructions import WIDE, WIDENED
from ..machine.errors import InputError
from .contraction import find_contraction
from .restatement import replaced, with_stages
from .transforms import inline_blocks


def restate(func: Any, bits: int) -> Any:
    """Widen the operands of a sum of integer products; what made them is computed where they are widened.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_contraction` finds sums.
    bits : int
        Bits of the integers that they become.

    Raises
    ------
    InputError
        There are no such sums: a trace may name a form that is not one of its function.
    """
    nest, wide = find_contraction(func), f"int{bits}"
    if nest is None or wide != WIDE or not {nest.data_dtype, nest.weight_dtype} <= set(WIDENED):
        raise InputError(f"the function has no one sum of products of integers to widen to {bits} bits")
    sch = s_tir.Schedule(func)
    block = sch.get(sch.get_sblock(nest.block))
    data, weight = nest.operands(block)
    tensors = _define(block, data, weight, wide)
    widened = s_tir.Schedule(with_stages(func, nest.block, (data.source, weight.source), tensors))
    inline_blocks(widened, nest.prologue)
    return widened.mod["main"]


def _define(block: Any, data: Any, weight: Any, wide: str) -> list[Any]:
    """Return the TE tensors data, weight and the sums."""

    def operand(load: Any, name: str) -> tuple[Any, Any]:
        shape = [int(extent) for extent in load.source.shape]
        given = te.placeholder(shape, str(load.source.dtype), load.source.name)
        return given, te.compute(shape, lambda *i: given[i].astype(wide), name=name)

    (x, wide_x), (w, wide_w) = operand(data, "wide_data"), operand(weight, "wide_weight")
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
