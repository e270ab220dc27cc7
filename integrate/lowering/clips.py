"""Clips: TVM's ONNX importer writes them as loop nests, which nothing knows how to move or to fold."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import TensorLoad
from tvm.ir.prim import Max, Min

from .functions import CALL_TIR, is_kept
from .rewriting import Rewriter, Rule, extents, rewritten

_OPS = {Max: relax.op.maximum, Min: relax.op.minimum}


@tvm.transform.module_pass(opt_level=0, name="RaiseClips")
class RaiseClips:
    """Replace calls of loop nests that compare each element with one number by the operators they are."""

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """Rewrite ``main``."""

        def raised(_rewriter: Rewriter, call: Any) -> Any:
            return _as_operator(mod[call.args[0]], call)

        rules: dict[str, Rule] = {CALL_TIR.name: raised}
        return rewritten(rules, mod)


def _as_operator(func: Any, call: Any) -> Any:
    """Return ``maximum(x, bound)`` or ``minimum(x, bound)`` if that is what the function computes."""
    stores: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tvm.tirx.BufferStore, stores.append))
    value: Any = stores[0].value if len(stores) == 1 and not is_kept(func) else None
    if type(value) not in _OPS or not isinstance(value.a, TensorLoad):
        return None
    data, *others = call.args[1].fields
    same = list(value.a.indices) == list(stores[0].indices) and value.a.source.same_as(func.params[0])
    bound = _bound(func, value.b, data, others)
    if not same or bound is None or extents(data) != extents(call):
        return None
    return _OPS[type(value)](data, bound)


def _bound(func: Any, value: Any, data: Any, others: list[Any]) -> Any:
    """Return the number that is compared with: in the loop nest, or its second argument."""
    if isinstance(value, tvm.tirx.FloatImm) and not others:
        return relax.const(float(value), data.ty.dtype)
    inner = isinstance(value, TensorLoad) and len(value.indices) == 0
    return others[0] if inner and len(others) == 1 and value.source.same_as(func.params[1]) else None
