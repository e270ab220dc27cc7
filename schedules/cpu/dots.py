"""A few rows by a matrix that is contiguous along the sum: dot products, several of them side by side.

Before::

    for row, column, k:  out[row, column] += data[row, k] * weight[column, k]

After::

    for tiles of nr columns (parallel), tiles of mr rows:
        parts[mr, nr, lanes] = 0
        for k // lanes:
            for mr rows, nr columns (unrolled), lanes (a vector):  parts += data[row, k] * weight[column, k]
        out = epilogue(the sum of each vector's lanes)

The matrix is read once, as it lies; a register tile, as `matmul` has it, would transpose it into panels
first. Every vector of data serves nr multiply-adds, and every vector of the weight mr. Where the CPU sums
several integer products in each lane (AVX-512 VNNI, or vpmaddwd of what is widened), a step is as long.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from tvm import s_tir

from ...machine.dot_instructions import DotInstruction, dot_instruction
from ...machine.facts import Facts, facts
from ..analysis import loops_by_kind, loops_inside
from ..contraction import Contraction, find_contraction, weight_exceeds_l2
from ..dot_product import instruction_of, use_sums_of_parts, with_instruction
from ..rule import ScheduleRule
from ..space import Constraint, Knob, Knobs, KnobSpace
from ..transforms import inline_blocks
from .tile_choice import FMAS_IN_FLIGHT

# More rows are worth panels: so many where the weight is in cache, so many where it comes from memory. On 2
# threads of a Zen 3, by 4096 x 4096: 1 row takes 2.2 ms (3.3 by `general`), 3 rows 2.2 (6.5), 4 rows 2.2 (3.2
# by `matmul`), 6 rows 3.0 (3.5), 8 rows 3.4 (4.0), 12 rows 4.9 (5.4), 16 rows 6.2 (6.2); 8 rows by 512 x 64
# take 7.1 us (5.7). 32 registers hold tiles that read less: on a Zen 4 16 rows take 3.9 ms (5.3), 24 rows 4.9
# (6.2), 32 rows 7.0 (8.4), 48 rows 11.5 (10.7); but by 3072 x 768, which L3 holds, 16 rows 0.60 (0.56).
_MOST_IN_CACHE, _MOST_ROWS, _MOST_IN_LARGE_TILES = 3, 12, 32
# Panels that columns do not fill cannot be turned in registers. By 1000 x 2048, 12 rows take 0.51 ms (1.16 by
# `matmul`), 32 rows 1.47 (1.86), 128 rows 5.7 (4.3); by 10 x 512, 32 rows 4 us (11).
_MOST_UNTURNED = 32
# Bytes, four of which are multiplied at once, are worth panels sooner. On a Zen 4, in ms by dots (by
# `quantized`): 16 rows by 4096 x 4096 1.09 (1.40), 24 rows 2.02 (2.00); 4 rows by 3072 x 768 0.074 (0.065),
# by 1024 x 1024 0.0286 (0.0295), 6 rows 0.0375 (0.0346); 1 row by 1000 x 2048 0.014 (0.049 by `general`).
_MOST_ROWS_OF_BYTES, _TIMES_L2 = 16, 4
# With more rows than these, tiles of a single one read the weight too often.
_FEW = 8
# The lanes of a vector of partial sums are added one by one: shorter sums spend their time on that.
_LEAST_STEPS = 8
# With more sums LLVM loads so far ahead that they leave their registers, and with as many unless the columns,
# whose vectors it keeps, are the fewer. Of 12 rows 6 x 4 sums take 0.92 of the time of 4 x 4, on a Zen 4, but
# 3 x 8 twice as long.
_MANY_SUMS, _MOST_SUMS = 2 * FMAS_IN_FLIGHT, 3 * FMAS_IN_FLIGHT
# Integers are widened, or summed in two instructions: 2 x 6 sums of 16 registers leave them, on a Zen 4 2 x 8
# of 32 take 1.4 times as long as 2 x 4.
_MANY_PRODUCTS, _TEMPORARIES = 12, 3
_MANY_REGISTERS = 32
_ROWS = tuple(range(1, _FEW + 1))
_COLUMNS = (1, 2, 3, 4, 6, 8)


def schedule_dots(sch: s_tir.Schedule, *, lanes: int, mr: int, nr: int, products: int = 1) -> None:
    """Rewrite a product of a few rows in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of an unscheduled PrimFunc named ``main``.
    lanes : int
        Elements in a vector.
    mr, nr : int
        Rows and columns of a tile, divisors of their axes.
    products : int
        Products of integers that an instruction sums in each lane.
    """
    nest = find_contraction(sch.mod["main"])
    assert nest is not None, "the rule's space says that there is one"
    inline_blocks(sch, [*nest.prologue, *nest.epilogue[:-1]])
    total = sch.get_sblock(nest.block)
    loops = sch.get_loops(total)
    gathered = [products] if products > 1 else []
    _, lane, *_ = sch.split(loops[nest.reductions[0]], [None, lanes, *gathered])
    parts = sch.rfactor(lane, nest.output_rank)
    (*kept, lane), (steps, *group) = loops_by_kind(sch, parts, 0)
    at = {position: kept[place] for place, position in enumerate(sorted([*nest.rows, nest.column]))}
    row_tile, row = sch.split(at[nest.rows[-1]], [None, mr])
    column_tile, column = sch.split(at[nest.column], [None, nr])
    sch.reorder(column_tile, *(at[i] for i in nest.rows[:-1]), row_tile, steps, row, column, lane, *group)
    for loop in (row, column):
        sch.unroll(loop)
    if not gathered:
        sch.vectorize(lane)
    if nest.is_worth_threads:
        sch.parallel(column_tile)
    for block in (total, *(sch.get_sblock(name) for name in nest.epilogue[-1:])):
        sch.reverse_compute_at(block, row_tile)
        for loop in loops_inside(sch, block, row_tile):
            sch.unroll(loop)
    start = sch.decompose_reduction(parts, steps)
    if gathered:
        sch.vectorize(sch.get_loops(start)[-1])
        types = nest.data_dtype, nest.weight_dtype
        use_sums_of_parts(sch, lane, instruction_of(lanes, products, *types), *types)


def dots_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the tiles to choose from; None where rows are many, or the weight lies otherwise."""
    nest = find_contraction(func)
    if nest is None:
        return None
    machine, instruction = facts(target), _instruction(nest, target)
    lanes, registers = machine.lanes(nest.dtype), machine.vector_registers
    step = instruction.elements if instruction else lanes
    floating = nest.data_dtype.startswith(("float", "bfloat")) and nest.dtype.startswith("float")
    if not (floating or instruction) or not _fits(nest, machine):
        return None
    if nest.depth % step or nest.depth < _LEAST_STEPS * step:
        return None

    room = registers - (_TEMPORARIES if instruction else 0)
    many = _MANY_PRODUCTS if instruction else _MANY_SUMS

    def fits(mr: int, nr: int) -> bool:
        return mr * nr + min(mr, nr) + 1 <= room

    rows = tuple(r for r in _ROWS if nest.row_extent % r == 0)
    columns = tuple(c for c in _COLUMNS if nest.columns % c == 0)
    mr, nr = min((t for t in product(rows, columns) if fits(*t) and _keeps_registers(*t, many)), key=_cost)
    if mr == 1 and nest.row_extent > _FEW:
        return None
    space = KnobSpace(
        knobs=(
            Knob("lanes", (lanes,), "elements in a vector of sums"),
            Knob("mr", rows, "rows of a tile"),
            Knob("nr", columns, "columns of a tile"),
        ),
        constraints=(
            Constraint("lanes, mr and nr are at least 1", _positive),
            Constraint(f"lanes divides the sum ({nest.depth})", lambda k: nest.depth % k["lanes"] == 0),
            Constraint(
                f"mr divides the row axis ({nest.row_extent})", lambda k: nest.row_extent % k["mr"] == 0
            ),
            Constraint(f"nr divides the columns ({nest.columns})", lambda k: nest.columns % k["nr"] == 0),
            Constraint(
                f"mr * nr sums, the shorter side's vectors and one more fit {room} registers",
                lambda k: fits(k["mr"], k["nr"]),
            ),
        ),
        default={"lanes": lanes, "mr": mr, "nr": nr},
    )
    return with_instruction(space, instruction) if instruction else space


def _cost(tile: tuple[int, int]) -> tuple[float, int]:
    """Estimate what a product takes: loads, and too few in flight; of equals, the weight is read less."""
    mr, nr = tile
    return (1 + 1 / mr + 1 / nr) / min(1, mr * nr / FMAS_IN_FLIGHT), -mr


def _keeps_registers(mr: int, nr: int, many: int) -> bool:
    return mr * nr <= (many if mr < nr else _MOST_SUMS)


def _positive(knobs: Knobs) -> bool:
    return min(knobs.values()) >= 1


def _fits(nest: Contraction, machine: Facts) -> bool:
    plain = nest.plain and not nest.batch and not nest.rest and nest.staged is None
    along = nest.weight_axes[-1] == nest.reductions[-1] and nest.data_channel == nest.data_rank - 1
    few = nest.outer_rows * nest.row_extent <= _most_rows(nest, machine)
    return plain and along and few and len(nest.reductions) == 1 and not nest.constant_weight


def _most_rows(nest: Contraction, machine: Facts) -> int:
    """Return how many rows are not worth panels of the weight."""
    if nest.columns % (2 * machine.lanes(nest.dtype)):
        return _MOST_UNTURNED
    if nest.dtype == "int32":
        return _MOST_ROWS_OF_BYTES if nest.weight_bytes > _TIMES_L2 * machine.l2_bytes else _MOST_IN_CACHE
    if machine.vector_registers >= _MANY_REGISTERS and nest.weight_bytes > machine.l3_bytes:
        return _MOST_IN_LARGE_TILES
    return _MOST_ROWS if weight_exceeds_l2(nest, machine) else _MOST_IN_CACHE


def _instruction(nest: Contraction, target: Any) -> DotInstruction | None:
    """Return what sums several products of integers, where the CPU has it."""
    if nest.dtype != "int32" or not nest.data_first:
        return None
    return dot_instruction(target, nest.data_dtype, nest.weight_dtype)


DOTS = ScheduleRule(
    name="dots",
    summary="a few rows by a matrix that is contiguous along the sum: dot products side by side",
    rewrite=schedule_dots,
    open_space=dots_space,
)
