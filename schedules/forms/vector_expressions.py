"""Expressions of whole vectors, from those of single elements: for forms that say what registers hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.sym import Analyzer
from tvm.tirx import Add, Cast, Div, IntImm, Max, Min, Mul, Sub
from tvm_ffi import structural_map

from ...machine.vector_math import POLYNOMIAL_CALLS
from ..expressions import is_choice, loads_of, op_name
from ..restatement import whole

NO_VECTORS = "bfloat16"
"""A type without such expressions: TVM makes integers of it, but not of what a vector of it is cast to."""

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    Div: lambda a, b: a / b,
    Max: tirx.max,
    Min: tirx.min,
}

FUNCTIONS = POLYNOMIAL_CALLS | {"tirx.sqrt", "tirx.rsqrt"}
"""Functions of one argument that have vectors; what is computed of them can be stored, but not named."""


def decided(value: Any) -> Any:
    """Return an expression whose choices are made, where their conditions are known."""

    def chosen(call: Any) -> Any:
        if not is_choice(call):
            return call
        condition = Analyzer().simplify(call.args[0])
        return call.args[1 if int(condition) else 2] if isinstance(condition, IntImm) else call

    return structural_map(value, [(Call, chosen)])


def evaluated(value: Any, vector: Callable[[Any], Any]) -> Any:
    """Return an expression with vectors in the place of what it loads; what loads nothing is one number."""
    if isinstance(value, TensorLoad):
        return vector(value)
    if not loads_of(value):
        return Analyzer().simplify(value)
    if isinstance(value, Cast):
        inner = evaluated(value.value, vector)
        return inner.astype(f"{value.ty.dtype}x{int(inner.ty.dtype.lanes)}")
    if op_name(value) in FUNCTIONS:
        (argument,) = (evaluated(each, vector) for each in value.args)
        return tirx.call_intrin(argument.ty.dtype, op_name(value), argument)
    operation = _ARITHMETIC[type(value)]
    return operation(evaluated(value.a, vector), evaluated(value.b, vector))


def can_evaluate(value: Any, functions: Collection[str] = ()) -> bool:
    """Tell whether `evaluated` knows the operations of an expression; its choices count as elements.

    ``functions``: those of `FUNCTIONS` that may be called.
    """
    if not loads_of(value) or isinstance(value, TensorLoad) or is_choice(value):
        return True
    if isinstance(value, Cast):
        return can_evaluate(value.value, functions)
    if op_name(value) in functions:
        return all(can_evaluate(each, functions) for each in value.args)
    return type(value) in _ARITHMETIC and all(can_evaluate(each, functions) for each in (value.a, value.b))


def at_index(place: Any) -> Any:
    """Return a number as an index, an index as it is."""
    return whole(place) if isinstance(place, int) else place


def shuffled(vectors: Sequence[Any], indices: Sequence[int]) -> Any:
    """Return a vector of lanes of others, which are counted through all of them."""
    return tirx.Shuffle([*vectors], [tirx.const(index, "int32") for index in indices])
