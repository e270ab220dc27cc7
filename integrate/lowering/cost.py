"""How much one call of a PrimFunc computes, counted from its loop nest."""

from __future__ import annotations

from math import prod
from typing import Any

import tvm_ffi
from tvm.ir import Call, TensorLoad
from tvm.ir.prim import Add, Div, Max, Min, Mul, Sub
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore

_ARITHMETIC = (Add, Sub, Mul, Div, Max, Min)
# Calls that only choose, reinterpret or convert.
_CONDITION = "prim.if_then_else"
_FREE_CALLS = (_CONDITION, "prim.likely", "tirx.reinterpret")


def count_flops(func: Any) -> int:
    """Count the operations on elements of one call; a multiply-add is two, a call of exp one, a copy none.

    Index arithmetic, conditions and the initialization of sums are left out.
    """
    counter = _Counter()
    tvm_ffi.structural_visit(func.body, counter.callbacks)
    return counter.flops


class _Counter:
    """Walks a function body and keeps the number of iterations around the current statement."""

    def __init__(self) -> None:
        self.flops = 0
        self.iterations = 1
        self.callbacks = [
            (SBlock, self.block),
            (BufferStore, lambda store, visitor: visitor.visit(store.value)),
            (TensorLoad, lambda _load, _visitor: None),
            (_ARITHMETIC, self.arithmetic),
            (Call, self.call),
        ]

    def block(self, block: Any, visitor: Any) -> None:
        outside = self.iterations
        self.iterations *= prod(int(v.dom.extent) for v in block.iter_vars)
        visitor.visit(block.body)
        self.iterations = outside

    def arithmetic(self, expr: Any, visitor: Any) -> None:
        self.flops += self.iterations
        visitor.visit(expr.a)
        visitor.visit(expr.b)

    def call(self, call: Any, visitor: Any) -> None:
        name = getattr(call.op, "name", "")
        self.flops += 0 if name in _FREE_CALLS else self.iterations
        # The condition of an if_then_else is index arithmetic.
        for arg in call.args[1:] if name == _CONDITION else call.args:
            visitor.visit(arg)
