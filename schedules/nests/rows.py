"""Rows: reductions along some axes and what is computed of their results, as in softmax and the norms."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from tvm import s_tir
from tvm.tirx import Add, FloorDiv, IntImm, IterVar, Mul, Var

from ..analysis import (
    block_names,
    block_of,
    is_read_by_more,
    is_reduction,
    output_blocks,
    schedule_to_read,
    static_extents,
    uses_calls,
)
from ..expressions import are_just, index_variables, is_one, loads_of
from ..passes.in_place import in_place_block


@dataclass(frozen=True)
class RowNest:
    """A function that works row by row: what is read, reduced and written of one row concerns no other.

    Softmax, the norms and plain reductions are of this form. Loop positions count the loops of the output's
    block from the outside.

    Parameters
    ----------
    output : str
        The block that writes the output.
    rows : tuple of (int, int)
        Loops that lead from row to row, and how many neighbouring iterations belong to one row (1 but for
        groups of channels).
    reductions : tuple of str
        The reduction blocks, in order.
    contiguous : bool
        True where memory is contiguous along a row: vectors then lie along it, and otherwise across the rows.
    extents : tuple of int
        Iterations of the output's loops.
    axes : tuple of int
        Extents of the axes that one reduction takes together: the longest.
    dtype : str
        The type that is reduced in.
    output_dtype : str
        The type of the output.
    is_one_reduction : bool
        True where nothing is done but a reduction, and perhaps something with each of its results. One of
        several values counts where rows are not contiguous.
    values : int
        Values that the first reduction keeps: 2 of a maximum with its position, which TVM cannot take apart.
    in_place : str
        The block that can be computed where the output will be (see `in_place`); empty where none can.
    lines : int
        Iterations of the loop before the last of ``rows`` if one reduction is all, and both are in memory
        like one loop, as the lines and columns of an image; else 1.
    """

    output: str
    rows: tuple[tuple[int, int], ...]
    reductions: tuple[str, ...]
    contiguous: bool
    extents: tuple[int, ...]
    axes: tuple[int, ...]
    dtype: str
    output_dtype: str
    is_one_reduction: bool
    values: int
    in_place: str
    lines: int

    @property
    def length(self) -> int:
        """Elements that are reduced together."""
        return prod(self.axes)

    @property
    def work(self) -> int:
        """Elements that are read, about."""
        return max(prod(self.extents), self.count * self.length)

    @property
    def is_norm(self) -> bool:
        """Tell whether rows that are contiguous are reduced, and computed from that into another array."""
        return self.contiguous and not (self.is_one_reduction or self.in_place)

    @property
    def row_extent(self) -> int:
        """Rows along the innermost of the loops that lead from row to row."""
        position, neighbours = self.rows[-1]
        return self.extents[position] // neighbours

    @property
    def neighbours(self) -> int:
        """Rows that follow each other in memory, element by element, where they are not contiguous."""
        return self.lines * self.row_extent

    @property
    def count(self) -> int:
        """How many rows there are."""
        return prod(self.extents[position] // neighbours for position, neighbours in self.rows)


@lru_cache(maxsize=16)  # each rule asks, and then its rewriting
def find_rows(func: Any) -> RowNest | None:
    """Find the rows of an unscheduled PrimFunc.

    Returns
    -------
    RowNest or None
        None where nothing is reduced, where one element takes part in several sums (a matrix product, a
        window that slides), where there is more than one output, or where an extent is symbolic.
    """
    sch = schedule_to_read(func)
    names = block_names(sch)
    outputs = output_blocks(sch) if names else set()
    reductions = tuple(n for n in names if is_reduction(sch, n))
    if len(outputs) != 1 or len(set(names)) != len(names) or not reductions:
        return None
    if not all(_is_plain(sch, name) for name in names):
        return None
    if not all(_reduces_each_element_once(sch, name) for name in reductions):
        return None
    (output,) = outputs
    extents = static_extents(sch, output) or ()
    rows = _long_loops(_rows(_with_steps_inlined(sch, names, output), output), extents)
    if not rows:
        return None
    inlined = sch.copy()
    inline_cheap(inlined, output)
    contiguous = all(_is_contiguous(sch, name) for name in reductions)
    values = len(block_of(sch, reductions[0]).writes)
    one = len(reductions) == 1 and (values == 1 or not contiguous)
    is_one_reduction = one and (output in reductions or prod(extents[i] for i, _ in rows) == prod(extents))
    in_lines = is_one_reduction and not contiguous and len(rows) > 1
    return RowNest(
        output=output,
        rows=rows,
        reductions=reductions,
        contiguous=contiguous,
        extents=extents,
        axes=max((_reduced_extents(sch, name) for name in reductions), key=prod),
        dtype=str(block_of(sch, reductions[0]).writes[-1].source.dtype),
        output_dtype=str(block_of(sch, output).writes[0].source.dtype),
        is_one_reduction=is_one_reduction,
        values=values,
        in_place=in_place_block(inlined, output),
        lines=_lines(sch, reductions[0]) if in_lines else 1,
    )


def inline_cheap(sch: s_tir.Schedule, output: str) -> None:
    """Compute element-wise blocks where they are read, but not what is dear and read twice, or once a row."""
    for name in block_names(sch):
        if name == output or is_reduction(sch, name):
            continue
        dear = uses_calls(sch, name) and len(sch.get_consumers(sch.get_sblock(name))) > 1
        if not dear and not is_read_by_more(sch, name):
            sch.compute_inline(sch.get_sblock(name))


def _is_plain(sch: s_tir.Schedule, name: str) -> bool:
    """Tell whether a block has one loop of fixed extent for each of its axes."""
    extents = static_extents(sch, name)
    return extents is not None and len(extents) == len(block_of(sch, name).iter_vars) > 0


def _axes(block: Any, kind: Any) -> dict[Any, int]:
    """Return a block's variables of a kind with their extents."""
    return {v.var: int(v.dom.extent) for v in block.iter_vars if v.iter_type == kind}


def _reduces_each_element_once(sch: s_tir.Schedule, name: str) -> bool:
    """Tell whether each element that a reduction reads takes part in one result only.

    What is read under a reduced variable must be indexed by all variables that are kept, and an index that
    mixes both must be like ``kept * extent + reduced``: neighbouring results then share no element.
    """
    block = block_of(sch, name)
    kept = {v for v, extent in _axes(block, IterVar.DataPar).items() if extent > 1}
    reduced = _axes(block, IterVar.CommReduce)
    for load in loads_of(block.body):
        used = index_variables(load.indices)
        if load.source.same_as(block.writes[0].source) or not used & reduced.keys():
            continue
        if not kept <= used or not all(_is_group(index, kept, reduced) for index in load.indices):
            return False
    return True


def _is_group(index: Any, kept: set[Any], reduced: dict[Any, int]) -> bool:
    """Tell whether an index does not mix kept and reduced variables, or is ``kept * extent + reduced``."""
    used = index_variables([index])
    if not used & kept or not used & reduced.keys():
        return True
    if not isinstance(index, Add) or not isinstance(index.b, Var):
        return False
    # Where there is one of each, as in a group of one channel, TVM leaves the multiplication out.
    if isinstance(index.a, Var):
        return reduced.get(index.b) == 1
    factor = index.a.b if isinstance(index.a, Mul) else None
    return isinstance(factor, IntImm) and reduced.get(index.b) == int(factor)


def _with_steps_inlined(sch: s_tir.Schedule, names: list[str], output: str) -> s_tir.Schedule:
    """Return a schedule whose output reads the results of the reductions, not what is computed of each."""
    inlined = sch.copy()
    for name in names:
        if name != output and not is_reduction(sch, name):
            with suppress(s_tir.ScheduleError):  # what cannot be inlined tells of the rows as it is
                inlined.compute_inline(inlined.get_sblock(name))
    return inlined


def _rows(sch: s_tir.Schedule, output: str) -> tuple[tuple[int, int], ...] | None:
    """Return the loops of the output that lead from row to row; None where its loads do not tell."""
    block = block_of(sch, output)
    spatial = [i for i, v in enumerate(block.iter_vars) if v.iter_type == IterVar.DataPar]
    if is_reduction(sch, output):
        return tuple((i, 1) for i in spatial)
    position = {v.var: i for i, v in enumerate(block.iter_vars)}
    rows: dict[int, int] | None = None
    results = _results_of_reductions(sch, block_names(sch))
    for load in loads_of(block.body):
        if load.source in results:
            found = _row_loops(load.indices, position)
            if found is None:
                return None
            rows = found if rows is None else _both(rows, found)
    extents = static_extents(sch, output) or ()
    if rows is None or any(extents[i] % neighbours for i, neighbours in rows.items()):
        return None
    return tuple(sorted(rows.items()))


def _long_loops(
    rows: tuple[tuple[int, int], ...] | None, extents: tuple[int, ...]
) -> tuple[tuple[int, int], ...] | None:
    """Leave out loops of one iteration: no vector lies along one. Where all are, the last stays."""
    long = tuple((i, neighbours) for i, neighbours in rows or () if extents[i] > 1)
    return long or (rows and rows[-1:])


def _results_of_reductions(sch: s_tir.Schedule, names: list[str]) -> set[Any]:
    """Return the buffers that depend on a reduction."""
    found: set[Any] = set()
    for name in names:
        block = block_of(sch, name)
        if is_reduction(sch, name) or any(region.source in found for region in block.reads):
            found |= {region.source for region in block.writes}
    return found


def _row_loops(indices: Any, position: dict[Any, int]) -> dict[int, int] | None:
    """Return which loops index a buffer, each with how many of its iterations share an index."""
    found: dict[int, int] = {}
    for index in indices:
        if isinstance(index, Var):
            found[position[index]] = 1
        elif isinstance(index, FloorDiv) and isinstance(index.a, Var) and isinstance(index.b, IntImm):
            found[position[index.a]] = int(index.b)
        elif index_variables([index]):
            return None
    return found


def _both(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    return {i: max(one[i], other[i]) for i in one.keys() & other.keys()}


def _is_contiguous(sch: s_tir.Schedule, name: str) -> bool:
    """Tell whether a reduction's operands are contiguous along what is reduced."""
    block = block_of(sch, name)
    reduced = _axes(block, IterVar.CommReduce)
    lasts = [
        index_variables([_last_index(load)])
        for load in loads_of(block.body)
        if index_variables(load.indices) & reduced.keys()
        and not any(load.source.same_as(region.source) for region in block.writes)
    ]
    return bool(lasts) and all(last & reduced.keys() for last in lasts)


def _lines(sch: s_tir.Schedule, name: str) -> int:
    """Return the extent of the last but one axis that a reduction keeps, if both lie like one; else 1."""
    block = block_of(sch, name)
    kept = [*_axes(block, IterVar.DataPar).items()][-2:]
    (outer, extent), (inner, length) = kept if len(kept) == 2 else [(None, 1)] * 2

    def is_dense(load: Any) -> bool:
        last = are_just(load.indices[-2:], [outer, inner]) and int(load.source.shape[-1]) == length
        return last and not index_variables(load.indices[:-2]) & {outer, inner}

    return extent if outer is not None and all(map(is_dense, loads_of(block.body))) else 1


def _last_index(load: Any) -> Any:
    """Return what indexes the last axis of a buffer that has more than one element."""
    axes = zip(load.indices, load.source.shape, strict=True)
    return next((index for index, extent in reversed([*axes]) if not is_one(extent)), load.indices[-1])


def _reduced_extents(sch: s_tir.Schedule, name: str) -> tuple[int, ...]:
    return tuple(_axes(block_of(sch, name), IterVar.CommReduce).values())
