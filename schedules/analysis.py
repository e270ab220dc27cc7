"""What a schedule asks about a computation before it changes it. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from inspect import unwrap
from math import prod
from typing import Any

from tvm import s_tir
from tvm.ir import Call, TensorLoad
from tvm.sym import Analyzer
from tvm.tirx import BufferStore, IntImm, IterVar, Var
from tvm_ffi import structural_map, structural_walk

from .expressions import CHOICE, are_just, called, chooses, index_variables, is_choice, loads_of

_MOST_STEPS = 8

# TVM compares the arguments of each call with their types, which takes ten times as long as these calls do.
_get, _get_sblock = (unwrap(method) for method in (s_tir.Schedule.get, s_tir.Schedule.get_sblock))


@lru_cache(maxsize=16)
def schedule_to_read(func: Any) -> s_tir.Schedule:
    """Return a schedule of a PrimFunc that nobody may change: rules look at the same one in turn.

    TVM takes 0.6 ms to make one; 36 rules take 5 to 10 to tell whether they apply.
    """
    return s_tir.Schedule(func)


def root_block(sch: s_tir.Schedule) -> Any | None:
    """Return the block around all others, whatever its name; None where the whole body is opaque code."""
    body = sch.mod["main"].body
    return _get_sblock(sch, str(body.block.name_hint)) if isinstance(body, s_tir.SBlockRealize) else None


def block_of(sch: s_tir.Schedule, name: str) -> Any:
    """Return the block of a name, as it is now."""
    return _get(sch, _get_sblock(sch, name))


def block_names(sch: s_tir.Schedule) -> list[str]:
    """Return the names of all blocks under the root, in program order."""
    root = root_block(sch)
    return [] if root is None else [str(_get(sch, b).name_hint) for b in sch.get_child_blocks(root)]


def is_reduction(sch: s_tir.Schedule, block: str) -> bool:
    """Tell whether a block sums over any of its axes."""
    return any(v.iter_type == IterVar.CommReduce for v in block_of(sch, block).iter_vars)


def one_reduction(sch: s_tir.Schedule) -> str | None:
    """Return the name of the only block that sums; None where there are others, or names are not unique."""
    names = block_names(sch)
    sums = [name for name in names if is_reduction(sch, name)]
    return sums[0] if len(sums) == 1 and len(set(names)) == len(names) else None


@dataclass(frozen=True)
class Reduction:
    """A block that reduces, keeps several axes, and writes them as they are.

    Parameters
    ----------
    block : SBlock
        What reduces.
    """

    block: Any

    @property
    def name(self) -> str:
        """The block's name."""
        return str(self.block.name_hint)

    @property
    def kept(self) -> list[Any]:
        """The axes of the output."""
        return [v for v in self.block.iter_vars if v.iter_type == IterVar.DataPar]

    @property
    def reduced(self) -> list[Any]:
        """The axes that are reduced."""
        return [v for v in self.block.iter_vars if v.iter_type == IterVar.CommReduce]

    @property
    def extents(self) -> list[int]:
        """How long the kept axes are."""
        return [int(v.dom.extent) for v in self.kept]


def plain_reduction(func: Any) -> Reduction | None:
    """Return the one reduction of a PrimFunc; None where it is something else, or an extent is symbolic."""
    sch = schedule_to_read(func)
    sums = one_reduction(sch)
    if sums is None or static_extents(sch, sums) is None:
        return None
    found = Reduction(block_of(sch, sums))
    kept, block = [v.var for v in found.kept], found.block
    plain = len(block.writes) == 1 and len(kept) > 1 and are_just(block.body.indices, kept)
    return found if plain else None


def plain_copy(func: Any) -> Any | None:
    """Return the one block that a PrimFunc consists of, if it stores loads in the order of its loops.

    None where it is something else, or an extent is symbolic.
    """
    sch = schedule_to_read(func)
    names = block_names(sch)
    if len(names) != 1 or set(names) != output_blocks(sch) or static_extents(sch, names[0]) is None:
        return None
    block = block_of(sch, names[0])
    body, variables = block.body, [v.var for v in block.iter_vars]
    kept = all(v.iter_type == IterVar.DataPar for v in block.iter_vars)
    if not kept or not isinstance(body, BufferStore) or not isinstance(body.value, TensorLoad):
        return None
    return block if are_just(body.indices, variables) else None


def gathered_buffers(body: Any) -> list[Any]:
    """Return the buffers that a statement reads where something else that it reads says."""
    return [load.source for load in loads_of(body) if any(loads_of(index) for index in load.indices)]


def has_condition(sch: s_tir.Schedule, block: str) -> bool:
    """Tell whether a block chooses between values by position, as padding does."""
    return chooses(block_of(sch, block).body)


def chooses_along(sch: s_tir.Schedule, block: str) -> set[int]:
    """Return the axes of a block whose position it chooses between values by, as concatenation does."""
    node, used = block_of(sch, block), set()

    def visit(call: Any) -> None:
        if is_choice(call):
            used.update(index_variables(call.args[:1]))

    structural_walk(node.body, [(Call, visit)])
    return {i for i, v in enumerate(node.iter_vars) if v.var in used}


def uses_calls(sch: s_tir.Schedule, block: str) -> bool:
    """Tell whether a block calls a function such as exp, which is dear to compute twice."""
    return bool(called(block_of(sch, block).body) - {CHOICE})


def output_blocks(sch: s_tir.Schedule) -> set[str]:
    """Return the names of the blocks that write the PrimFunc's outputs."""
    return {str(sch.get(b).name_hint) for b in sch.get_output_blocks(root_block(sch))}


def loops_by_kind(sch: s_tir.Schedule, block: Any, depth: int) -> tuple[list[Any], list[Any]]:
    """Return a block's loops inside its outermost ``depth`` loops: those it keeps, and those it reduces."""
    loops, node = sch.get_loops(block), sch.get(block)
    realizes: list[Any] = []
    structural_walk(sch.get(loops[-1]), [(s_tir.SBlockRealize, realizes.append)])
    values = next(r.iter_values for r in realizes if r.block.same_as(node))
    reduced: set[Any] = set()
    for axis, value in zip(node.iter_vars, values, strict=True):
        if axis.iter_type == IterVar.CommReduce:
            reduced |= index_variables([value])
    inner = loops[depth:]
    return (
        [loop for loop in inner if sch.get(loop).loop_var not in reduced],
        [loop for loop in inner if sch.get(loop).loop_var in reduced],
    )


def contiguous_reduction(sch: s_tir.Schedule, block: str) -> bool:
    """Tell whether some operand of a sum is contiguous along a summed axis only, as in a dot product."""
    node = block_of(sch, block)
    summed = {v.var for v in node.iter_vars if v.iter_type == IterVar.CommReduce}
    lasts: list[set[Any]] = []
    structural_walk(node.body, [(TensorLoad, lambda load: lasts.append(index_variables(load.indices[-1:])))])
    return any(last and last <= summed for last in lasts)


def is_elementwise_after(sch: s_tir.Schedule, first: str, last: str) -> bool:
    """Tell whether a block works element by element on another's output, in the same order of axes."""
    writer, reader = (block_of(sch, b) for b in (first, last))
    if is_reduction(sch, last) or not same_shape(sch, first, last):
        return False
    order = [v.var for v in reader.iter_vars]
    mine = [load for load in loads_of(reader.body) if load.source.same_as(writer.writes[0].source)]
    return bool(mine) and all(are_just(load.indices, order) for load in mine)


def iterations(sch: s_tir.Schedule, loops: Iterable[Any]) -> int:
    """Return how many iterations loops within each other have."""
    return prod(int(_get(sch, loop).extent) for loop in loops)


def static_extents(sch: s_tir.Schedule, block: str) -> tuple[int, ...] | None:
    """Return the iterations of each loop of a block, or None where one is symbolic."""
    extents = [_get(sch, loop).extent for loop in sch.get_loops(_get_sblock(sch, block))]
    if not all(hasattr(e, "value") for e in extents):
        return None
    return tuple(int(e) for e in extents)


def main_extents(func: Any) -> dict[str, int]:
    """Return the iterations of a function's largest block, whatever it computes, for comparing functions.

    ``column`` and ``row`` are its last two axes that are not summed, ``outer`` is all before them together,
    ``sums`` all that are summed: of a matrix multiplication the batch, m, n and k. None has fewer than 1.
    """
    sch = schedule_to_read(func)
    axes = [list(block_of(sch, name).iter_vars) for name in dict.fromkeys(block_names(sch))]
    largest = max(axes, key=lambda found: prod(int(v.dom.extent) for v in found), default=[])
    kept = [int(v.dom.extent) for v in largest if v.iter_type != IterVar.CommReduce]
    summed = [int(v.dom.extent) for v in largest if v.iter_type == IterVar.CommReduce]
    return {
        "outer": prod(kept[:-2]),
        "row": prod(kept[-2:-1]),
        "column": prod(kept[-1:]),
        "sums": prod(summed),
    }


def writes_in_order(sch: s_tir.Schedule, block: Any) -> bool:
    """Tell whether a block writes its output in the order of its loops, each element once."""
    node = sch.get(block)
    indices = getattr(node.body, "indices", None)
    return indices is not None and are_just(indices, [v.var for v in node.iter_vars])


def flat_axes(sch: s_tir.Schedule, block: str) -> int:
    """Count the last axes of an element-wise block that lie in memory like one axis, in all that it touches.

    Each operand has these axes last, whole and in the same order, or does not depend on them.
    """
    node = block_of(sch, block)
    if not hasattr(node.body, "indices"):
        return 1
    order, extents = [v.var for v in node.iter_vars], [int(v.dom.extent) for v in node.iter_vars]
    loads = [(load.source, list(load.indices)) for load in loads_of(node.body)]
    touched = [(node.body.buffer, list(node.body.indices)), *loads]

    def is_flat(buffer: Any, indices: list[Any], count: int) -> bool:
        last = set(order[-count:])
        if not index_variables(indices) & last:
            return True
        inner = [int(extent) for extent in buffer.shape[len(indices) - count + 1 :]]
        dense = inner == extents[len(order) - count + 1 :]
        first, *others = indices[-count:]
        moved = Analyzer().simplify(first - order[-count])
        in_order = are_just(others, order[len(order) - count + 1 :]) and isinstance(moved, IntImm)
        return dense and in_order and not index_variables(indices[:-count]) & last

    counts = range(len(order), 1, -1)
    return next((n for n in counts if all(is_flat(*each, n) for each in touched)), 1)


def steps_of_reading(sch: s_tir.Schedule, block: str) -> int:
    """Return how many neighbours on the last axis read the same or the next elements, as resizing does.

    So many further along, everything that depends on the axis is read one element on. 1 where it is so for
    each neighbour, for no number up to 8, or where a function is called: these are for vectors.
    """
    node = block_of(sch, block)
    last, analyzer = node.iter_vars[-1], Analyzer()
    indices = [index for load in loads_of(node.body) for index in load.indices]
    used = [index for index in indices if last.var in index_variables([index])]

    def moves_on(index: Any, steps: int) -> bool:
        further = structural_map(index, [(Var, lambda v: v + steps if v.same_as(last.var) else v)])
        return bool(analyzer.can_prove_equal(further, index + 1))

    extents = (1,) if uses_calls(sch, block) else static_extents(sch, block) or (1,)
    candidates = [n for n in range(1, _MOST_STEPS + 1) if extents[-1] % n == 0]
    return next((n for n in candidates if used and all(moves_on(index, n) for index in used)), 1)


def is_read_by_more(sch: s_tir.Schedule, name: str) -> bool:
    """Tell whether some reader computes more elements: the block's would be computed several times."""

    def iterations(block: Any) -> int:
        return prod(static_extents(sch, str(sch.get(block).name_hint)) or (0,))

    block = sch.get_sblock(name)
    return any(iterations(reader) > iterations(block) for reader in sch.get_consumers(block))


def loops_inside(sch: s_tir.Schedule, block: Any, outside: Any) -> list[Any]:
    """Return a block's loops inside one of them, from the outermost."""
    loops = sch.get_loops(block)
    at = next(i for i, loop in enumerate(loops) if sch.get(loop).same_as(sch.get(outside)))
    return list(loops[at + 1 :])


def keeps_shape_after(func: Any, block: str) -> bool:
    """Tell whether all blocks of a PrimFunc after one of them write outputs of the same shape as it."""
    sch = schedule_to_read(func)
    names = block_names(sch)
    return all(same_shape(sch, block, name) for name in names[names.index(block) + 1 :])


def same_shape(sch: s_tir.Schedule, first: str, last: str) -> bool:
    """Tell whether the last block writes an output of the same shape as the first."""
    shapes = [[int(s) for s in block_of(sch, b).writes[0].source.ty.shape] for b in (first, last)]
    return shapes[0] == shapes[1]


def written_buffer(sch: s_tir.Schedule, block: str) -> str:
    """Return the name of the buffer that a block writes."""
    return str(block_of(sch, block).writes[0].source.name)
