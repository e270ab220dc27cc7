"""A step of the sum over a tile of a matrix unit: from its loops to the calls of instructions.

Up to eight tiles hold, in this order, the sums by rows and columns, the data of each part of the rows, and
the weight of one column of tiles or more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from typing import Any

from tvm import s_tir, sym, tirx

from ...machine.element import element_bytes
from ...machine.tile_instructions import (
    ROW_BYTES,
    TILE_ROWS,
    TILES,
    TileInstruction,
    loaded,
    stored,
    tile_instruction,
    zeroed,
)
from ..expressions import index_variables
from ..nests.products import product_operands
from ..restatement import replaced
from .float32_parts import PartedBuffer
from .streaming import elements_before


def rows_of_parts(rows: int) -> list[int]:
    """Return the rows of the tiles that so many are cut into: as few as hold them, as even as can be."""
    parts = ceil(rows / TILE_ROWS)
    return [rows // parts + (part < rows % parts) for part in range(parts)]


def fits_tiles(rows: int, columns: int) -> bool:
    """Tell whether the sums of so many rows and columns fit the tiles, beside an operand of each kind."""
    parts = ceil(rows / TILE_ROWS)
    return parts * (ceil(columns * 4 / ROW_BYTES) + 1) + 1 <= TILES


@dataclass(frozen=True)
class TileStep:
    """A step of the sum over a tile.

    Parameters
    ----------
    loop : For
        The loop over rows.
    store : BufferStore
        The statement inside.
    """

    loop: Any
    store: Any

    @cached_property
    def operands(self) -> tuple[Any, Any]:
        """The loads of the data, which has the rows, and of the weight."""
        block = s_tir.SBlock([], [], [], "step", self.store)
        found = product_operands(block)
        assert found is not None, "a step adds products"
        return found if self.loop.loop_var in index_variables(found[0].indices) else found[::-1]

    @cached_property
    def inner(self) -> list[Any]:
        """The loops inside, the outermost first."""
        loops = [self.loop]
        while isinstance(loops[-1].body, tirx.For):
            loops.append(loops[-1].body)
        return loops[1:]

    @property
    def condition(self) -> Any | None:
        """Whether there is such a tile, as blocks may end with fewer; None if always. Each is whole."""
        first = {each.loop_var: tirx.IntImm("int64", 0) for each in (self.loop, *self.inner)}
        body, conditions = self.inner[-1].body, []
        while isinstance(body, tirx.IfThenElse):
            conditions.append(replaced(body.condition, first))
            body = body.then_case
        return tirx.all(*conditions) if conditions else None

    @cached_property
    def column(self) -> Any:
        """The loop over columns."""
        return next(each for each in self.inner if each.loop_var in index_variables(self.store.indices))

    @cached_property
    def summed(self) -> list[Any]:
        """The loops over the sum, the innermost last: groups, and elements of a group."""
        return [each for each in self.inner if each is not self.column]

    @cached_property
    def depth(self) -> int:
        """Products of a step."""
        return prod(int(each.extent) for each in self.summed)

    @cached_property
    def instruction(self) -> TileInstruction:
        """What multiplies these operands."""
        data, weight = (str(load.source.dtype) for load in self.operands)
        found = tile_instruction(data, weight, str(self.store.buffer.dtype))
        assert found is not None, "a schedule marks no others"
        return found

    @cached_property
    def rows(self) -> list[int]:
        """Rows of each tile, one below the other."""
        return rows_of_parts(int(self.loop.extent))

    @cached_property
    def columns(self) -> int:
        """Tiles side by side."""
        return int(self.column.extent) // self.instruction.lanes

    @cached_property
    def numbers(self) -> tuple[list[list[int]], list[int], list[int]]:
        """The numbers of the tiles: of the sums by row and column, of the data, and of the weight."""
        of_sums = [[row * self.columns + c for c in range(self.columns)] for row in range(len(self.rows))]
        first = len(self.rows) * self.columns
        of_weight = range(first + len(self.rows), TILES)[: self.columns]
        return of_sums, list(range(first, first + len(self.rows))), list(of_weight)

    @cached_property
    def parted(self) -> dict[Any, PartedBuffer]:
        """The buffers of operands whose elements are split, by the buffers of whole elements."""
        data, weight = (load.source for load in self.operands)
        # What a step reads of a row lies side by side, if vectors that are stored do not cross its end.
        whole = self.depth if self.depth % self.instruction.lanes == 0 else int(data.shape[-1])
        row = prod(int(extent) for extent in weight.shape[-2:])
        parts = [1 + max(pair) for pair in zip(*self.instruction.pairs, strict=True)]
        parted = (PartedBuffer(data, 1, whole, parts[0]), PartedBuffer(weight, 2, row, parts[1]))
        return {each.whole: each for each in parted if each.parts > 1}

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Rows, and bytes of a row, of each tile by its number."""
        deep = self.depth * ROW_BYTES // self.instruction.elements
        _, _, of_weight = self.numbers
        return [
            *((rows, ROW_BYTES) for rows in self.rows for _ in range(self.columns)),
            *((rows, deep) for rows in self.rows),
            *((self.depth // self.instruction.products, ROW_BYTES) for _ in of_weight),
        ]

    def zeros(self) -> list[Any]:
        """Return the calls before the sum."""
        return [zeroed(tile) for row in self.numbers[0] for tile in row]

    def products(self) -> list[Any]:
        """Return the calls of the step; a tile that an operand is still in is not loaded again."""
        of_sums, of_data, of_weight = self.numbers
        held: dict[int, tuple[int, ...]] = {}
        calls = []

        def ensure(tile: int, load: Any, along: Any | None, begin: tuple[Any, int], part: int) -> None:
            if held.get(tile) != (part, begin[1]):
                held[tile] = (part, begin[1])
                calls.append(self._loaded(tile, load, along, dict([begin]), part))

        data, weight = self.operands
        groups = self.summed[0] if len(self.summed) > 1 else None
        for of_row, of_column in self.instruction.pairs:
            for column in range(self.columns):
                panel = of_weight[column % len(of_weight)]
                begin = self.column.loop_var, column * self.instruction.lanes
                ensure(panel, weight, groups, begin, of_column)
                for row, tile in enumerate(of_data):
                    ensure(tile, data, self.loop, (self.loop.loop_var, sum(self.rows[:row])), of_row)
                    calls.append(self.instruction.added(of_sums[row][column], tile, panel))
        return calls

    def _loaded(self, tile: int, load: Any, along: Any | None, begin: Mapping[Any, int], part: int) -> Any:
        parted, buffer, indices = self.parted.get(load.source), load.source, load.indices
        if parted is not None:
            buffer, indices = parted.buffer, parted.place(indices, part)
        indices, apart = self._place(buffer, indices, along, begin)
        return loaded(tile, tirx.address_of(buffer[tuple(indices)]), apart)

    def stores(self) -> list[Any]:
        """Return the calls after the sum."""
        return self._each(stored)

    def loads(self) -> list[Any]:
        """Return the calls before what is added to sums that were stored."""
        return self._each(loaded)

    def _each(self, call: Callable[[int, Any, int], Any]) -> list[Any]:
        """Return a call for each tile of sums: its number, where it is stored, how far its rows are."""
        calls = []
        for row, tiles in enumerate(self.numbers[0]):
            for column, tile in enumerate(tiles):
                begin = {
                    self.loop.loop_var: sum(self.rows[:row]),
                    self.column.loop_var: column * self.instruction.lanes,
                }
                sums = self.store.buffer
                indices, apart = self._place(sums, self.store.indices, self.loop, begin)
                calls.append(call(tile, tirx.address_of(sums[tuple(indices)]), apart))
        return calls

    def _place(
        self, buffer: Any, indices: Sequence[Any], along: Any | None, begin: Mapping[Any, int]
    ) -> tuple[list[Any], int]:
        """Return the indices at which a tile begins in a buffer, and how many bytes its rows are apart.

        ``along``: the loop whose iterations are its rows, None where it has one. ``begin``: the iterations at
        which it begins; 0 of the other loops.
        """
        loops = [self.loop, *self.inner]
        first = {each.loop_var: tirx.IntImm("int64", begin.get(each.loop_var, 0)) for each in loops}
        begins = [replaced(index, first) for index in indices]
        if along is None:
            return begins, ROW_BYTES
        starts = [
            elements_before(buffer, [replaced(index, {**first, along.loop_var: row}) for index in indices])
            for row in (tirx.IntImm("int64", 0), tirx.IntImm("int64", 1))
        ]
        apart = sym.Analyzer().simplify(starts[1] - starts[0])
        assert isinstance(apart, tirx.IntImm), f"rows of {buffer.name} are evenly apart: {apart}"
        return begins, int(apart) * element_bytes(buffer.dtype)
