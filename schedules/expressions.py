"""What schedules, forms and passes ask about TVM's expressions. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Call, Range, TensorLoad
from tvm.sym import Analyzer
from tvm_ffi import structural_map, structural_walk

from ..machine.element import element_bytes

CHOICE = "prim.if_then_else"


def conjunction(condition: Any) -> Iterator[Any]:
    """Yield the conditions that all hold where one does."""
    if isinstance(condition, tirx.And):
        yield from conjunction(condition.a)
        yield from conjunction(condition.b)
    else:
        yield condition


def is_zero(number: Any) -> bool:
    """Tell whether an expression is the constant 0, of any type."""
    return isinstance(number, (tirx.IntImm, tirx.FloatImm)) and number.value == 0


def is_one(number: Any) -> bool:
    """Tell whether an expression is the constant 1."""
    return isinstance(number, tirx.IntImm) and int(number) == 1


def with_zero(node: Any, variable: Any) -> Any:
    """Return an expression or statement as it is where a variable is 0."""
    zero = tirx.IntImm(str(variable.ty.dtype), 0)
    return structural_map(node, (tirx.Var, lambda v: zero if v.same_as(variable) else v))


def ranges_of(loops: Iterable[Any]) -> Analyzer:
    """Return an analyzer that knows where the variables of loops begin and end."""
    analyzer = Analyzer()
    for loop in loops:
        analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
    return analyzer


def op_name(node: Any) -> str:
    """Return the name of what an expression calls, or nothing."""
    return str(getattr(getattr(node, "op", None), "name", ""))


def called(body: Any) -> set[str]:
    """Return the names of what a statement or expression calls, as in ``tirx.exp``."""
    names: set[str] = set()
    structural_walk(body, [(Call, lambda call: names.add(op_name(call)))])
    return names


def is_choice(value: Any) -> bool:
    """Tell whether an expression is one of two by a condition, and computes only that."""
    return op_name(value) == CHOICE


def chooses(body: Any) -> bool:
    """Tell whether a statement or expression chooses between values by a condition."""
    return CHOICE in called(body)


def loads_of(body: Any) -> list[Any]:
    """Return every load in a statement or expression."""
    found: list[Any] = []
    structural_walk(body, [(TensorLoad, found.append)])
    return found


def stores_of(body: Any) -> list[Any]:
    """Return every store in a statement."""
    found: list[Any] = []
    structural_walk(body, [(tirx.BufferStore, found.append)])
    return found


def index_variables(indices: Any) -> set[Any]:
    """Return the block variables that indices use."""
    found: set[Any] = set()
    for index in indices:
        structural_walk(index, [(tirx.Var, found.add)])
    return found


def are_just(indices: Any, variables: list[Any]) -> bool:
    """Tell whether indices are just these variables: ``==`` of TVM's expressions is one as well."""
    return len(indices) == len(variables) and all(
        index.same_as(variable) for index, variable in zip(indices, variables, strict=True)
    )


def buffer_bytes(buffer: Any) -> int:
    """Return how many bytes a buffer has, of constant extents."""
    return prod(int(extent) for extent in buffer.shape) * element_bytes(buffer.dtype)


def step_along(index: Any, axis: Any) -> int:
    """Return by how much an index grows with an axis' variable; 0 where that is no constant."""
    further = structural_map(index, [(tirx.Var, lambda v: v + 1 if v.same_as(axis) else v)])
    grown = Analyzer().simplify(further - index)
    return int(grown) if isinstance(grown, tirx.IntImm) else 0


def is_along(indices: Sequence[Any], axis: Any) -> bool:
    """Tell whether elements lie side by side along an axis."""
    return step_along(indices[-1], axis) == 1 and axis not in index_variables(indices[:-1])
