"""Sums by a matrix unit: what `TileInstruction`s add up stays in their tiles until the sum is complete.

A schedule marks the loop over tiles, and in it the loop over rows of one step of the sum::

    for tiles:                                            # TILES_MARK
        for i, j:  sums[i, j] = 0
        for steps:
            for i:  for j, k:  sums[i, j] += data[.., i, .., k] * panel[k // p, j, k % p]   # STEP_MARK
        for i, j:  out[..., i, j] = f(sums[i, j])

When blocks have become plain loops (`loop_partition`), up to four tiles of sums are set to zero, gain the
products of each step and are stored to ``sums``. Registers belong to a thread: those are configured where
the loop with THREADS_MARK begins an iteration, and given back where it ends. A tile's rows may lie any
distance apart, so a window's pixels are read where they lie, and every second one as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from typing import Any

import tvm
from tvm import s_tir, sym, tirx
from tvm.script import tirx as T
from tvm_ffi import structural_map, structural_walk

from ..machine.tile_instructions import (
    CONFIGURATION_WORDS,
    ROW_BYTES,
    TILE_ROWS,
    TILES,
    TileInstruction,
    configuration,
    configured,
    loaded,
    permission,
    released,
    stored,
    tile_instruction,
    zeroed,
)
from .analysis import index_variables
from .bfloat16_bits import keep_bfloat16
from .products import product_operands
from .restatement import replaced, without_mark
from .streaming import elements_before

THREADS_MARK = "tunesmith.tile_registers"
"""Annotation of a loop each of whose iterations is one thread's, and configures the tiles for itself."""

TILES_MARK = "tunesmith.matrix_tiles"
"""Annotation of a loop in it over tiles of the result."""

STEP_MARK = "tunesmith.matrix_step"
"""Annotation of a loop in that over the rows of a tile, in a step of the sum."""


def rows_of_parts(rows: int) -> list[int]:
    """Return the rows of the tiles that so many are cut into: as few as hold them, as even as can be."""
    parts = ceil(rows / TILE_ROWS)
    return [rows // parts + (part < rows % parts) for part in range(parts)]


def fits_tiles(rows: int, columns: int) -> bool:
    """Tell whether the sums of so many rows and columns fit the tiles, beside an operand of each kind."""
    parts = ceil(rows / TILE_ROWS)
    return parts * (ceil(columns * 4 / ROW_BYTES) + 1) + 1 <= TILES


def use_tiles(sch: s_tir.Schedule, threads: Any, tiles: Any, rows: Any) -> None:
    """Mark the loops over what threads share, over tiles, and over the rows of a step."""
    for loop, mark in ((threads, THREADS_MARK), (tiles, TILES_MARK), (rows, STEP_MARK)):
        sch.annotate(loop, mark, 1)


@dataclass(frozen=True)
class _Step:
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
        """Return the calls of the step."""
        data, weight = self.operands
        groups = self.summed[0] if len(self.summed) > 1 else None
        of_sums, of_data, of_weight = self.numbers
        calls = []
        for column in range(self.columns):
            panel = of_weight[column % len(of_weight)]
            begin = {self.column.loop_var: column * self.instruction.lanes}
            calls.append(self._loaded(panel, weight, groups, begin))
            for row, tile in enumerate(of_data):
                if column == 0:
                    begin = {self.loop.loop_var: sum(self.rows[:row])}
                    calls.append(self._loaded(tile, data, self.loop, begin))
                calls.append(self.instruction.added(of_sums[row][column], tile, panel))
        return calls

    def _loaded(self, tile: int, load: Any, along: Any | None, begin: Mapping[Any, int]) -> Any:
        indices, apart = self._place(load.source, load.indices, along, begin)
        return loaded(tile, tirx.address_of(load.source[tuple(indices)]), apart)

    def stores(self) -> list[Any]:
        """Return the calls after the sum."""
        calls = []
        for row, tiles in enumerate(self.numbers[0]):
            for column, tile in enumerate(tiles):
                begin = {
                    self.loop.loop_var: sum(self.rows[:row]),
                    self.column.loop_var: column * self.instruction.lanes,
                }
                sums = self.store.buffer
                indices, apart = self._place(sums, self.store.indices, self.loop, begin)
                calls.append(stored(tile, tirx.address_of(sums[tuple(indices)]), apart))
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
        return begins, int(apart) * int(tvm.DataType(str(buffer.dtype)).bits) // 8


def _use_tiles(func: Any, _mod: Any, _context: Any) -> Any:
    body = structural_map(func.body, [(tirx.For, _by_thread)])
    if body.same_as(func.body):
        return func
    return func.with_body(tirx.SeqStmt([tirx.Evaluate(permission()), keep_bfloat16(body)]))


def _by_thread(threads: Any) -> Any:
    """Return a loop whose iterations configure the tiles that its marked loops use."""
    if THREADS_MARK not in threads.annotations:
        return threads
    buffers: list[Any] = []
    shapes: list[tuple[int, int]] = []

    def tiled(loop: Any) -> Any:
        if TILES_MARK not in loop.annotations:
            return loop
        step = _step_in(loop)
        shapes[:] = step.shapes
        return without_mark(loop, TILES_MARK, body=_tile(loop.body, step, buffers))

    body = structural_map(threads.body, [(tirx.For, tiled)])
    words = tirx.decl_buffer((CONFIGURATION_WORDS,), "int64", "tile_configuration")
    numbered = enumerate(configuration(shapes))
    statements = [
        *(tirx.AllocBuffer(buffer) for buffer in (words, *buffers)),
        # TVM makes a buffer as small as what it sees of it, and it sees nothing of what instructions store.
        *(
            tirx.BufferStore(b, tirx.const(0, str(b.dtype)), [extent - 1 for extent in b.shape])
            for b in buffers
        ),
        *(tirx.BufferStore(words, T.int64(word), [T.int64(at)]) for at, word in numbered),
        tirx.Evaluate(configured(words)),
        body,
        tirx.Evaluate(released()),
    ]
    return without_mark(threads, THREADS_MARK, body=tirx.SeqStmt(statements))


def _step_in(tiles: Any) -> _Step:
    """Return the step of the sum in a marked loop over tiles."""
    (loop,) = _found(tiles.body, lambda each: isinstance(each, tirx.For) and STEP_MARK in each.annotations)
    (store,) = _found(loop.body, lambda each: isinstance(each, tirx.BufferStore))
    return _Step(loop, store)


def _tile(body: Any, step: _Step, buffers: list[Any]) -> Any:
    """Return the statements that compute a tile; the buffer of its sums is left to who has several tiles."""
    sums = step.store.buffer
    by_unit = tirx.SeqStmt(_statements(step.products()))
    statements: list[Any] = []
    for each in body if isinstance(body, tirx.SeqStmt) else [body]:
        if isinstance(each, tirx.AllocBuffer) and each.buffer.same_as(sums):
            buffers.append(sums)
        elif _found(each, step.loop.same_as):
            loops = structural_map(
                each, [(tirx.For, lambda at: by_unit if STEP_MARK in at.annotations else at)]
            )
            summed = tirx.SeqStmt([*_statements(step.zeros()), loops, *_statements(step.stores())])
            there = step.condition
            statements.append(summed if there is None else tirx.IfThenElse(there, summed, None))
        elif not _found(each, lambda s: isinstance(s, tirx.BufferStore) and s.buffer.same_as(sums)):
            statements.append(each)
    return tirx.SeqStmt(statements)


def _statements(calls: Sequence[Any]) -> list[Any]:
    return [tirx.Evaluate(call) for call in calls]


def _found(statement: Any, wanted: Callable[[Any], bool]) -> list[Any]:
    """Return the loops and stores in a statement that are as wanted."""
    found: list[Any] = []

    def note(each: Any) -> None:
        if wanted(each):
            found.append(each)

    structural_walk(statement, [(tirx.For, note), (tirx.BufferStore, note)])
    return found


use_matrix_tiles = tirx.transform.prim_func_pass(_use_tiles, opt_level=0)
"""The pass that puts the instructions in place of marked loops of functions of plain loops."""
