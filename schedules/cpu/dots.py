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
from math import ceil
from typing import Any

from tvm import s_tir

from ...machine.dot_instructions import DotInstruction, dot_instruction
from ...machine.facts import Facts, facts
from ..analysis import loops_by_kind, loops_inside
from ..dot_product import instruction_of, use_sums_of_parts, with_instruction
from ..forms.widened import has_halves
from ..nests.contraction import Contraction, find_contraction, weight_exceeds_l2
from ..passes.loop_partition import partition
from ..passes.panel_prefetch import fetch_panels, steps_between
from ..rule import ScheduleRule
from ..space import Constraint, Knob, Knobs, KnobSpace
from ..transforms import inline_blocks
from .tile_choice import FMAS_IN_FLIGHT

# More rows are worth panels: so many where the weight is in L2, in L3, comes from memory. Times over those of
# `matmul`, which turns the weight, on 2 threads of a Zen 4: 16 rows by 3072 x 768 0.84, 24 rows 0.93, 32 rows
# 0.95; by 4096 x 4096 32 rows 0.77, 48 rows 0.81, 64 rows 0.91. With the 16 registers of AVX2 16 rows by
# 3072 x 768 0.78, 24 rows 0.89; by 4096 x 4096 24 rows 0.82, 32 rows 0.90. In L2, 8 rows by 512 x 64 1.25.
_MOST_IN_L2, _MOST_IN_L3, _MOST_FROM_MEMORY = 3, 24, 32
_WITH_MANY_REGISTERS = {_MOST_IN_L3: 32, _MOST_FROM_MEMORY: 64}
# In L2, with 32 registers, a row for so many products of a sum: panels are turned for few rows, and the lanes
# of long sums are seldom added up. On 2 threads of a Xeon 8 and 16 rows by 768 x 768 0.53 and 0.95, by 256 x
# 1024 0.59 and 0.83, by 1024 x 448 0.69 and 0.93, by 256 x 256 1.01 and 1.27, 4 rows of these 0.36 to 0.71.
_PRODUCTS_OF_ROW_IN_L2, _MOST_IN_L2_OF_LONG = 40, 16
# Where a sum ends within a vector lines begin anywhere: a row for so many products, and at most so many. 4
# and 8 rows by 692 x 409 0.77 and 1.01, by 300 x 250 0.98 and 1.31, 8 and 12 by 128 x 777 0.91 and 1.10, 12
# and 24 by 1002 x 1001 0.94 and 1.23.
_PRODUCTS_OF_ROW_CUT, _MOST_CUT = 80, 12
# Where numbers of 16 bits are summed in float32, others widen them once. Over times of `widened_matmul`, on 2
# threads of an Emerald Rapids: 8, 12 and 16 rows by 1000 x 1000 0.94, 1.09 and 1.18, by 4096 x 4096 0.74,
# 0.82 and 1.08, by 512 x 512 0.98 and 1.12; 16 and 24 by 48 x 1024 0.49 and 1.13, by 30 x 700 0.88 and 1.36.
# 64 by 10 x 768 0.77, where a panel would be filled up, by 24 x 512 1.12.
_PRODUCTS_OF_ROW_WIDENED, _MOST_WIDENED, _FEW_COLUMNS, _MOST_OF_FEW_COLUMNS = 28, 10, 128, 16
_MOST_OF_A_VECTOR = 64
# Bytes are copied once more where columns fill no panels.
_MOST_UNTURNED = 64
# Bytes, four of which are multiplied at once, are worth panels sooner. Times over those of `quantized`: by
# 4096 x 4096 16 rows 0.68, 24 rows 0.77, 32 rows 0.90; by 3072 x 768 6 rows 0.87, 12 rows 1.10; by
# 1024 x 1024 6 rows 0.94.
_MOST_ROWS_OF_BYTES, _FEW_ROWS_OF_BYTES, _TIMES_L2 = 32, 6, 4
# Sums that are no whole vectors are read in halves or quarters of these, where panels would be filled up: so
# many rows for instructions of four products and of two. On 2 threads of a Zen 4, over times of `quantized`:
# halves of four, 8, 24 and 40 rows by 1000 x 672 0.32, 0.54 and 0.70, 32 by 4096 x 4064 0.74; halves of two,
# 4 and 8 by 1960 x 1168 0.40 and 0.66, 8 by 4096 x 4080 0.77, with AVX2 8 and 16 by 1960 x 1160 0.88 and
# 1.48; quarters of two, 8 by 444 x 1304 1.27, without VNNI 4 and 8 by 1960 x 1160 0.32 and 0.55. A row takes
# 0.09 to 0.37 of the time of `general`.
_MOST_ROWS_CUT = {(4, 2): 32, (2, 2): 8, (2, 4): 4}
# With more rows than these, tiles of a single one read the weight too often.
_FEW = 8
# The lanes of a vector of partial sums are added one by one: shorter sums spend their time on that.
_LEAST_STEPS = 8
# Nothing else reads a matrix for a single row as fast: 1000 sums of 100 take 0.5 of the time of `matmul`,
# 20000 of 32 and of 64 0.74 and 0.58 (2 threads of a Xeon).
_LEAST_STEPS_OF_ROW = 2
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


def schedule_dots(
    sch: s_tir.Schedule, *, lanes: int, mr: int, nr: int, fetch: int = 0, products: int = 1
) -> None:
    """Rewrite a product of a few rows in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of an unscheduled PrimFunc named ``main``.
    lanes : int
        Elements in a vector.
    mr, nr : int
        Rows and columns of a tile; what is left of them is cut off.
    fetch : int
        1: tiles of rows that meet columns of the weight also ask for the next ones, see `panel_prefetch`.
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
    sch.reorder(*kept, steps, lane, *group)
    if gathered:
        # Conditions that splits bring stay outside of it: `tensorize` wants none.
        parts = sch.blockize(lane)
        *kept, steps = sch.get_loops(parts)
    at = {position: kept[place] for place, position in enumerate(sorted([*nest.rows, nest.column]))}
    row_tile, row = sch.split(at[nest.rows[-1]], [None, mr])
    column_tile, column = sch.split(at[nest.column], [None, nr])
    inner = [] if gathered else [lane]
    sch.reorder(column_tile, *(at[i] for i in nest.rows[:-1]), row_tile, steps, row, column, *inner)
    for loop in (row, column):
        sch.unroll(loop)
    for loop in inner:
        sch.vectorize(loop)
    if nest.is_worth_threads:
        sch.parallel(column_tile)
    for block in (total, *(sch.get_sblock(name) for name in nest.epilogue[-1:])):
        sch.reverse_compute_at(block, row_tile)
        for loop in loops_inside(sch, block, row_tile):
            sch.unroll(loop)
    for loop, extent, width in ((row_tile, nest.row_extent, mr), (column_tile, nest.columns, nr)):
        if extent % width:
            partition(sch, loop)
    if nest.depth % lanes and not gathered:
        partition(sch, steps)
    if fetch:
        fetch_panels(sch, column_tile, [row_tile], steps)
    start = sch.decompose_reduction(parts, steps)
    if gathered:
        (zeros,), (sums,) = sch.get_child_blocks(start), sch.get_child_blocks(parts)
        sch.vectorize(sch.get_loops(zeros)[-1])
        types = nest.data_dtype, nest.weight_dtype
        lane, _ = sch.get_loops(sums)
        use_sums_of_parts(sch, lane, instruction_of(lanes, products, *types), *types)


def dots_space(func: Any, target: Any, most_rows: int | None = None) -> KnobSpace | None:
    """Return the tiles to choose from; None where rows are many, or the weight lies otherwise.

    ``most_rows``: how many rows are not many; None: no more than are not worth panels of the weight.
    """
    nest = find_contraction(func)
    if nest is None:
        return None
    machine, instruction = facts(target), _instruction(nest, target)
    lanes = instruction.lanes if instruction else machine.lanes(nest.dtype)
    registers = machine.vector_registers
    step = instruction.elements if instruction else lanes
    floating = nest.data_dtype.startswith(("float", "bfloat")) and nest.dtype.startswith("float")
    most = _most_rows(nest, machine, instruction) if most_rows is None else most_rows
    if not (floating or instruction) or not _fits(nest, most):
        return None
    # Where there are masks, the last vector of a sum may be a part of one, but of copies (`im2col`).
    masked = machine.has_masks and instruction is None and most_rows is None
    least = _LEAST_STEPS_OF_ROW if nest.has_single_row and instruction is None else _LEAST_STEPS
    if (nest.depth % step and not masked) or nest.depth < least * step:
        return None

    room = registers - (_TEMPORARIES if instruction else 0)
    many = _MANY_PRODUCTS if instruction else _MANY_SUMS

    def fits(mr: int, nr: int) -> bool:
        return mr * nr + min(mr, nr) + 1 <= room

    rows = tuple(r for r in _ROWS if r <= nest.row_extent)
    columns = tuple(c for c in _COLUMNS if c <= nest.columns)

    def cost(tile: tuple[int, int]) -> tuple[float, int]:
        return _cost(nest.row_extent, *tile), -tile[0]

    mr, nr = min((t for t in product(rows, columns) if fits(*t) and _keeps_registers(*t, many)), key=cost)
    tiles = ceil(nest.row_extent / mr)
    shared = steps_between(tiles, nest.depth // step) > 0
    # Where the last vector of a sum is cut off, LLVM would leave the others in memory: 2 to 8 rows by 864 x
    # 2148 take 0.41 to 0.57 of the time without, 4 by 4096 x 4099 0.61 (2 threads of a Zen 5).
    whole = nest.depth % lanes == 0
    fetch = int(shared and whole and nr < nest.columns and _is_worth_fetching(nest, machine))
    space = KnobSpace(
        knobs=(
            Knob("lanes", (lanes,), "elements in a vector of sums"),
            Knob("mr", rows, "rows of a tile"),
            Knob("nr", columns, "columns of a tile"),
            Knob("fetch", (0, 1), "1: tiles that meet columns of the weight also ask for the next ones"),
        ),
        constraints=(
            Constraint("lanes, mr and nr are at least 1", _positive),
            Constraint(
                "fetch is 0, or 1 where tiles of columns follow each other",
                lambda k: k["fetch"] in (0, int(k["nr"] < nest.columns)),
            ),
            Constraint(
                f"lanes divides the sum ({nest.depth}), or is {lanes} where there are masks",
                lambda k: nest.depth % k["lanes"] == 0 or (masked and k["lanes"] == lanes),
            ),
            Constraint(
                f"mr is at most the rows ({nest.row_extent}), and nr the columns ({nest.columns})",
                lambda k: k["mr"] <= nest.row_extent and k["nr"] <= nest.columns,
            ),
            Constraint(
                f"mr * nr sums, the shorter side's vectors and one more fit {room} registers",
                lambda k: fits(k["mr"], k["nr"]),
            ),
        ),
        default={"lanes": lanes, "mr": mr, "nr": nr, "fetch": fetch},
    )
    return with_instruction(space, instruction) if instruction else space


def _cost(rows: int, mr: int, nr: int) -> float:
    """Estimate what a column takes: loads, and too few in flight, also in a tile of what is left of rows."""
    whole, left = divmod(rows, mr)
    return sum(
        height * (1 + 1 / height + 1 / nr) / min(1, height * nr / FMAS_IN_FLIGHT)
        for height in [mr] * whole + [left] * (left > 0)
    )


def _keeps_registers(mr: int, nr: int, many: int) -> bool:
    return mr * nr <= (many if mr < nr else _MOST_SUMS)


def _positive(knobs: Knobs) -> bool:
    return min(knobs["lanes"], knobs["mr"], knobs["nr"]) >= 1


def _fits(nest: Contraction, most_rows: int) -> bool:
    plain = nest.plain and not nest.batch and not nest.rest and nest.staged is None
    contiguous = nest.data_channel == nest.data_rank - 1 or nest.has_single_row
    along = nest.weight_axes[-1] == nest.reductions[-1] and contiguous
    few = nest.all_rows <= most_rows
    return plain and along and few and len(nest.reductions) == 1 and not nest.constant_weight


def _is_worth_fetching(nest: Contraction, machine: Facts) -> bool:
    """Tell whether tiles would wait for the weight; one row does so little that L3 keeps up with it.

    By 1024 x 1024 and 3072 x 768, 1 row takes 1.16 and 1.14 of the time with fetches on 2 threads of a Zen 4,
    4 rows by 1024 x 1024 0.83; by 4096 x 4096, from memory, 1 row takes 0.87.
    """
    return nest.weight_bytes > machine.l3_bytes if nest.has_single_row else weight_exceeds_l2(nest, machine)


def _most_rows(nest: Contraction, machine: Facts, instruction: DotInstruction | None) -> int:
    """Return how many rows are not worth panels of the weight."""
    lanes = machine.lanes(nest.dtype)
    cut = nest.depth % lanes != 0
    if instruction and instruction.lanes < lanes:
        return _MOST_ROWS_CUT[instruction.products, lanes // instruction.lanes]
    if has_halves(nest):
        if nest.columns <= lanes and not cut:
            return _MOST_OF_A_VECTOR
        most = _MOST_OF_FEW_COLUMNS if nest.columns <= _FEW_COLUMNS else _MOST_WIDENED
        return max(0 if cut else _MOST_IN_L2, min(nest.depth // _PRODUCTS_OF_ROW_WIDENED, most))
    if nest.weight_dtype != nest.dtype and nest.columns % (2 * lanes):
        return _MOST_UNTURNED
    if nest.dtype == "int32":
        far = nest.weight_bytes > _TIMES_L2 * machine.l2_bytes
        return _MOST_ROWS_OF_BYTES if far else _FEW_ROWS_OF_BYTES
    if cut:
        return max(_MOST_IN_L2, min(nest.depth // _PRODUCTS_OF_ROW_CUT, _MOST_CUT))
    if not weight_exceeds_l2(nest, machine):
        many = machine.vector_registers >= _MANY_REGISTERS
        long = min(nest.depth // _PRODUCTS_OF_ROW_IN_L2, _MOST_IN_L2_OF_LONG) if many else 0
        return max(_MOST_IN_L2, long)
    most = _MOST_FROM_MEMORY if nest.weight_bytes > machine.l3_bytes else _MOST_IN_L3
    return _WITH_MANY_REGISTERS[most] if machine.vector_registers >= _MANY_REGISTERS else most


def _instruction(nest: Contraction, target: Any) -> DotInstruction | None:
    """Return what sums several products of integers, where the CPU has it."""
    if nest.dtype != "int32" or not nest.data_first:
        return None
    return dot_instruction(target, nest.data_dtype, nest.weight_dtype, nest.depth)


DOTS = ScheduleRule(
    name="dots",
    summary="a few rows by a matrix that is contiguous along the sum: dot products side by side",
    rewrite=schedule_dots,
    open_space=dots_space,
)
