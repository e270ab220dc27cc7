"""Contractions, the sums of products behind matrix multiplication and convolution: how one is found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod
from typing import Any

from tvm.ir import TensorLoad
from tvm.tirx import IterVar, Var

from ...kernels.operator import CONSTANT_ARGUMENTS
from ...machine.element import element_bytes
from ...machine.facts import Facts
from ..analysis import block_names, block_of, one_reduction, schedule_to_read, static_extents
from ..expressions import buffer_bytes, index_variables
from ..transforms import LEAST_PARALLEL_SUMS
from .products import product_operands
from .surroundings import WIDE_DATA, blocks_around, lies_in_rows, made_of, makes_panels
from .window_padding import FilledAxis, PaddedAxis, filled_axes, padded_axes

# So few columns of so long a sum, of which vectors are whole, are rows that `dots` takes on every CPU: linear
# of 512 rows by 768 to 2 takes 0.17 of the time so, a matrix of 65536 x 128 by 3 columns 0.66.
_FEW_COLUMNS, _LONG_SUM, _WHOLE = 3, 128, 16


@dataclass(frozen=True)
class Contraction:
    """Sums of products ``out[batch, rows, column] += data[batch, rows, sums] * weight[batch, column, sums]``.

    Matrix multiplication is the plain case; a convolution is one whose data indices add a row axis and a
    reduction axis. Loop positions count the loops of the block from the outside.

    Parameters
    ----------
    block : str
        The name of the reduction block.
    data, weight : int
        Which of the block's reads is which operand.
    batch : tuple of int
        Loops over the axes that the output and both operands have: each is a contraction of its own.
    rows : tuple of int
        Loops over the axes of the output that data has and weight has not, outermost first but for the
        last: that is the one that a register tile spans.
    column : int
        The loop over the axis of the output that weight has and data has not.
    reductions : tuple of int
        Loops that are summed over, in the order in which data is read best: its windows first, the axis
        that is contiguous (or is made so) last.
    weight_axes : tuple of int
        The loop that indexes each dimension of the weight.
    data_channel : int
        The dimension of data that the innermost reduction indexes.
    data_rank : int
        How many dimensions data has.
    output_column : int
        The dimension of the output that the column axis indexes.
    output_rank : int
        How many dimensions the output has.
    extents : tuple of int
        Iterations of every loop.
    dtype : str
        The type that is summed in.
    data_dtype, weight_dtype : str
        The types of the operands.
    data_first : bool
        True where the product is written data times weight.
    plain : bool
        True where every index of both operands is one loop variable, so that rows can be padded.
    prologue : tuple of str
        Blocks that make the operands, in order.
    staged : str or None
        The one of them that must stay a copy because it pads or widens the data, or brings its channels
        together.
    staged_bytes : int
        Bytes of that copy where a window slides over it, else 0.
    weight_block : str or None
        The one of them that lays the weight out anew, or widens it: what makes the panels.
    weight_lies : bool
        True where the weight is made of nothing but elements that lie side by side along the columns.
    epilogue : tuple of str
        Blocks that work on the output element by element, in order.
    rest : tuple of str
        Blocks after these that rearrange the output, in order.
    padded : tuple of PaddedAxis
        The axes along which a window slides over zeros around the data.
    filled : tuple of FilledAxis
        The axes along which a weight is filled up with zeros.
    constant_weight : bool
        True where the caller promises that the weight does not change between calls.
    """

    block: str
    data: int
    weight: int
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    column: int
    reductions: tuple[int, ...]
    weight_axes: tuple[int, ...]
    data_channel: int
    data_rank: int
    output_column: int
    output_rank: int
    extents: tuple[int, ...]
    dtype: str
    data_dtype: str
    weight_dtype: str
    data_first: bool
    plain: bool
    prologue: tuple[str, ...]
    staged: str | None
    staged_bytes: int
    weight_block: str | None
    weight_lies: bool
    epilogue: tuple[str, ...]
    rest: tuple[str, ...]
    padded: tuple[PaddedAxis, ...]
    filled: tuple[FilledAxis, ...]
    constant_weight: bool

    @property
    def row_extent(self) -> int:
        """Iterations of the row axis that a register tile spans."""
        return self.extents[self.rows[-1]]

    @property
    def batches(self) -> int:
        """How many contractions there are."""
        return prod(self.extents[position] for position in self.batch)

    @property
    def sums(self) -> int:
        """Multiply-adds in all."""
        return self.batches * self.all_rows * self.columns * self.depth

    @property
    def is_worth_threads(self) -> bool:
        """Whether there are enough multiply-adds to wake other threads for."""
        return self.sums >= LEAST_PARALLEL_SUMS

    @property
    def is_turned(self) -> bool:
        """Whether the weight is contiguous along the sum, and not laid out anew before the call."""
        return self.weight_axes[-1] == self.reductions[-1] and not self.constant_weight

    @property
    def is_widened(self) -> bool:
        """Whether the data of a plain product are another type's, widened in a copy."""
        return self.plain and self.staged == WIDE_DATA

    @property
    def outer_rows(self) -> int:
        """Iterations of all other row axes together."""
        return prod(self.extents[position] for position in self.rows[:-1])

    @property
    def all_rows(self) -> int:
        """Rows of all axes together."""
        return self.outer_rows * self.row_extent

    @property
    def has_single_row(self) -> bool:
        """Whether there is one row: whatever axes data have, they lie along the sum."""
        return self.all_rows == 1

    def tiles_in_line(self, mr: int) -> int:
        """Count the tiles of ``mr`` rows along the row axis that a register tile spans."""
        return ceil(self.row_extent / mr)

    @property
    def columns(self) -> int:
        """Iterations of the column axis."""
        return self.extents[self.column]

    @property
    def channels(self) -> int:
        """Products of one window position: what neighbouring rows of a convolution do not share."""
        return self.extents[self.reductions[-1]]

    @property
    def depth(self) -> int:
        """Products summed for one output."""
        return prod(self.extents[position] for position in self.reductions)

    def share_met(self, mr: int) -> float:
        """Return the share of all products whose taps meet data, in tiles of ``mr`` rows, not only zeros."""
        return prod(axis.share(self._outputs_along(axis, mr)) for axis in self.padded)

    def ranges_read(self, mr: int) -> list[tuple[int, int]]:
        """Return from where to where tiles of ``mr`` rows read data, along each axis that has padding."""
        return [axis.read(self._outputs_along(axis, mr)) for axis in self.padded]

    def _outputs_along(self, axis: PaddedAxis, mr: int) -> int:
        """Return how many outputs tiles of ``mr`` rows have along an axis."""
        return mr if axis.row == self.rows[-1] else 1

    def share_read(self, mr: int) -> float:
        """Return the share of the padded data that tiles of ``mr`` rows read."""
        ranges = zip(self.padded, self.ranges_read(mr), strict=True)
        return prod((high - low) / axis.extent for axis, (low, high) in ranges)

    def operands(self, block: Any) -> tuple[TensorLoad, TensorLoad]:
        """Return the loads of data and weight by the block that sums their products."""
        found = product_operands(block)
        assert found is not None, "a contraction sums products"
        return found if self.data_first else found[::-1]

    @property
    def weight_bytes(self) -> int:
        """Bytes of one contraction's weight."""
        return self.columns * self.depth * element_bytes(self.weight_dtype)

    @property
    def data_bytes(self) -> int:
        """Bytes of what one contraction's rows are multiplied with: a pixel counts in each window."""
        item = element_bytes(self.data_dtype)
        return self.all_rows * self.depth * item


def weight_exceeds_l2(nest: Contraction, machine: Facts) -> bool:
    """Tell whether the weight is larger than the second caches of all cores together."""
    return nest.weight_bytes > machine.near_bytes


@lru_cache(maxsize=16)  # each rule asks, and then its rewriting
def find_contraction(func: Any) -> Contraction | None:
    """Find the one sum of products in an unscheduled PrimFunc.

    Returns
    -------
    Contraction or None
        None where there is none or more than one, where channels belong to groups, or where the blocks around
        it are not element by element.
    """
    sch = schedule_to_read(func)
    names, sums = block_names(sch), one_reduction(sch)
    if sums is None:
        return None
    block = block_of(sch, sums)
    extents = static_extents(sch, sums)
    operands = product_operands(block)
    if operands is None or extents is None or len(extents) != len(block.iter_vars):
        return None
    roles = _roles(block, operands)
    if roles is None:
        return None
    data, weight, batch, rows, column, reductions = roles
    plain = all(isinstance(i, Var) for load in operands for i in load.indices)
    position = {v.var: i for i, v in enumerate(block.iter_vars)}
    weight_axes = tuple(position[i] for i in operands[weight].indices)
    # A reduction that shares an index with a row (a window) goes outside, the contiguous one inside.
    alone = {position[i]: d for d, i in enumerate(operands[data].indices) if isinstance(i, Var)}
    reductions = tuple(sorted(reductions, key=lambda r: alone.get(r, -1)))
    if reductions[-1] not in alone:
        return None
    around = blocks_around(sch, names, block, operands[data].source, operands[weight].source, plain)
    if around is None:
        return None
    prologue, staged, epilogue, rest = around
    copy = None if plain or staged is None else block_of(sch, staged)
    weights = [operands[weight].source]
    weight_block = next((n for n in prologue if makes_panels(sch, n, weights[0])), None)
    if weight_block is not None:
        weights = made_of(sch, weight_block)
    return Contraction(
        block=sums,
        data=_read_index(block, operands[data]),
        weight=_read_index(block, operands[weight]),
        batch=batch,
        rows=_tiled_last(rows, extents, plain),
        column=column,
        reductions=reductions,
        weight_axes=weight_axes,
        data_channel=alone[reductions[-1]],
        data_rank=len(operands[data].indices),
        output_column=[position.get(i) for i in block.body.indices].index(column),
        output_rank=len(block.body.indices),
        extents=extents,
        dtype=str(block.writes[0].source.ty.dtype),
        data_dtype=str(operands[data].source.ty.dtype),
        weight_dtype=str(operands[weight].source.ty.dtype),
        data_first=data == 0,
        plain=plain,
        prologue=prologue,
        staged=staged,
        staged_bytes=buffer_bytes(operands[data].source) if copy else 0,
        weight_block=weight_block,
        weight_lies=weight_axes[-1] == column and (weight_block is None or lies_in_rows(sch, weight_block)),
        epilogue=epilogue,
        rest=rest,
        padded=padded_axes(copy, block, operands[data].indices) if copy else (),
        filled=filled_axes(sch, weight_block, block, operands[weight].indices, column),
        constant_weight=all(is_constant_argument(func, each) for each in weights),
    )


def _roles(
    block: Any, operands: tuple[TensorLoad, TensorLoad]
) -> tuple[int, int, tuple[int, ...], tuple[int, ...], int, tuple[int, ...]] | None:
    """Sort the axes into batch, rows, column and reductions; None where they do not fit."""
    used = [index_variables(load.indices) for load in operands]
    spatial = [i for i, v in enumerate(block.iter_vars) if v.iter_type == IterVar.DataPar]
    reductions = tuple(i for i, v in enumerate(block.iter_vars) if v.iter_type == IterVar.CommReduce)
    batch = [i for i in spatial if all(block.iter_vars[i].var in each for each in used)]
    if any(block.iter_vars[i].var not in list(load.indices) for i in batch for load in operands):
        return None
    spatial = [i for i in spatial if i not in batch]
    own = [[i for i in spatial if block.iter_vars[i].var in used[o]] for o in (0, 1)]
    if not own[0] or not own[1] or sorted(own[0] + own[1]) != spatial:
        return None
    # The weight has one axis of its own and is indexed plainly, so that it can be laid out in panels. A
    # column by itself is no vector, a few are part of one: rows are columns then. Of integers they stay:
    # instructions tell a signed operand from an unsigned one.
    floating = str(block.writes[0].source.ty.dtype).startswith("float")
    most = 1 if batch else _few_columns(block, operands, reductions)
    few = [floating and prod(int(block.iter_vars[i].dom.extent) for i in axes) <= most for axes in own]
    for weight in sorted((1, 0), key=lambda o: (few[o], spatial[-1] not in own[o])):
        plain = all(isinstance(i, Var) for i in operands[weight].indices)
        if len(own[weight]) == 1 and plain:
            return 1 - weight, weight, tuple(batch), tuple(own[1 - weight]), own[weight][0], reductions
    return None


def _few_columns(block: Any, operands: tuple[TensorLoad, TensorLoad], reductions: tuple[int, ...]) -> int:
    """Return how many columns are better rows: several where a long sum is contiguous in both operands."""
    along = block.iter_vars[reductions[-1]] if len(reductions) == 1 else None
    if along is None or not all(load.indices[-1].same_as(along.var) for load in operands):
        return 1
    is_long = int(along.dom.extent) >= _LONG_SUM and int(along.dom.extent) % _WHOLE == 0
    return _FEW_COLUMNS if is_long and all(isinstance(i, Var) for o in operands for i in o.indices) else 1


def _tiled_last(rows: tuple[int, ...], extents: tuple[int, ...], plain: bool) -> tuple[int, ...]:
    """Put the row axis that a register tile spans last.

    The pixels of a line share a window; otherwise any axis will do, and the longest fills tiles best: a model
    with its one image in the second place, (50, 1, 768) say, has a last axis of one row.
    """
    tiled = rows[-1] if not plain and extents[rows[-1]] > 1 else max(rows, key=lambda r: (extents[r], r))
    return (*(r for r in rows if r != tiled), tiled)


def _read_index(block: Any, load: TensorLoad) -> int:
    return next(i for i, region in enumerate(block.reads) if region.source.same_as(load.source))


def is_constant_argument(func: Any, buffer: Any) -> bool:
    """Tell whether the caller promises that this argument is constant."""
    free = func.attrs.get(CONSTANT_ARGUMENTS) if func.attrs else None
    if free is None:
        return False
    return any(func.params[int(i)].same_as(buffer) for i in free)
