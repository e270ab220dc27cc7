"""A sum of products whose rows are one axis: lines and images, or sequences, come after each other.

Where tiles do not divide a line, a part of the last one of each is empty; of all rows it is one tile's::

    rows[s, i, j, c] = padded x[n, p * stride + i, q * stride + j, c]      # s stands for (n, p, q)
    sums[s, o] = sum of rows[s, i, j, c] * weight[i, j, c, o]
    y[n, p, q, o] = epilogue of sums[s, o]

The rows are read where they lie. Where tiles do not divide them, the last one reaches back: what it shares
with the one before is computed twice, to the same values, and no tile has a condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod
from typing import Any

from tvm import s_tir, te, tirx
from tvm.ir import Range
from tvm_ffi import structural_map

from ...machine.errors import InputError
from ..nests.chain import ProductChain, product_chain
from ..nests.contraction import find_contraction
from ..restatement import (
    held_block,
    nests,
    placeholders,
    replaced,
    stage_nests,
    summed_term,
    whole,
    with_nests,
    without_buffers,
)
from .flat_indices import unflat

ROWS, SUMS, OUTPUT = (f"flat_rows_{step}" for step in ("data", "sums", "output"))
"""The blocks: the rows of data, the product, and what it becomes."""


@dataclass(frozen=True)
class FlatRows(ProductChain):
    """A sum of products whose rows may be one axis."""

    @property
    def extents(self) -> tuple[int, ...]:
        """The axes of the output but for its columns."""
        return tuple(int(extent) for extent in self.output.shape[:-1])

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return prod(self.extents)

    def in_tiles(self, of_tile: int) -> int:
        """Return the rows of whole tiles of so many; the last ones may be computed twice."""
        return ceil(self.rows / of_tile) * of_tile

    def place(self, row: Any, of_tile: int) -> list[Any]:
        """Return where a row of tiles of so many lies along the axes of the output."""
        if self.rows % of_tile:
            first = tirx.min(row // of_tile * of_tile, whole(self.rows - of_tile))
            row = first + row % of_tile
        return unflat(self.extents[1:], row)


@lru_cache(maxsize=16)  # a rule asks, and then the restatement
def find_flat_rows(func: Any) -> FlatRows | None:
    """Find the sum of products that a PrimFunc consists of, whose rows are several axes, or None."""
    nest = find_contraction(func)
    if nest is None or nest.batch or nest.rest or nest.filled:
        return None
    if nest.output_column != nest.output_rank - 1 or nest.data_channel != nest.data_rank - 1:
        return None
    if sum(nest.extents[row] > 1 for row in nest.rows) < 2:
        return None
    return product_chain(func, nest, FlatRows)


@lru_cache(maxsize=4)  # a space asks, and then the schedule begins with it
def restate(func: Any, of_tile: int) -> Any:
    """Make the rows of a sum of products one axis, of whole tiles.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_flat_rows` finds a product.
    of_tile : int
        Rows of a tile.

    Raises
    ------
    InputError
        There is no such product, or it has fewer rows: a trace may name a form that is not one of its
        function.
    """
    found = find_flat_rows(func)
    if found is None or not 0 < of_tile <= found.rows:
        raise InputError(f"the function is no product of at least {of_tile} rows along several axes")
    shape = [whole(found.in_tiles(of_tile)), whole(found.nest.columns)]
    output = tirx.decl_buffer(shape, str(found.output.dtype), OUTPUT)
    given = [found.data.source, found.weight.source, *found.beside, output]
    (*product, last), between = stage_nests(given, _define(found, of_tile))
    around = nests(func)
    at = [held_block(nest).name_hint for nest in around].index(found.block.name_hint)
    form = [*product, _in_place(last, found, of_tile)]
    body = [*around[:at], *form, *around[at + 1 + len(found.after) :]]
    *gone, _ = (block.writes[0].source for block in (found.block, *found.after))
    buffers = func.body.block.alloc_buffers
    kept = [buffer for buffer in buffers if not any(buffer.same_as(each) for each in gone)]
    return with_nests(without_buffers(func), body, [*kept, *between])


def _in_place(nest: Any, found: FlatRows, of_tile: int) -> Any:
    """Return a loop nest that writes each row to its place in the output itself."""

    def moved(block: Any) -> Any:
        row, column = block.body.indices
        place = [*found.place(row, of_tile), column]
        store = tirx.BufferStore(found.output, block.body.value, place)
        # TVM cannot tell that rows which reach back are all of the output: it is told so.
        lines = [Range(whole(0), extent) for extent in found.output.shape[:-1]]
        region = tirx.BufferRegion(found.output, [*lines, Range.from_min_extent(column, whole(1))])
        return s_tir.SBlock(block.iter_vars, block.reads, [region], block.name_hint, store)

    return structural_map(nest, [(s_tir.SBlock, moved)])


def _define(found: FlatRows, of_tile: int) -> list[Any]:
    """Return the TE tensors data, weight, what is read beside the sums, and the output in rows."""
    x, w, *others = placeholders([found.data.source, found.weight.source, *found.beside])
    *places, column = found.kept
    rows, columns = found.in_tiles(of_tile), found.nest.columns
    summed = [found.block.iter_vars[loop] for loop in found.nest.reductions]
    over = {v.var: te.reduce_axis((0, v.dom.extent), str(v.var.name).removeprefix("v_")) for v in summed}

    def row(s: Any, *taps: Any) -> Any:
        at = dict(zip([*places, *over], [*found.place(s, of_tile), *taps], strict=True))
        return x(*(replaced(index, at) for index in found.data.indices))

    data = te.compute((rows, *(v.dom.extent for v in summed)), row, name=ROWS)

    def product(s: Any, o: Any) -> Any:
        at = {**over, column: o}
        taps = w(*(at[index] for index in found.weight.indices))
        operands = {found.data: data(s, *over.values()), found.weight: taps}
        return te.sum(replaced(summed_term(found.block), operands), axis=[*over.values()])

    sums = te.compute((rows, columns), product, name=SUMS)
    tensors = dict(zip(found.beside, others, strict=True))

    def output(s: Any, o: Any) -> Any:
        return found.finished(sums(s, o), tensors, [*found.place(s, of_tile), o])

    return [x, w, *others, te.compute((rows, columns), output, name=OUTPUT)]
