"""A few rows by a matrix that exceeds the caches: it is read once, in whole stretches of memory.

Before::

    for row, column, k:  out[row, column] += data[row, k] * weight[k, column]

After::

    for a thread's columns (parallel):
        out = 0
        for k // depth:
            for tiles of columns:
                for k % depth, rows (unrolled), vectors:  out[rows, tile] += data[row, k] * weight[k, tile]

The outputs stay in L1 or L2; ``depth`` rows of the weight are read side by side, each from one end to the
other. A register tile over the whole sum, as `matmul` has it, would read a few columns of every row: a page
for a line.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import s_tir

from ...machine.facts import facts
from ..contraction import Contraction, find_contraction
from ..rule import ScheduleRule
from ..space import Constraint, Knob, KnobSpace
from ..transforms import inline_blocks, vectorize_last

# More rows are as fast by tiles that keep their sums: on 2 threads of a Zen 5, by 4096 x 4096, 1 row takes
# 1.9 ms (6.6 by `matmul`), 4 rows 1.9 (3.3), 8 rows 4.3 (6.8), 16 rows 7.1 (6.5).
_MOST_ROWS = 8
_DEPTHS = (4, 8, 16, 32)
_DEPTH = 8
# Sums in a tile: enough to hide the latency of a multiply-add.
_SUMS = 8
_VECTORS = (1, 2, 3, 4, 6, 8)


def schedule_few_rows(sch: s_tir.Schedule, *, lanes: int, vectors: int, depth: int, shares: int) -> None:
    """Rewrite a product of a few rows in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of an unscheduled PrimFunc named ``main``.
    lanes : int
        Elements in a vector.
    vectors : int
        Vectors of columns in a tile.
    depth : int
        Rows of the weight that are read side by side.
    shares : int
        Parts of the columns that threads take.
    """
    nest = find_contraction(sch.mod["main"])
    assert nest is not None, "the rule's space says that there is one"
    inline_blocks(sch, [*nest.prologue, *nest.epilogue[:-1]])
    block = sch.get_sblock(nest.block)
    loops = sch.get_loops(block)
    rows, (along,) = [loops[i] for i in nest.rows], [loops[i] for i in nest.reductions]
    share, tile, vector, lane = sch.split(loops[nest.column], [shares, None, vectors, lanes])
    deep, step = sch.split(along, [None, depth])
    sch.reorder(share, deep, tile, step, *rows, vector, lane)
    for loop in (step, *rows, vector):
        sch.unroll(loop)
    sch.vectorize(lane)
    sch.parallel(share)
    if nest.epilogue:
        vectorize_last(sch, sch.get_sblock(nest.epilogue[-1]), lanes)
    sch.decompose_reduction(block, deep)


def few_rows_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the tiles to choose from; None where rows are many, or the weight is small or lies otherwise."""
    nest = find_contraction(func)
    if nest is None or not _fits(nest):
        return None
    machine = facts(target)
    lanes, count = machine.lanes(nest.dtype), nest.outer_rows * nest.row_extent
    shares, item = machine.cores, machine.vector_bits // 8 // machine.lanes(nest.weight_dtype)
    if (
        nest.columns % (lanes * shares)
        or nest.columns * nest.depth * item <= machine.l2_bytes * machine.cores
    ):
        return None
    free = machine.vector_registers - 2

    def whole(knobs: Any) -> bool:
        return nest.columns % (knobs["lanes"] * knobs["vectors"] * knobs["shares"]) == 0

    widths = tuple(v for v in _VECTORS if nest.columns % (v * lanes * shares) == 0 and v * count <= free)
    depths = tuple(d for d in _DEPTHS if nest.depth % d == 0)
    if not widths or not depths:
        return None
    return KnobSpace(
        knobs=(
            Knob("lanes", (lanes,), "elements in a vector"),
            Knob("vectors", widths, "vectors of columns in a tile"),
            Knob("depth", depths, "rows of the weight that are read side by side"),
            Knob("shares", (shares, 2 * shares), "parts of the columns that threads take"),
        ),
        constraints=(
            Constraint(f"lanes * vectors * shares divides the columns ({nest.columns})", whole),
            Constraint(f"depth divides the sum ({nest.depth})", lambda k: nest.depth % k["depth"] == 0),
            Constraint(f"vectors * {count} rows fit the registers", lambda k: k["vectors"] * count <= free),
        ),
        default={
            "lanes": lanes,
            "vectors": next((v for v in widths if v * count >= _SUMS), widths[-1]),
            "depth": max(d for d in depths if d <= max(_DEPTH, depths[0])),
            "shares": shares,
        },
    )


def _fits(nest: Contraction) -> bool:
    plain = (
        nest.plain and not nest.batch and not nest.rest and nest.staged is None and len(nest.reductions) == 1
    )
    along = nest.weight_axes[-1] == nest.column and nest.output_column == nest.output_rank - 1
    return plain and along and prod(nest.extents[i] for i in nest.rows) <= _MOST_ROWS


FEW_ROWS = ScheduleRule(
    name="few_rows",
    summary="a few rows by a large matrix, which is read in whole stretches of memory",
    rewrite=schedule_few_rows,
    open_space=few_rows_space,
)
