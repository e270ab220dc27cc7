"""Putting other stages in the place of a block: how a function takes the form of another algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir, te, tirx
from tvm_ffi import structural_map


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
    root = func.body.block
    nests = _nests(root.body)
    output = next(b.writes[0].source for b in map(_held, nests) if b is not None and b.name_hint == block)
    form = te.create_prim_func(list(tensors), index_dtype_override="int64")
    given = dict(zip(form.params, (*operands, output), strict=True))
    inner = structural_map(form.body, (tirx.Var, lambda v: given.get(v, v))).block
    body: list[Any] = []
    for nest in nests:
        held = _held(nest)
        body.extend(_nests(inner.body) if held is not None and held.name_hint == block else [nest])
    buffers = [*root.alloc_buffers, *inner.alloc_buffers]
    whole = s_tir.SBlock([], [], [], root.name_hint, tirx.SeqStmt(body), alloc_buffers=buffers)
    return tirx.PrimFunc(func.params, s_tir.SBlockRealize([], True, whole), func.ret_type, func.attrs)


def _nests(body: Any) -> list[Any]:
    return list(body) if isinstance(body, tirx.SeqStmt) else [body]


def _held(nest: Any) -> Any | None:
    """Return the block in a loop nest."""
    while isinstance(nest, tirx.For):
        nest = nest.body
    return nest.block if isinstance(nest, s_tir.SBlockRealize) else None
