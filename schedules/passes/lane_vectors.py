"""What a vectorized loop does as operations on vectors, whose loads and stores have its conditions as masks.

A lane that takes no part reads and writes nothing. What TVM's vectors cannot say raises `NoVectors`: elements
that do not follow each other, and values that LLVM would store wrongly under a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import tvm
from tvm import sym, tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm_ffi import structural_map, structural_walk

from ...machine.element import element_bits
from ...machine.vector_math import POLYNOMIAL_CALLS
from ..expressions import called, conjunction, is_choice, is_one, loads_of, op_name, with_zero
from .lane_conditions import adds_up, depends
from .streaming import elements_before

_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)
_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
_LOGIC = (*_COMPARISONS, tirx.And, tirx.Or)
# Types whose numbers fill a register: of so many lanes at most.
_LANE_TYPES = {16: "int32", 32: "int16", 64: "int8"}
_OF_MORE_LANES = "int16"
_BFLOAT16 = "bfloat16"
# Narrower numbers are computed as these.
_LEAST_BITS = 32


class NoVectors(Exception):
    """Something that is no vector operation."""


class Lanes:
    """Turns what a vectorized loop does into operations on vectors."""

    def __init__(self, var: Any, lanes: int) -> None:
        self._var, self._lanes = var, lanes
        self._analyzer = sym.Analyzer()
        self._analyzer.bind(var, tvm.ir.Range(0, lanes))
        self._is_added = False
        self._before: list[Any] = []
        self._is_shared = False
        self._names: dict[Any, Any] = {}

    def statement(self, statement: Any, mask: Any) -> Any:
        """Return a statement on vectors; ``mask`` says which lanes take part, None for all."""
        if isinstance(statement, tirx.SeqStmt):
            return tirx.SeqStmt([self.statement(each, mask) for each in statement])
        if isinstance(statement, tirx.IfThenElse) and statement.else_case is None:
            uniform, varying = self._parts(statement.condition)
            body = self.statement(statement.then_case, self._both(mask, varying))
            return tirx.IfThenElse(_all(uniform), body, None) if uniform else body
        if isinstance(statement, tirx.BufferStore) and self._chooses_reads(statement.value):
            return self._choice_of_reads(statement, mask)
        if isinstance(statement, tirx.BufferStore):
            self._is_added, self._before = adds_up(statement), []
            stored = self._stored(statement, mask)
            return tirx.SeqStmt([*self._before, stored]) if self._before else stored
        if isinstance(statement, tirx.Bind):
            return self._named(statement, mask)
        raise NoVectors

    def _named(self, statement: Any, mask: Any) -> Any:
        """Return the statement that gives the vector of a value the name that the value has."""
        value = self._vector(statement.value, mask)
        name = self._names[statement.var] = tirx.Var(statement.var.name, value.ty.dtype)
        return tirx.Bind(name, value)

    def _stored(self, store: Any, mask: Any) -> Any:
        """Return the statement that stores the vector of a value."""
        value, at = self._vector(store.value, mask), self._place(store.buffer, store.indices)
        if not isinstance(at[-1], tirx.Ramp):
            raise NoVectors
        if mask is None:
            return tirx.BufferStore(store.buffer, value, at)
        if _is_narrowed(store.value):
            raise NoVectors
        return tirx.Evaluate(T.masked_store(store.buffer, value, *at, mask))

    def _chooses_reads(self, value: Any) -> bool:
        """Tell whether lanes have one of two values that each are read."""
        return is_choice(value) and self._varies(value.args[0]) and _reads(value.args[2])

    def _choice_of_reads(self, store: Any, mask: Any) -> Any:
        """Return the statements that store each of two values where it is chosen: nothing else is read."""
        condition, *values = store.value.args
        chosen = zip((condition, tirx.Not(condition)), values, strict=True)
        return tirx.SeqStmt(
            [
                self.statement(
                    tirx.IfThenElse(where, tirx.BufferStore(store.buffer, value, store.indices), None), mask
                )
                for where, value in chosen
            ]
        )

    def _vector(self, value: Any, mask: Any) -> Any:
        """Return the vector of an expression's values in all lanes."""
        if not self._varies(value):
            return self._shared(value, mask)
        if isinstance(value, tirx.Var) and value in self._names:
            return self._names[value]
        if isinstance(value, TensorLoad):
            return self._load(value, mask)
        integer = "int" in _dtype(value)
        if integer and not _reads(value):
            return self._numbers(value)
        if isinstance(value, _COMPARISONS) and "int" in _dtype(value.a) and not _reads(value):
            return self._compared(value)
        # A lane that takes no part may divide by zero, of which floats make nothing worse than infinity.
        if isinstance(value, (*_ARITHMETIC, *_LOGIC)) and not (integer and isinstance(value, tirx.Div)):
            return type(value)(self._vector(value.a, mask), self._vector(value.b, mask))
        if isinstance(value, tirx.Not):
            return tirx.Not(self._vector(value.a, mask))
        if isinstance(value, tirx.Cast):
            return self._cast(value, mask)
        if isinstance(value, tirx.Select):
            condition, *others = (
                self._vector(each, mask) for each in (value.condition, value.true_value, value.false_value)
            )
            return tirx.Select(condition, *others)
        if is_choice(value):
            return self._choice(value, mask)
        if isinstance(value, tvm.ir.Call) and _is_vectorizable(value):
            operands = [self._vector(each, mask) for each in value.args]
            return tirx.call_intrin(self._dtype(value), value.op, *operands)
        raise NoVectors

    def _choice(self, choice: Any, mask: Any) -> Any:
        """Return one value where a condition holds and another elsewhere; each is read only there."""
        if self._chooses_reads(choice):
            raise NoVectors
        condition, taken, other = choice.args
        uniform, varying = self._parts(condition)
        otherwise, masks = self._vector(other, mask), self._both(mask, varying)
        if uniform and self._is_added and loads_of(taken):
            # All lanes or none: a branch would be taken anew in each step of a sum.
            shared = tirx.Broadcast(_all(uniform), self._lanes)
            masks, uniform = shared if masks is None else tirx.And(masks, shared), []
        shared, self._is_shared = self._is_shared, self._is_shared or bool(uniform)
        value = self._vector(taken, masks)
        if masks is not None and not masks.same_as(mask):
            value = self._selected(masks, value, otherwise)
        self._is_shared = shared
        return tirx.if_then_else(_all(uniform), value, otherwise) if uniform else value

    def _selected(self, mask: Any, value: Any, otherwise: Any) -> Any:
        """Return one value in some lanes and another elsewhere.

        The first has a name: inside of a choice TVM takes its condition for true, and loads without a mask.
        A polynomial has names itself, which TVM would bind twice: it is computed before, into a vector. That
        is right unless a condition of all lanes says that nothing is read.
        """
        if _is_polynomial(value) and not self._is_shared:
            vector = tirx.decl_buffer((self._lanes,), _dtype(value).partition("x")[0], "there")
            lanes = [tirx.Ramp(tirx.IntImm("int64", 0), tirx.IntImm("int64", 1), self._lanes)]
            self._before += [tirx.AllocBuffer(vector), tirx.BufferStore(vector, value, lanes)]
            return tirx.Select(mask, tirx.BufferLoad(vector, lanes), otherwise)
        name = tirx.Var("there", value.ty.dtype)
        return tirx.Let(name, value, tirx.Select(mask, name, otherwise))

    def _load(self, load: Any, mask: Any) -> Any:
        at = self._place(load.source, load.indices)
        if not isinstance(at[-1], tirx.Ramp):
            return self._shared(tirx.BufferLoad(load.source, at), mask)
        if mask is None:
            return tirx.BufferLoad(load.source, at)
        if _dtype(load) == _BFLOAT16:
            raise NoVectors
        return self._masked(load, mask)

    def _masked(self, load: Any, mask: Any) -> Any:
        return T.masked_load(self._dtype(load), load.source, *self._place(load.source, load.indices), mask)

    def _cast(self, cast: Any, mask: Any) -> Any:
        """Return the vector of a value of another type.

        To TVM masked loads of bfloat16 are integers: as such they are put into the upper bits of a float32.
        """
        value = cast.value
        if _dtype(value) == _BFLOAT16 and is_choice(value):
            condition, *choices = value.args
            wide = (tirx.Cast(_dtype(cast), each) for each in choices)
            return self._choice(tirx.if_then_else(condition, *wide), mask)
        masked = mask is not None and isinstance(value, TensorLoad) and self._varies(value)
        if not masked or _dtype(value) != _BFLOAT16:
            return tirx.Cast(self._dtype(cast), self._vector(value, mask))
        low, high = (f"uint{bits}x{self._lanes}" for bits in (16, 32))
        bits = T.reinterpret(self._masked(value, mask), dtype=low).astype(high) << tirx.const(16, high)
        return T.reinterpret(bits, dtype=f"float32x{self._lanes}").astype(self._dtype(cast))

    def _shared(self, value: Any, mask: Any) -> Any:
        """Return a vector of a value that is the same in all lanes.

        It is read whatever the mask says: nothing that the mask is about may say where.
        """
        if mask is not None and _reads(value) and depends(value, tirx.analysis.undefined_vars(mask, [])):
            raise NoVectors
        return tirx.Broadcast(value, self._lanes)

    def _place(self, buffer: Any, indices: Sequence[Any]) -> list[Any]:
        """Return the indices of consecutive elements, or of one that all lanes share.

        Elements of several rows may follow each other: the last index of a vector reaches beyond its row.
        """
        if any(map(self._varies, indices[:-1])):
            return self._place_in_rows(buffer, indices)
        *outer, last = (self._steps(index) for index in indices)
        apart = last[1] and buffer.strides and not is_one(buffer.strides[-1])
        if any(step for _, step in outer) or apart:
            raise NoVectors
        ramp = tirx.Ramp(last[0], tirx.IntImm(_dtype(last[0]), 1), self._lanes)
        return [*(start for start, _ in outer), ramp if last[1] else last[0]]

    def _place_in_rows(self, buffer: Any, indices: Sequence[Any]) -> list[Any]:
        """Return the indices of consecutive elements that may lie in several rows of a buffer."""
        if buffer.strides or not self._steps(elements_before(buffer, indices))[1]:
            raise NoVectors
        *outer, last = (self._analyzer.simplify(with_zero(index, self._var)) for index in indices)
        return [*outer, tirx.Ramp(last, tirx.IntImm(_dtype(last), 1), self._lanes)]

    def _steps(self, index: Any) -> tuple[Any, int]:
        """Return an index in the first lane, and by how much it grows from each lane to the next."""
        if not self._varies(index):
            return index, 0
        lane, index = self._in_own_type(index)
        first = self._analyzer.simplify(with_zero(index, lane))
        for step in (0, 1):
            if self._analyzer.can_prove_equal(index, first + lane * step):
                return first, step
        raise NoVectors

    def _in_own_type(self, index: Any) -> tuple[Any, Any]:
        """Return the lane in an index's type, and the index in terms of it: TVM computes with one type."""
        dtype = _dtype(index)
        if dtype == _dtype(self._var):
            return self._var, index
        lane = tirx.Var("lane", dtype)
        self._analyzer.bind(lane, tvm.ir.Range(tirx.IntImm(dtype, 0), tirx.IntImm(dtype, self._lanes)))

        def of_lane(cast: Any) -> Any:
            return lane if cast.value.same_as(self._var) and _dtype(cast) == dtype else cast

        converted = structural_map(index, (tirx.Cast, of_lane))
        if self._varies(converted):
            raise NoVectors
        return lane, converted

    def _numbers(self, number: Any) -> Any:
        """Return what grows by one from lane to lane, an index or a part of one."""
        first, step = self._steps(number)
        if not step:
            return tirx.Broadcast(first, self._lanes)
        return tirx.Ramp(first, tirx.IntImm(_dtype(first), 1), self._lanes)

    def _compared(self, comparison: Any) -> Any:
        """Return in which lanes an index compares with a bound: by the lanes' numbers, which fit a register.

        In 64 bits, as indices are, 16 lanes are two registers to add to and to compare.
        """
        (a, step), (b, other) = (self._steps(side) for side in (comparison.a, comparison.b))
        varying, bound = (a, b) if step else (b, a)
        if step == other or isinstance(varying, tirx.IntImm):
            return type(comparison)(*(self._numbers(side) for side in (comparison.a, comparison.b)))
        dtype = next((t for lanes, t in _LANE_TYPES.items() if self._lanes <= lanes), _OF_MORE_LANES)
        within = tirx.max(tirx.min(bound - varying, self._lanes), -1).astype(dtype)
        lanes = tirx.Ramp(tirx.IntImm(dtype, 0), tirx.IntImm(dtype, 1), self._lanes)
        limit = tirx.Broadcast(within, self._lanes)
        return type(comparison)(*((lanes, limit) if step else (limit, lanes)))

    def _parts(self, condition: Any) -> tuple[list[Any], list[Any]]:
        """Split a condition into those of all lanes and those of each."""
        parts = [*conjunction(condition)]
        return [p for p in parts if not self._varies(p)], [p for p in parts if self._varies(p)]

    def _both(self, mask: Any, conditions: Sequence[Any]) -> Any:
        """Return a mask of the lanes that a mask has and in which conditions hold."""
        masks = [mask] if mask is not None else []
        masks += [self._vector(condition, mask) for condition in conditions]
        return _all(masks) if masks else None

    def _varies(self, expression: Any) -> bool:
        return depends(expression, [self._var, *self._names])

    def _dtype(self, value: Any) -> str:
        return f"{_dtype(value)}x{self._lanes}"


def _all(conditions: Sequence[Any]) -> Any:
    return reduce(tirx.And, conditions)


def _is_narrowed(value: Any) -> bool:
    """Tell whether a value may be computed with more bits than it is stored with.

    Of such a vector, if one lane only is stored, LLVM 22 stores that lane with all its bits. What is not
    read, as the number of an iteration, is no vector before it is as narrow.
    """
    bits, sources = element_bits(_dtype(value)), [value]
    structural_walk(value, (tirx.Cast, lambda cast: sources.append(cast.value)))
    wider = (each for each in sources if element_bits(_dtype(each)) > bits)
    return bits < _LEAST_BITS or any(map(_reads, wider))


def _reads(expression: Any) -> bool:
    return bool(loads_of(expression))


def _is_polynomial(value: Any) -> bool:
    """Tell whether a value calls functions that are polynomials (see `vector_math`)."""
    return bool(POLYNOMIAL_CALLS & called(value))


def _is_vectorizable(call: Any) -> bool:
    """Tell whether a function can be called with vectors."""
    polynomial = op_name(call) in POLYNOMIAL_CALLS and _dtype(call) != "float64"
    return polynomial or (isinstance(call.op, tvm.ir.Op) and bool(call.op.get_attr("TVectorizable")))


def _dtype(expression: Any) -> str:
    return str(expression.ty.dtype)
