"""A product by a weight that lies along the sum: its rows are multiplied as they lie (`forms.swapped`).

Before::

    for i, j, k:  y[i, j] += data[i, k] * weight[j, k]

After::

    for blocks of i and j, in parallel:
        panel[i // nr, k, i % nr] = data                   # turned in registers, once for all of the weight
        for tiles of nr columns i:
            for tiles of mr rows j:  sums[j, i] = the sum over k, in registers
            for squares:  turned[i, j] = sums[j, i]        # in registers, from L1 or L2
            for i, vectors of j:  y[i, j] = epilogue of turned[i, j]

The product is scheduled as `matmul` schedules any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tvm import s_tir

from ..analysis import block_names
from ..forms.swapped import OUTPUT, TURNED, find_swapped, restate
from ..forms.widened import has_halves
from ..nests.contraction import find_contraction
from ..rule import ScheduleRule
from ..space import Constraint, Knob, Knobs, KnobSpace
from ..transforms import transpose_last, vectorize_last
from .block_choice import default_blocks
from .matrix_unit import schedule_matrix_unit
from .register_tile import register_tile
from .tile_choice import ROW_STREAMS, TileChoice, tile_choice, tile_cost
from .tile_space import tile_space
from .weight_panels import PACK_FIRST

_SQUARES = (4, 8, 16)

# Vectors of a tile: two or three where they divide the rows of data. Else one, which units that take
# registers in halves load as fast as they multiply: on 2 threads of a Zen 4, 80 rows by 1300 x 1024 take
# 0.86 of `matmul`'s time, 112 by 3072 x 768 0.92; compiled for AVX2 200 by 1024 x 1024 1.8.
_VECTORS, _OF_HALVES = (2, 3), (1,)

# Tiles of 16 registers wait for a weight that comes from memory longer than `dots` do, which fetch what comes
# next: with AVX2 16 rows by 4096 x 4096 take 1.23 of the time, 32 rows 0.89.
_FEW_ROWS, _MANY_REGISTERS = 16, 32

# From so many rows on a weight that lies in an L3 far away is turned and packed: what tiles read of it as it
# lies comes late. On 2 threads of an Emerald Rapids 128 rows by 768 x 768, 3072 x 768 and 768 x 3072 take
# 0.90, 0.95 and 0.97 of the time so, 160 by 768 x 3072 and 1024 x 4096 0.84 and 0.90, 256 by 1024 x 1024
# 0.91, 512 by 768 x 3072 0.93; 96 by 768 x 768 and 3072 x 768 0.98 and 1.01, by 1024 x 4096 1.2.
_MANY_ROWS = 128

# Rows of the weight in a block: what turns their results is in L1. On 2 threads of a Zen 4, 128 rows by
# 3072 x 768: 3.10 ms with 16, 3.01 with 64, 3.06 with 128 and 256.
_BLOCK_ROWS = 64


def schedule_swapped(sch: s_tir.Schedule, *, squares: int, **knobs: int) -> None:
    """Rewrite a product in the form of `forms.swapped` in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in the form that `forms.swapped.restate` makes.
    squares : int
        Rows and columns of a square that is turned in registers.
    **knobs : int
        Those of `register_tile`, or of `schedule_matrix_unit`; tiles and blocks divide the rows, and are
        whole squares.
    """
    panel = (schedule_matrix_unit if "depth" in knobs else register_tile)(sch, **knobs)
    turned = sch.get_sblock(TURNED)
    sch.reverse_compute_at(turned, panel)
    if OUTPUT in block_names(sch):
        output = sch.get_sblock(OUTPUT)
        sch.reverse_compute_at(output, panel)
        vectorize_last(sch, output, squares)
    transpose_last(sch, turned, squares, str(sch.get(turned).writes[0].source.dtype))


def swapped_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the tiles of a product whose operands change places; None where it is not worth it.

    It is where data and result have fewer elements than the weight, and are whole vectors. Those of 16 bits
    are left to `widened_matmul`: 32 rows by 512 x 512 and by 2048 x 1024 take 1.5 and 1.6 of its time. Many
    rows by a weight from an L3 far away are left to `matmul`.
    """
    found = find_swapped(func)
    if found is None:
        return None
    rows, columns, depth = found.nest.row_extent, found.nest.columns, found.nest.depth
    if rows * (depth + columns) >= depth * columns:
        return None
    nest = find_contraction(restate(func))
    assert nest is not None, "the form is a product"
    choice = tile_choice(nest, target)
    if choice.lanes < choice.machine.lanes(nest.dtype):  # Rows of half a vector are as fast by `dots`.
        return None
    squares = tuple(s for s in _SQUARES if s <= choice.lanes and columns % s == 0)
    if not squares or rows % choice.lanes:
        return None
    is_from_memory = found.nest.weight_bytes > choice.machine.l3_bytes
    if is_from_memory and rows <= _FEW_ROWS and choice.machine.vector_registers < _MANY_REGISTERS:
        return None
    default = _default(choice, squares[-1], is_from_memory)
    if default is None:
        return None
    space = with_squares(tile_space(choice, default), squares, rows, columns)
    far = choice.machine.has_far_l3 and rows >= _MANY_ROWS
    return replace(space, preferred=not (far or has_halves(found.nest)))


def with_squares(space: KnobSpace, squares: tuple[int, ...], rows: int, columns: int) -> KnobSpace:
    """Return a space of tiles whose results are turned in squares, the last of these by default."""
    knob = Knob("squares", squares, "rows and columns of a square that is turned")
    space = space.in_form(knob, squares[-1])
    whole = Constraint(
        f"nr * block_columns divides the rows ({rows}), mr * block_rows the columns ({columns}), "
        "and both are whole squares",
        lambda k: _is_whole(k, rows, columns),
    )
    return KnobSpace(space.knobs, (*space.constraints, whole), space.default)


def _is_whole(knobs: Knobs, rows: int, columns: int) -> bool:
    block, squares = knobs["mr"] * knobs["block_rows"], knobs["squares"]
    parts = rows % (knobs["nr"] * knobs["block_columns"]) == 0 and columns % block == 0
    return parts and knobs["nr"] % squares == 0 and block % squares == 0


def _default(choice: TileChoice, squares: int, is_from_memory: bool) -> dict[str, int] | None:
    """Choose the cheapest tile, of panels that threads share evenly if it can; None where none is whole."""

    def cost(tile: tuple[int, int, int]) -> tuple[bool, float]:
        mr, vectors, _ = tile
        return choice.panels(vectors * choice.lanes) % choice.threads != 0, tile_cost(mr, vectors)

    for widths in (_VECTORS, _OF_HALVES if choice.machine.takes_halves else ()):
        tiles = [tile for vectors in widths for tile in _tiles(choice, vectors, squares)]
        if tiles:
            mr, vectors, block_rows = min(tiles, key=cost)
            nr = vectors * choice.lanes
            blocks, panels = default_blocks(choice, mr, nr), choice.panels(nr)
            if is_from_memory:
                blocks |= {"split_columns": 0, "pack": PACK_FIRST, "block_columns": panels}
            elif not blocks["split_columns"] and choice.row_tiles(mr) > choice.threads * block_rows:
                # Each block would turn the same data again: 32 rows by 692 x 416, blocks of 4, take 2.1 times
                # as long, 48 by 500 x 500 1.15.
                blocks["pack"] = PACK_FIRST
            most = blocks["block_columns"]
            blocks["block_columns"] = next(c for c in range(most, 0, -1) if panels % c == 0)
            return {"lanes": choice.lanes, "mr": mr, "nr": nr, **blocks, "block_rows": block_rows}
    return None


def _tiles(choice: TileChoice, vectors: int, squares: int) -> Iterator[tuple[int, int, int]]:
    """Return rows and vectors of tiles that divide all, and how many of them are a block."""
    nest = choice.nest
    if nest.columns % (vectors * choice.lanes):
        return
    for mr in range(min(ROW_STREAMS, choice.fitting_rows(vectors)), 0, -1):
        near = default_blocks(choice, mr, vectors * choice.lanes)["block_rows"]
        most = min(_BLOCK_ROWS // mr, near)
        whole = [b for b in range(1, most + 1) if nest.row_extent % (mr * b) == 0 and mr * b % squares == 0]
        if whole:
            yield mr, vectors, whole[-1]


SWAPPED = ScheduleRule(
    name="swapped",
    summary="a product whose weight lies along the sum, with data and result turned instead of the weight",
    rewrite=schedule_swapped,
    open_space=swapped_space,
    algorithm=lambda _: "swapped",
)
