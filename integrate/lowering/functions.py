"""Questions about the functions of a prepared model; nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from ...kernels.operator import CONSTANT_ARGUMENTS, Workload
from .cost import count_flops

CALL_TIR = tvm.ir.Op.get("relax.call_tir")

SCHEDULED = "tirx.is_scheduled"
"""TVM's attribute of a PrimFunc whose loops stay as they are."""

REPLACED_BY = "tunesmith.replaced_by"
"""The attribute of a PrimFunc that was put in another's place: what it is, for people."""


def dataflow_bindings(main: Any) -> list[Any]:
    """Return the bindings of a function's dataflow blocks in order."""
    blocks = [b for b in main.body.blocks if isinstance(b, relax.DataflowBlock)]
    return [binding for block in blocks for binding in block.bindings]


def prim_funcs(mod: Any) -> list[tuple[str, Any]]:
    """Return the PrimFuncs of a module by name, in alphabetical order."""
    return [(var.name_hint, f) for var, f in mod.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]


def prim_func_calls(mod: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the name and the arguments of each call of a PrimFunc in ``main``, where that is Relax."""
    functions = {var.name_hint: func for var, func in mod.functions_items()}
    if not isinstance(functions.get("main"), relax.Function):
        return
    for binding in dataflow_bindings(mod["main"]):
        value = getattr(binding, "value", None)
        if isinstance(value, relax.Call) and value.op == CALL_TIR:
            yield value.args[0].name_hint, list(value.args[1].fields)


def is_kept(func: Any) -> bool:
    """Tell whether a PrimFunc has its schedule already and keeps it."""
    return bool((func.attrs or {}).get(SCHEDULED))


def is_workload(func: Any) -> bool:
    """Tell whether a PrimFunc has only tensors of static shape as arguments and writes only the last."""
    shapes = [getattr(param, "shape", None) for param in func.params]
    if not all(s is not None and all(isinstance(d, tvm.tirx.IntImm) for d in s) for s in shapes):
        return False
    stored = _stored_buffers(func)
    return [param in stored for param in func.params] == [False] * (len(shapes) - 1) + [True]


def _stored_buffers(func: Any) -> set[Any]:
    """Return the buffers that a function stores to."""
    found: set[Any] = set()
    tvm_ffi.structural_walk(func.body, (tvm.tirx.BufferStore, lambda store: found.add(store.buffer)))
    return found


def as_workload(name: str, func: Any) -> Workload:
    """Make a workload of a function of a model; its symbol becomes ``main``, as in every workload."""
    return Workload(
        name=name,
        shape={},
        dtype=str(func.params[-1].dtype),
        func=func.with_attr("global_symbol", "main").without_attr(REPLACED_BY),
        flops=count_flops(func),
        weights=tuple(int(i) for i in (func.attrs or {}).get(CONSTANT_ARGUMENTS, ())),
    )
