"""Weights in groups of neighbours along the sum, as instructions that sum several products take them.

A weight lies along the columns or along the sum; either way vectors of it are brought into groups in
registers: rows are interleaved, or squares of groups transposed. Rows of such squares are one vector each:
twice as long, their steps would not keep to the registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from tvm import s_tir
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from ..machine.dot_instructions import DOT_INSTRUCTIONS, WIDENED
from ..machine.element import element_bits
from ..machine.tile_instructions import TILE_INSTRUCTIONS
from .transforms import attempt
from .transposition import performing, transposed

# Whether rows of a weight lie in planes of their own, as the pixels of the channels of an image.
_APART = (0, 1)


class Grouping(Protocol):
    """How panels hold a weight: in groups of neighbours along the sum, those of as many columns as lanes."""

    def __hash__(self) -> int:
        """Intrinsics are made once for each."""

    @property
    def lanes(self) -> int:
        """Columns whose groups lie side by side."""

    @property
    def products(self) -> int:
        """Elements of a group."""

    @property
    def elements(self) -> int:
        """Elements of that many groups."""

    @property
    def weight_dtype(self) -> str:
        """Their type."""


def register_intrinsics(trace: str) -> None:
    """Register the intrinsics that a trace names."""
    groupings: tuple[Grouping, ...] = (*DOT_INSTRUCTIONS, *TILE_INSTRUCTIONS)
    for grouping in groupings:
        for narrow in {grouping.weight_dtype, *WIDENED}:
            for apart in _APART:
                if _interleaving_name(grouping, narrow, apart) in trace:
                    _register_interleaving(grouping, narrow, apart)
            for deep in {_groups_of_vector(grouping), grouping.lanes}:  # the latter in traces from before
                if _turning_name(grouping, narrow, deep) in trace:
                    _register_turning(grouping, narrow, deep)


def interleave(sch: s_tir.Schedule, panels: Any, grouping: Grouping) -> list[Any]:
    """Copy a weight whose columns are contiguous into groups, in registers; return the loops around.

    Columns of several phases, as of a transposed convolution, may leave TVM in doubt whether a vector of them
    is contiguous: these are copied element by element.
    """
    *outer, column, _ = sch.get_loops(panels)
    _, lane = sch.split(column, [None, grouping.lanes])
    names = (_register_interleaving(grouping, _source_dtype(sch, panels), apart) for apart in _APART)
    next((name for name in names if attempt(sch.tensorize, lane, name)), None)
    return list(outer)


def turn(sch: s_tir.Schedule, panels: Any, grouping: Grouping) -> list[Any]:
    """Copy a weight that is contiguous along the sum into groups, squares of them; return the loops around.

    Panels are whole squares of ``lanes`` columns by ``lanes`` groups.
    """
    *outer, group, column, product = sch.get_loops(panels)
    deep = _groups_of_vector(grouping)
    groups, group = sch.split(group, [None, deep])
    columns, column = sch.split(column, [None, grouping.lanes])
    sch.reorder(groups, columns, group, column, product)
    sch.tensorize(group, _register_turning(grouping, _source_dtype(sch, panels), deep))
    return [*outer, groups]


def _groups_of_vector(grouping: Grouping) -> int:
    """Return the groups that a vector of sums, of 32 bits each, is as long as."""
    return grouping.lanes * 32 // _group_bits(grouping)


def _group_bits(grouping: Grouping) -> int:
    return grouping.products * element_bits(grouping.weight_dtype)


def _source_dtype(sch: s_tir.Schedule, copy: Any) -> str:
    return str(sch.get(copy).reads[0].source.dtype)


def _interleaving_name(grouping: Grouping, narrow: str, apart: int) -> str:
    name = f"tunesmith_interleave{'_planes' * apart}_{grouping.products}x{grouping.lanes}"
    types = narrow, grouping.weight_dtype
    return name if types == ("int8", "int8") else "_".join((name, *types))


def _turning_name(grouping: Grouping, narrow: str, deep: int) -> str:
    types = f"{narrow}_{grouping.weight_dtype}"
    square = f"{grouping.lanes}" if deep == grouping.lanes else f"{grouping.lanes}by{deep}"
    return f"tunesmith_turn_groups_{square}x{grouping.products}_{types}"


@cache
def _register_interleaving(grouping: Grouping, narrow: str, apart: int) -> str:
    """Register how weights of a type come into groups; return its name."""
    name = _interleaving_name(grouping, narrow, apart)
    described = (_planes_interleaved if apart else _interleaved)(grouping, narrow)
    TensorIntrin.register(name, described, _interleaved_in_registers(grouping, described), override=True)
    return name


@cache
def _register_turning(grouping: Grouping, narrow: str, deep: int) -> str:
    """Register how ``deep`` groups of each column of a weight along the sum are placed; return its name."""
    name, described = _turning_name(grouping, narrow, deep), _turned(grouping, narrow, deep)
    TensorIntrin.register(name, described, _turned_in_registers(grouping, described, deep), override=True)
    return name


def _interleaved(grouping: Grouping, narrow: str) -> Any:
    lanes, products, wide = grouping.lanes, grouping.products, grouping.weight_dtype

    @T.prim_func(s_tir=True)
    def described(a: T.handle, b: T.handle) -> None:
        A = T.match_buffer(a, (products, lanes), narrow, offset_factor=1, strides=[T.int64(), 1])
        B = T.match_buffer(b, (lanes, products), wide, offset_factor=1)
        with T.sblock("root"):
            T.reads(A[0:products, 0:lanes])
            T.writes(B[0:lanes, 0:products])
            for j, q in T.grid(lanes, products):
                with T.sblock("interleave"):
                    vj, vq = T.axis.remap("SS", [j, q])
                    B[vj, vq] = T.cast(A[vq, vj], wide)

    return described


def _planes_interleaved(grouping: Grouping, narrow: str) -> Any:
    lanes, products, wide = grouping.lanes, grouping.products, grouping.weight_dtype

    @T.prim_func(s_tir=True)
    def described(a: T.handle, b: T.handle) -> None:
        A = T.match_buffer(
            a, (products, 1, lanes), narrow, offset_factor=1, strides=[T.int64(), T.int64(), 1]
        )
        B = T.match_buffer(b, (lanes, products), wide, offset_factor=1)
        with T.sblock("root"):
            T.reads(A[0:products, 0:1, 0:lanes])
            T.writes(B[0:lanes, 0:products])
            for j, q in T.grid(lanes, products):
                with T.sblock("interleave"):
                    vj, vq = T.axis.remap("SS", [j, q])
                    B[vj, vq] = T.cast(A[vq, 0, vj], wide)

    return described


def _interleaved_in_registers(grouping: Grouping, described: Any) -> Any:
    (A, B), lanes, products, zero = described.params, grouping.lanes, grouping.products, T.int64(0)
    places = [q * lanes + j for j in range(lanes) for q in range(products)]
    planes = [zero] * (len(A.shape) - 2)
    rows = [A.vload([T.int64(q), *planes, zero], f"{A.dtype}x{lanes}") for q in range(products)]
    groups = T.cast(T.Shuffle(rows, places), f"{B.dtype}x{grouping.elements}")
    return performing(described, [B.vstore([zero, zero], groups)])


def _turned(grouping: Grouping, narrow: str, deep: int) -> Any:
    lanes, products, elements = grouping.lanes, grouping.products, deep * grouping.products
    wide = grouping.weight_dtype

    @T.prim_func(s_tir=True)
    def described(a: T.handle, b: T.handle) -> None:
        A = T.match_buffer(a, (lanes, elements), narrow, offset_factor=1, strides=[T.int64(), 1])
        B = T.match_buffer(
            b, (deep, lanes, products), wide, offset_factor=1, strides=[T.int64(), products, 1]
        )
        with T.sblock("root"):
            T.reads(A[0:lanes, 0:elements])
            T.writes(B[0:deep, 0:lanes, 0:products])
            for p, j, q in T.grid(deep, lanes, products):
                with T.sblock("turn"):
                    vp, vj, vq = T.axis.remap("SSS", [p, j, q])
                    B[vp, vj, vq] = T.cast(A[vj, vp * products + vq], wide)

    return described


def _turned_in_registers(grouping: Grouping, described: Any, deep: int) -> Any:
    """Transpose squares of groups, side by side where there are more columns."""
    (A, B), zero, elements = described.params, T.int64(0), deep * grouping.products
    narrow, wide = (f"{buffer.dtype}x{elements}" for buffer in (A, B))
    group = f"int{_group_bits(grouping)}x{deep}"
    steps: list[Any] = []
    squares: list[list[Any]] = []
    for first in range(0, grouping.lanes, deep):
        loaded = [A.vload([T.int64(first + j), zero], narrow) for j in range(deep)]
        turned, groups = transposed([T.reinterpret(T.cast(each, wide), dtype=group) for each in loaded])
        steps += turned
        squares.append([T.reinterpret(each, dtype=wide) for each in groups])
    whole = [_joined(parts) for parts in zip(*squares, strict=True)]
    stores = [B.vstore([T.int64(p), zero, zero], each) for p, each in enumerate(whole)]
    return performing(described, [*steps, *stores])


def _joined(parts: Sequence[Any]) -> Any:
    """Return vectors side by side as one."""
    lanes = sum(int(part.ty.dtype.lanes) for part in parts)
    return parts[0] if len(parts) == 1 else T.Shuffle(list(parts), list(range(lanes)))
