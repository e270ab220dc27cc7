"""Putting other stages in the place of a block: how a function takes the form of another algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tvm
from tvm import s_tir, te, tirx
from tvm.ir import Range, TensorLoad
from tvm.tirx import IndexMap, IterVar
from tvm_ffi import structural_map

from .analysis import block_names

STEP = "step_"
"""How the names of blocks begin that are steps of their own, before or after what a schedule looks for."""


def is_step(name: str) -> bool:
    """Tell whether a block is a step of its own: a form has made it, and its rule schedules it."""
    return name.startswith(STEP)


def steps_of(sch: s_tir.Schedule) -> list[str]:
    """Return the names of the blocks that are steps of their own."""
    return [name for name in block_names(sch) if is_step(name)]


def with_stages(func: Any, block: str, operands: Sequence[Any], tensors: Sequence[Any]) -> Any:
    """Return a function in which TE stages compute what one of its blocks computed.

    Parameters
    ----------
    func : PrimFunc
        An unscheduled one.
    block : str
        The block's name.
    operands : sequence of Buffer
        What the stages read.
    tensors : sequence of te.Tensor
        A placeholder for each operand, then the stage that computes the block's output.
    """
    outer = nests(func)
    blocks = [b for b in map(held_block, outer) if b is not None]
    output = next(b.writes[0].source for b in blocks if b.name_hint == block)
    inner, buffers = stage_nests([*operands, output], tensors)
    body: list[Any] = []
    for nest in outer:
        held = held_block(nest)
        body.extend(inner if held is not None and held.name_hint == block else [nest])
    return with_nests(func, body, buffers)


def of_stages(func: Any, given: Sequence[Any], tensors: Sequence[Any]) -> Any:
    """Return a function of the same parameters that consists of TE stages: see `stage_nests`."""
    return with_nests(without_buffers(func), *stage_nests(given, tensors))


def stage_nests(given: Sequence[Any], tensors: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the loop nests of TE stages, and the buffers between them.

    ``given``: the buffers of ``tensors``, which are placeholders and then what is computed of them.
    """
    form = te.create_prim_func(list(tensors), index_dtype_override="int64")
    buffers = dict(zip(form.params, given, strict=True))
    inner = structural_map(form.body, (tirx.Var, lambda v: buffers.get(v, v))).block
    return statements(inner.body), list(inner.alloc_buffers)


def placeholders(buffers: Iterable[Any]) -> list[Any]:
    """Return a TE tensor for each of some buffers, to define stages by."""
    return [te.placeholder(buffer.shape, buffer.dtype, buffer.name) for buffer in buffers]


def with_block_order(func: Any, block: str, order: Callable[..., Any], *reads: str) -> Any:
    """Return a function in which the loops of a block go over other axes, in which they are one for one.

    ``reads``: the blocks whose output it reads at these axes.
    """
    schedule = s_tir.Schedule(func)
    node = schedule.get_sblock(block)
    rank = len(schedule.get_loops(node))
    schedule.transform_block_layout(node, IndexMap.from_func(order, ndim=rank, index_dtype="int64"))
    for name in reads:
        simplify_reads(schedule, name)
    return schedule.mod["main"]


def simplify_reads(sch: s_tir.Schedule, block: str) -> None:
    """Simplify where a block's output is read: ``(g * 16 + o) % 16`` becomes ``o``.

    Giving the output a layout that changes nothing does it.
    """
    node = sch.get_sblock(block)
    rank = len(sch.get(node).writes[0].region)
    as_it_is = IndexMap.from_func(lambda *index: index, ndim=rank, index_dtype="int64")
    sch.transform_layout(node, ("write", 0), as_it_is)


def replaced(expression: Any, new: Mapping[Any, Any]) -> Any:
    """Return an expression with some of its variables and loads replaced."""
    return structural_map(
        expression,
        [(tirx.Var, lambda v: new.get(v, v)), (TensorLoad, lambda load: new.get(load, load))],
    )


def summed_term(block: Any) -> Any:
    """Return what a block of ``total = total + term`` adds, in the types in which it is computed."""
    value, total = block.body.value, block.body.buffer
    is_total = isinstance(value.a, TensorLoad) and value.a.source.same_as(total)
    return value.b if is_total else value.a


def nests(func: Any) -> list[Any]:
    """Return the loop nests of an unscheduled function, in program order."""
    return statements(func.body.block.body)


def with_nests(func: Any, body: Sequence[Any], buffers: Sequence[Any] = ()) -> Any:
    """Return a function of these loop nests, with more buffers between them."""
    root = func.body.block
    statement = in_order(body)
    kept = [*root.alloc_buffers, *buffers]
    block = s_tir.SBlock([], [], [], root.name_hint, statement, alloc_buffers=kept)
    return tirx.PrimFunc(func.params, s_tir.SBlockRealize([], True, block), func.ret_type, func.attrs)


def without_buffers(func: Any) -> Any:
    """Return a function without the buffers between its blocks, which are others now."""
    root = func.body.block
    bare = s_tir.SBlock([], [], [], root.name_hint, root.body)
    return func.with_body(s_tir.SBlockRealize([], True, bare))


def with_functions(mod: Any, changed: Mapping[Any, Any]) -> Any:
    """Return a module in which some functions are others; the module itself where there are none.

    ``changed``: the new functions, by their global variables.
    """
    if not changed:
        return mod
    result = tvm.IRModule(dict(mod.functions), attrs=mod.attrs, global_infos=mod.global_infos)
    result.update(tvm.IRModule(dict(changed)))
    return result


def with_one_block(
    func: Any,
    name: str,
    counts: Sequence[int],
    touched: Sequence[Any],
    body: Callable[[list[Any]], tuple[Sequence[Any], Mapping[str, Any]]],
) -> Any:
    """Return a function that consists of one block of statements: see `block_nest`."""
    # What was computed in between is not any more.
    return with_nests(without_buffers(func), [block_nest(name, counts, touched, body)])


def block_nest(
    name: str,
    counts: Sequence[int],
    touched: Sequence[Any],
    body: Callable[[list[Any]], tuple[Sequence[Any], Mapping[str, Any]]],
) -> Any:
    """Return a block of statements inside a loop for each of some counts.

    Parameters
    ----------
    name : str
        The block's name.
    counts : sequence of int
        Iterations of the loops.
    touched : sequence of Buffer
        What the block reads, and last what it writes.
    body : callable
        From where the loops are to the block's statements and its annotations.
    """
    loops, inside = ([tirx.Var(f"{prefix}{n}", "int64") for n in range(len(counts))] for prefix in "iv")
    extents = [Range(whole(0), whole(count)) for count in counts]
    axes = [IterVar(r, v, IterVar.DataPar) for r, v in zip(extents, inside, strict=True)]
    *reads, write = (
        tirx.BufferRegion(buffer, [Range(whole(0), extent) for extent in buffer.shape]) for buffer in touched
    )
    statements, notes = body(inside)
    block = s_tir.SBlock(axes, reads, [write], name, in_order(statements), annotations=notes)
    nest: Any = s_tir.SBlockRealize(loops, tirx.const(True, "bool"), block)
    for loop, count in reversed(list(zip(loops, counts, strict=True))):
        nest = tirx.For(loop, whole(0), whole(count), tirx.ForKind.SERIAL, nest)
    return nest


def vector_start(number: Any, extent: int, lanes: int) -> Any:
    """Return where a vector along an axis begins; the last one reaches back where they do not divide it."""
    start = number * lanes
    return tirx.min(start, whole(extent - lanes)) if extent % lanes else start


def whole(value: int) -> Any:
    """Return a number as an index."""
    return tirx.IntImm("int64", value)


def without_mark(loop: Any, mark: str, *, extent: Any = None, body: Any = None) -> Any:
    """Return a loop without one of its annotations, perhaps of another length or with another body."""
    others = {key: value for key, value in loop.annotations.items() if key != mark}
    extent, body = loop.extent if extent is None else extent, loop.body if body is None else body
    return tirx.For(loop.loop_var, loop.min, extent, loop.kind, body, annotations=others)


def with_marked(func: Any, mark: str, rewritten: Callable[[Any], Any | None]) -> Any:
    """Return a function with other statements for its marked loops, or these unmarked if there are none."""

    def changed(loop: Any) -> Any:
        return (rewritten(loop) or without_mark(loop, mark)) if mark in loop.annotations else loop

    return func.with_body(structural_map(func.body, [(tirx.For, changed)]))


def with_longer_axis(nest: Any, axis: Any, length: int, body: Any, others: Sequence[Any] = ()) -> Any:
    """Return a loop nest whose block has another body, and more iterations along one of its axes.

    Parameters
    ----------
    nest : For
        Loops around one block.
    axis : IterVar
        The block's axis; one loop is over it.
    length : int
        Iterations from now on.
    body : Stmt
        What the block does.
    others : sequence of IterVar
        Axes that it has no more; the body does not use them.
    """
    loops: list[Any] = []
    while isinstance(nest, tirx.For):
        loops.append(nest)
        nest = nest.body
    block, extent = nest.block, tirx.IntImm(axis.dom.extent.ty.dtype, length)
    longer = IterVar(Range.from_min_extent(axis.dom.min, extent), axis.var, axis.iter_type)
    kept = [
        (v, at)
        for v, at in zip(block.iter_vars, nest.iter_values, strict=True)
        if not any(v.same_as(each) for each in others)
    ]
    axes = [longer if v.same_as(axis) else v for v, _ in kept]
    first = {v.var: whole(0) for v in others}
    reads = [replaced(region, first) for region in block.reads]
    changed = s_tir.SBlock(axes, reads, block.writes, block.name_hint, body, block.init)
    values = [at for _, at in kept]
    along = next(at for v, at in kept if v.same_as(axis))
    result: Any = s_tir.SBlockRealize(values, nest.predicate, changed)
    for loop in reversed(loops):
        if not any(loop.loop_var.same_as(at) for at in values):
            continue
        iterations = extent if loop.loop_var.same_as(along) else loop.extent
        result = tirx.For(loop.loop_var, loop.min, iterations, loop.kind, result)
    return result


def statements(body: Any) -> list[Any]:
    """Return the statements of a body, which may be a single one."""
    return list(body) if isinstance(body, tirx.SeqStmt) else [body]


def in_order(body: Sequence[Any]) -> Any:
    """Return statements, one or more, as one."""
    return tirx.SeqStmt(list(body)) if len(body) > 1 else body[0]


def serial_loop(variable: Any, extent: Any, body: Any) -> Any:
    """Return a loop from 0 on."""
    return tirx.For(variable, whole(0), extent, tirx.ForKind.SERIAL, body)


def with_own_variables(func: Any) -> Any:
    """Return a function in which statements that it has twice have loops and buffers of their own."""
    return tirx.transform.ConvertSSA()(tvm.IRModule({"main": func}))["main"]


def held_block(nest: Any) -> Any:
    """Return the block in a loop nest; None where there is none."""
    while isinstance(nest, tirx.For):
        nest = nest.body
    return nest.block if isinstance(nest, s_tir.SBlockRealize) else None


def held_blocks(func: Any) -> dict[str, Any]:
    """Return the blocks in an unscheduled function's loop nests, by their names."""
    held = [held_block(nest) for nest in nests(func)]
    return {str(block.name_hint): block for block in held if block is not None}
