"""A scheduled function as one C function that compiles alone: for reading, and to be taken elsewhere.

TVM's own C target writes its calling convention around the kernel, includes TVM's headers, and turns vectors
into types that only OpenCL has. Here TVM lowers blocks and buffers, and what is left is printed as it stands:
loops with pragmas, flat arrays, plain pointers. Vectorized loops are left to the compiler, which is told that
their iterations are independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tvm
from tvm import ir, s_tir, tirx
from tvm_ffi import structural_walk

from ..machine.element import element_bytes
from ..machine.streaming_store import stored_by
from .c_expressions import ALIGNMENT, Expressions, no_words_for
from .c_scalars import c_type, identifier
from .expressions import loads_of, op_name, stores_of

# Larger arrays are allocated: every thread has a stack of its own, perhaps a small one.
_STACK_BYTES = 1 << 15
_INDENT = "    "


def c_source(schedule_or_func: Any, name: str) -> str:
    """Write a schedule, or a PrimFunc as it is, in C.

    Parameters
    ----------
    schedule_or_func : Schedule or PrimFunc
        With its function ``main``.
    name : str
        What to call the C function, which takes the arrays in the order of the PrimFunc. A character that C
        does not allow in a name becomes an underscore; a name that C uses itself gets one at its end.

    Raises
    ------
    InputError
        It holds something that this C has no words for: it is named.
    """
    mod = getattr(schedule_or_func, "mod", None)
    mod = tvm.IRModule({"main": schedule_or_func}) if mod is None else mod
    return _Writer().function(_lowered(mod)["main"], name)


def _lowered(mod: Any) -> Any:
    """Turn blocks into loops and buffers into flat arrays; loops keep their kinds."""
    passes = (
        *(s_tir.transform.CanonicalizeLoop(), s_tir.transform.LowerInitBlock()),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        *(s_tir.transform.ConvertBlocksToOpaque(), s_tir.transform.CompactBufferAllocation()),
        *(s_tir.transform.LowerMatchBuffer(), s_tir.transform.StmtSimplify()),
        *(s_tir.transform.LowerOpaqueBlock(), tirx.transform.FlattenBuffer()),
        *(tirx.transform.NarrowDataType(32), tirx.transform.StmtSimplify(), tirx.transform.RemoveNoOp()),
    )
    return tvm.ir.transform.Sequential(passes)(mod)


class _Writer:
    """Writes the statements of one function."""

    def __init__(self) -> None:
        self._c = Expressions()

    def function(self, func: Any, name: str) -> str:
        """Write the function with what it needs before it."""
        written = [store.buffer for store in stores_of(func.body)]
        aliases: list[Any] = []
        structural_walk(func.body, [(tirx.DeclBuffer, aliases.append)])
        written += [alias.data.args[0] for alias in aliases if alias.buffer in written]
        evaluated: list[Any] = []
        structural_walk(func.body, [(tirx.Evaluate, lambda node: evaluated.append(stored_by(node.value)))])
        written += [stored[0] for stored in evaluated if stored is not None]
        parameters = ", ".join(
            f"{'' if p in written else 'const '}{c_type(p.dtype)} *restrict {self._c.name(p)}"
            for p in func.params
        )
        body = [f"void {identifier(name)}({parameters}) {{", *self._inside(func.body), "}"]
        includes = [f"#include <{each}.h>" for each in ("math", "stdbool", "stddef", "stdint", "stdlib")]
        return "\n".join(
            (*includes, "", *self._c.helpers.values(), *([""] if self._c.helpers else ()), *body)
        )

    def _inside(self, node: Any) -> Iterator[str]:
        return (_INDENT + line if line[:1] != "#" else line for line in self._lines(node))

    def _lines(self, node: Any) -> Iterator[str]:
        """Write a statement."""
        method = getattr(self, f"_write_{type(node).__name__}", None)
        if method is None:
            raise no_words_for(node)
        yield from method(node)

    def _write_SeqStmt(self, node: Any) -> Iterator[str]:
        allocated: list[str] = []
        for each in node.seq:
            yield from self._lines(each)
            if isinstance(each, tirx.AllocBuffer) and not _on_stack(each.buffer):
                allocated.append(self._c.names[each.buffer])
        yield from (f"free({name});" for name in allocated)

    def _write_DeclBuffer(self, node: Any) -> Iterator[str]:
        if str(node.data.op.name) != "tirx.buffer_data":
            raise no_words_for(node.data)
        self._c.names[node.buffer] = self._c.names[node.data.args[0]]
        yield from ()

    def _write_AllocBuffer(self, node: Any) -> Iterator[str]:
        kind, name = c_type(node.buffer.dtype), self._c.name(node.buffer)
        size = math.prod(int(extent) for extent in node.buffer.shape)
        if _on_stack(node.buffer):
            yield f"_Alignas({ALIGNMENT}) {kind} {name}[{size}];"
        else:
            yield f"{kind} *restrict {name} = {self._c.helper('alloc')}({size} * sizeof({kind}));"

    def _write_For(self, node: Any) -> Iterator[str]:
        if node.thread_binding is not None:
            raise no_words_for(node, "a loop bound to a GPU's threads")
        taken, bound = set(self._c.taken), dict(self._c.bound)
        start, extent = self._c.write(node.min), self._c.write(node.min + node.extent)
        self._c.ranges.bind(node.loop_var, ir.Range.from_min_extent(node.min, node.extent))
        name, kind = self._c.name(node.loop_var), c_type(node.loop_var.ty.dtype)
        if node.kind == tirx.ForKind.PARALLEL:
            yield "#pragma omp parallel for"
        elif node.kind == tirx.ForKind.VECTORIZED:
            yield "#pragma GCC ivdep"
        elif node.kind == tirx.ForKind.UNROLLED:
            yield f"#pragma GCC unroll {min(int(node.extent), 65534)}"
        yield f"for ({kind} {name} = {start}; {name} < {extent}; ++{name}) {{"
        yield from self._inside(node.body)
        yield "}"
        self._c.taken, self._c.bound = taken, bound

    def _write_BufferStore(self, node: Any) -> Iterator[str]:
        element, value = self._c.element(node.buffer, node.indices), node.value
        if isinstance(value, tirx.Add) and self._c.write(value.a) == element:
            yield f"{element} += {self._c.write(value.b)};"
        else:
            yield f"{element} = {self._c.write(value)};"

    def _write_IfThenElse(self, node: Any) -> Iterator[str]:
        yield f"if ({self._c.write(node.condition)}) {{"
        yield from self._inside(node.then_case)
        if node.else_case is not None:
            yield "} else {"
            yield from self._inside(node.else_case)
        yield "}"

    def _write_While(self, node: Any) -> Iterator[str]:
        yield f"while ({self._c.write(node.condition)}) {{"
        yield from self._inside(node.body)
        yield "}"

    def _write_Bind(self, node: Any) -> Iterator[str]:
        value = self._c.write(node.value)
        name = self._c.name(node.var)
        yield f"{self._c.type(node.value.ty.dtype)} {name} = {value};"
        # What is loaded may be another value later.
        if not loads_of(node.value) and int(node.value.ty.dtype.lanes) > 1:
            self._c.bound[value] = name

    def _write_AttrStmt(self, node: Any) -> Iterator[str]:
        yield from self._lines(node.body)

    def _write_Evaluate(self, node: Any) -> Iterator[str]:
        stored = stored_by(node.value)
        if stored is not None:
            # Standard C has no store past the caches.
            buffer, offset, vector = stored
            kind, value = self._c.type(vector.ty.dtype), self._c.write(vector)
            yield f"*({kind} *)&{self._c.names[buffer]}[{self._c.write(offset)}] = {value};"
        elif op_name(node.value) == "tirx.prefetch":
            (element,) = node.value.args[0].args
            yield f"__builtin_prefetch(&{self._c.write(element)});"
        elif not isinstance(node.value, tirx.IntImm):
            raise no_words_for(node.value)


def _on_stack(buffer: Any) -> bool:
    """Tell whether an array is small enough for the stack."""
    size = math.prod(int(extent) for extent in buffer.shape)
    return size * element_bytes(buffer.dtype) <= _STACK_BYTES
