"""What a schedule asks about a computation before it changes it. Nothing here changes anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir
from tvm.ir import Call, TensorLoad
from tvm.tirx import Add, Cast, IterVar, Mul, Var
from tvm_ffi import structural_walk

_CONDITION = "prim.if_then_else"


@dataclass(frozen=True)
class Contraction:
    """A sum of products ``out[rows, column] += data[rows, reductions] * weight[column, reductions]``.

    Matrix multiplication is the plain case; a convolution is one whose data indices add a row axis and a
    reduction axis. Loop positions count the loops of the block from the outside.

    Parameters
    ----------
    block : str
        The name of the reduction block.
    data, weight : int
        Which of the block's reads is which operand.
    rows : tuple of int
        Loops over the axes of the output that data has and weight has not, outermost first.
        The last of them is the one that a register tile spans.
    column : int
        The loop over the axis of the output that weight has and data has not.
    reductions : tuple of int
        Loops that are summed over, in the order in which data is read best: its windows first, the axis
        that is contiguous (or is made so) last.
    weight_axes : tuple of int
        The loop that indexes each dimension of the weight.
    data_channel : int
        The dimension of data that the innermost reduction indexes.
    data_rank : int
        How many dimensions data has.
    output_column : int
        The dimension of the output that the column axis indexes.
    output_rank : int
        How many dimensions the output has.
    extents : tuple of int
        Iterations of every loop.
    dtype : str
        The type that is summed in.
    plain : bool
        True where every index of both operands is one loop variable, so that rows can be padded.
    prologue : tuple of str
        Blocks that make the operands, in order.
    staged : str or None
        The one of them that must stay a copy because it pads the data.
    epilogue : tuple of str
        Blocks that work on the output element by element, in order.
    constant_weight : bool
        True where the caller promises that the weight does not change between calls.
    """

    block: str
    data: int
    weight: int
    rows: tuple[int, ...]
    column: int
    reductions: tuple[int, ...]
    weight_axes: tuple[int, ...]
    data_channel: int
    data_rank: int
    output_column: int
    output_rank: int
    extents: tuple[int, ...]
    dtype: str
    plain: bool
    prologue: tuple[str, ...]
    staged: str | None
    epilogue: tuple[str, ...]
    constant_weight: bool

    @property
    def row_extent(self) -> int:
        """Iterations of the row axis that a register tile spans."""
        return self.extents[self.rows[-1]]

    @property
    def outer_rows(self) -> int:
        """Iterations of all other row axes together."""
        total = 1
        for position in self.rows[:-1]:
            total *= self.extents[position]
        return total

    @property
    def columns(self) -> int:
        """Iterations of the column axis."""
        return self.extents[self.column]

    @property
    def depth(self) -> int:
        """Products summed for one output."""
        total = 1
        for position in self.reductions:
            total *= self.extents[position]
        return total


def block_names(sch: s_tir.Schedule) -> list[str]:
    """Return the names of all blocks under the root, in program order."""
    root = sch.get_sblock("root")
    return [str(sch.get(b).name_hint) for b in sch.get_child_blocks(root)]


def is_reduction(sch: s_tir.Schedule, block: str) -> bool:
    """Tell whether a block sums over any of its axes."""
    return any(v.iter_type == IterVar.CommReduce for v in sch.get(sch.get_sblock(block)).iter_vars)


def has_condition(sch: s_tir.Schedule, block: str) -> bool:
    """Tell whether a block chooses between values by position, as padding does."""
    calls: list[str] = []
    body = sch.get(sch.get_sblock(block)).body
    structural_walk(body, [(Call, lambda call: calls.append(str(getattr(call.op, "name", ""))))])
    return _CONDITION in calls


def uses_calls(sch: s_tir.Schedule, block: str) -> bool:
    """Tell whether a block calls a function such as exp, which is dear to compute twice."""
    calls: list[str] = []
    body = sch.get(sch.get_sblock(block)).body
    structural_walk(body, [(Call, lambda call: calls.append(str(getattr(call.op, "name", ""))))])
    return any(name != _CONDITION for name in calls)


def output_blocks(sch: s_tir.Schedule) -> set[str]:
    """Return the names of the blocks that write the PrimFunc's outputs."""
    root = sch.get_sblock("root")
    return {str(sch.get(b).name_hint) for b in sch.get_output_blocks(root)}


def contiguous_reduction(sch: s_tir.Schedule, block: str) -> bool:
    """Tell whether some operand of a sum is contiguous along a summed axis only, as in a dot product."""
    node = sch.get(sch.get_sblock(block))
    summed = {v.var for v in node.iter_vars if v.iter_type == IterVar.CommReduce}
    lasts: list[set[Any]] = []
    structural_walk(node.body, [(TensorLoad, lambda load: lasts.append(_index_variables(load.indices[-1:])))])
    return any(last and last <= summed for last in lasts)


def is_elementwise_after(sch: s_tir.Schedule, first: str, last: str) -> bool:
    """Tell whether a block works element by element on another's output, in the same order of axes."""
    writer, reader = (sch.get(sch.get_sblock(b)) for b in (first, last))
    if is_reduction(sch, last) or not _follows(sch, first, last):
        return False
    order = [v.var for v in reader.iter_vars]
    loads: list[Any] = []
    structural_walk(reader.body, [(TensorLoad, loads.append)])
    mine = [load for load in loads if load.source.same_as(writer.writes[0].source)]
    return bool(mine) and all(
        len(load.indices) == len(order)
        and all(i.same_as(v) for i, v in zip(load.indices, order, strict=True))
        for load in mine
    )


def static_extents(sch: s_tir.Schedule, block: str) -> tuple[int, ...] | None:
    """Return the iterations of each loop of a block, or None where one is symbolic."""
    extents = [sch.get(loop).extent for loop in sch.get_loops(sch.get_sblock(block))]
    if not all(hasattr(e, "value") for e in extents):
        return None
    return tuple(int(e) for e in extents)


def find_contraction(func: Any) -> Contraction | None:
    """Find the one sum of products in an unscheduled PrimFunc.

    Returns
    -------
    Contraction or None
        None where there is none or more than one, where an axis belongs to both operands and the output
        (a batch or a group), or where the blocks around it are not element by element.
    """
    sch = s_tir.Schedule(func)
    names = block_names(sch)
    sums = [n for n in names if is_reduction(sch, n)]
    if len(sums) != 1 or len(set(names)) != len(names):
        return None
    block = sch.get(sch.get_sblock(sums[0]))
    extents = static_extents(sch, sums[0])
    operands = _product_operands(block)
    if operands is None or extents is None or len(extents) != len(block.iter_vars):
        return None
    roles = _roles(block, operands)
    if roles is None:
        return None
    data, weight, rows, column, reductions = roles
    position = {v.var: i for i, v in enumerate(block.iter_vars)}
    weight_axes = tuple(position[i] for i in operands[weight].indices)
    # A reduction that shares an index with a row (a window) goes outside, the contiguous one inside.
    alone = {position[i]: d for d, i in enumerate(operands[data].indices) if isinstance(i, Var)}
    reductions = tuple(sorted(reductions, key=lambda r: alone.get(r, -1)))
    if reductions[-1] not in alone:
        return None
    at = names.index(sums[0])
    prologue, epilogue = tuple(names[:at]), tuple(names[at + 1 :])
    padding = [n for n in prologue if has_condition(sch, n)]
    data_buffer = operands[data].source
    if len(padding) > 1 or (padding and _written(sch, padding[0]) != data_buffer.name):
        return None
    if not all(_follows(sch, sums[0], name) for name in epilogue[-1:]):
        return None
    return Contraction(
        block=sums[0],
        data=_read_index(block, operands[data]),
        weight=_read_index(block, operands[weight]),
        rows=rows,
        column=column,
        reductions=reductions,
        weight_axes=weight_axes,
        data_channel=alone[reductions[-1]],
        data_rank=len(operands[data].indices),
        output_column=[position.get(i) for i in block.body.indices].index(column),
        output_rank=len(block.body.indices),
        extents=extents,
        dtype=str(block.writes[0].source.ty.dtype),
        plain=all(isinstance(i, Var) for load in operands for i in load.indices),
        prologue=prologue,
        staged=padding[0] if padding else None,
        epilogue=epilogue,
        constant_weight=_is_layout_free(func, operands[weight].source),
    )


def _product_operands(block: Any) -> tuple[TensorLoad, TensorLoad] | None:
    """Return the two loads of ``out = out + a * b``, casts allowed, or None for another body."""
    value = getattr(block.body, "value", None)
    if not isinstance(value, Add):
        return None
    product = _uncast(value.b) if isinstance(_uncast(value.a), TensorLoad) else _uncast(value.a)
    if not isinstance(product, Mul):
        return None
    a, b = _uncast(product.a), _uncast(product.b)
    return (a, b) if isinstance(a, TensorLoad) and isinstance(b, TensorLoad) else None


def _uncast(value: Any) -> Any:
    while isinstance(value, Cast):
        value = value.value
    return value


def _index_variables(indices: Any) -> set[Any]:
    """Return the block variables that indices use."""
    found: set[Any] = set()
    for index in indices:
        structural_walk(index, [(Var, found.add)])
    return found


def _roles(
    block: Any, operands: tuple[TensorLoad, TensorLoad]
) -> tuple[int, int, tuple[int, ...], int, tuple[int, ...]] | None:
    """Sort the axes into rows, column and reductions; None where they do not fit."""
    used = [_index_variables(load.indices) for load in operands]
    spatial = [i for i, v in enumerate(block.iter_vars) if v.iter_type == IterVar.DataPar]
    reductions = tuple(i for i, v in enumerate(block.iter_vars) if v.iter_type == IterVar.CommReduce)
    own = [[i for i in spatial if block.iter_vars[i].var in used[o]] for o in (0, 1)]
    if set(own[0]) & set(own[1]) or sorted(own[0] + own[1]) != spatial:
        return None
    if not own[0] or not own[1]:
        return None
    # The weight has one axis of its own and is indexed plainly, so that it can be laid out in panels.
    for weight in sorted((1, 0), key=lambda o: spatial[-1] not in own[o]):
        plain = all(isinstance(i, Var) for i in operands[weight].indices)
        if len(own[weight]) == 1 and plain:
            return 1 - weight, weight, tuple(own[1 - weight]), own[weight][0], reductions
    return None


def _read_index(block: Any, load: TensorLoad) -> int:
    return next(i for i, region in enumerate(block.reads) if region.source.same_as(load.source))


def _written(sch: s_tir.Schedule, block: str) -> str:
    return str(sch.get(sch.get_sblock(block)).writes[0].source.name)


def _follows(sch: s_tir.Schedule, first: str, last: str) -> bool:
    """Tell whether the last block writes an output of the same shape as the first."""
    shapes = [[int(s) for s in sch.get(sch.get_sblock(b)).writes[0].source.ty.shape] for b in (first, last)]
    return shapes[0] == shapes[1]


def _is_layout_free(func: Any, buffer: Any) -> bool:
    """Tell whether TVM's attribute ``layout_free_buffers`` names this argument."""
    free = func.attrs.get("layout_free_buffers") if func.attrs else None
    if free is None:
        return False
    return any(func.params[int(i)].same_as(buffer) for i in free)
