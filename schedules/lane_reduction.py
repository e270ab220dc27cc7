"""Reducing a contiguous row in vectors: interleaved parts first, as many as fill registers, then these."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, prod
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.sym import Analyzer

from .analysis import has_condition, iterations, loops_by_kind, loops_inside
from .passes.loop_partition import partition

# Partial results are reduced in steps of so many: long vectors, few steps.
_AT_ONCE = 4

# Cycles until the result of an addition can be used.
_LATENCY = 4

# LLVM unrolls a loop of so few steps and hands what it summed to the loop that reads a part of it: of a
# vector of several registers it takes the part out bit by bit. Register by register softmax of rows of 128
# takes 0.94 of the time, on 2 threads of a Zen 4, layer_norm of 128 0.88, of 512 0.95. With more steps LLVM
# keeps what it loaded for the next loop, in memory: layer_norm of 768 takes 1.07.
_FEW_STEPS = 8


def reduce_in_lanes(
    sch: s_tir.Schedule, name: str, lanes: int, vectors: int, width: int | None = None
) -> dict[str, int]:
    """Reduce interleaved parts of a row first, in vectors; then these in a few steps, down to the result.

    ``width``: how many parts; by default what is fastest. Returns the blocks of partial results, each with
    how many of its dimensions count parts.
    """
    block = sch.get_sblock(name)
    if len(sch.get(block).writes) > 1:
        # TVM factors no reduction that keeps a value and its position.
        return {}
    _, reduced = loops_by_kind(sch, block, 0)
    axes = [int(sch.get(loop).extent) for loop in reduced]
    along = sch.fuse(*reduced) if len(reduced) > 1 else reduced[0]
    rank = len(sch.get(block).writes[0].source.shape)
    found: dict[str, int] = {}
    for step in _steps(width or best_width(prod(axes), lanes, vectors, axes)):
        _, part = sch.split(along, [None, step])
        block = sch.rfactor(part, rank)
        (along,) = loops_by_kind(sch, block, 0)[1]
        found[str(sch.get(block).name_hint)] = len(found) + 1
    return found


def arrange_parts(
    sch: s_tir.Schedule, name: str, dimensions: int, depth: int, lanes: int = 0, piece: int = 0
) -> Any:
    """Order the loops of partial results inside ``depth`` others: rows, what is left of the sum, the parts.

    ``dimensions``: as many of its first loops count parts, which become one vector; ``lanes``: where the
    steps are few, vectors of so many; ``piece``: elements of a row that lie together, where others lie
    between: a piece of each row is then taken before the next of any. Returns the loop over what is left of
    the sum, or of a piece, or None.
    """
    block = sch.get_sblock(name)
    kept, reduced = loops_by_kind(sch, block, depth)
    parts, rows = kept[:dimensions], kept[dimensions:]
    width, pieces = iterations(sch, parts), []
    if piece and piece % width == 0:
        *pieces, reduced[0] = sch.split(reduced[0], [None, piece // width])
    sch.reorder(*pieces, *rows, *reduced, *parts)
    part = sch.fuse(*parts)
    steps = iterations(sch, (*pieces, *reduced))
    few = lanes and 1 < steps <= _FEW_STEPS and not has_condition(sch, name)
    if few and width > lanes and width % lanes == 0:
        vectors, part = sch.split(part, [None, lanes])
        sch.unroll(vectors)
    sch.vectorize(part)
    if reduced and has_condition(sch, name):
        partition(sch, reduced[0])
    if reduced:
        sch.decompose_reduction(block, [*pieces, *reduced][0])
    return reduced[0] if reduced else None


def vectors_of_parts(
    sch: s_tir.Schedule, computed: str, name: str, dimensions: int, depth: int, lanes: int
) -> int:
    """Return how many vectors of a row are to be computed at once: as many as a reduction has parts.

    Parameters
    ----------
    computed, name : str
        A block, and that of partial results that follows it.
    dimensions : int
        As many of the first loops of ``name`` count parts; 0 where it has none.
    depth : int
        Loops around both.
    lanes : int
        Elements in a vector.

    Returns
    -------
    int
        0 where elements are not computed one by one, or their row is not whole parts, or shorter than what
        is reduced: see `whole_rows`.
    """
    block = sch.get_sblock(computed)
    readers = [str(sch.get(reader).name_hint) for reader in sch.get_consumers(block)]
    kept, reduced = loops_by_kind(sch, block, depth)
    if not dimensions or name not in readers or reduced or not kept:
        return 0
    loops, sums = loops_by_kind(sch, sch.get_sblock(name), depth)
    parts, elements = loops[:dimensions], kept[len(loops) - dimensions :]
    width, length = iterations(sch, parts), iterations(sch, elements)
    if not elements or width * iterations(sch, sums) != length:
        # One value a row, as a mean is, or less than all of it.
        return 0
    return width // lanes if width % lanes == 0 == int(sch.get(kept[-1]).extent) % width else 0


def reduce_as_computed(sch: s_tir.Schedule, name: str, steps: Any) -> None:
    """Reduce parts of a row in the loop that computes an element of each: these are still in registers."""
    block = sch.get_sblock(name)
    sch.reverse_compute_at(block, steps)
    sch.vectorize(sch.fuse(*loops_inside(sch, block, steps)))
    sch.decompose_reduction(block, steps)


def best_width(length: int, lanes: int, vectors: int, axes: Sequence[int] = ()) -> int:
    """Return how many interleaved parts of a row to reduce: a divisor of its length.

    Only whole parts, because TVM loses the condition of an incomplete one when it moves the block. A vector
    of any number of elements will do: LLVM fills the last register in part. But three registers are none of
    its types: softmax of rows of 192, by 48 with AVX-512, took 2.5 times as long. The cost in cycles is that
    of the additions, a register or the latency each, and of the steps in which the parts are reduced. Where a
    row is several ``axes``, of 8 channels of 56 by 56 say, TVM must see that a part lies in one piece. Of
    three axes, as those of group_norm, parts that fill a register and part of another take long: they are
    part of one then, or whole ones, if need be twice as many. On 2 threads of a Xeon, time over that of
    others: 8 channels of 56 by 56 0.53 (128 elements for 56), 10 of 14 by 14 0.29 (14 for 40).
    """
    volume = len(axes) > 2
    widths = [
        w
        for w in range(1, (1 + volume) * vectors * lanes + 1)
        if length % w == 0 and w < length and (w % lanes or (w // lanes).bit_count() == 1)
    ] or [1]

    def cost(width: int) -> tuple[bool, int]:
        return volume and width > lanes and width % lanes > 0, _cycles(length, width, lanes)

    widths.sort(key=cost)
    return next(w for w in widths if len(axes) < 2 or _lies_in_one_piece(w, tuple(axes)))


@lru_cache(maxsize=256)
def _lies_in_one_piece(width: int, axes: tuple[int, ...]) -> bool:
    """Tell whether TVM sees that so many elements of a row of several axes are consecutive.

    32 elements of 8 channels of 56 by 56 begin anywhere in a line and end in the next, and their indices do
    not simplify to one: TVM then reads them one by one.
    """
    analyzer, length = Analyzer(), prod(axes)
    step, lane = (tirx.Var(name, "int64") for name in ("step", "lane"))
    for variable, extent in ((step, length // width), (lane, width)):
        analyzer.bind(variable, Range(_number(0), _number(extent)))
    element, place = step * _number(width) + lane, _number(0)
    for at, extent in enumerate(axes):
        along = tirx.floordiv(element, _number(prod(axes[at + 1 :])))
        place = place * extent + analyzer.simplify(tirx.floormod(along, _number(extent)) if at else along)
    return bool(analyzer.can_prove_equal(place, element))


def _number(value: int) -> Any:
    return tirx.IntImm("int64", value)


def is_faster_lengthened(axes: Sequence[int], longer: Sequence[int], lanes: int, vectors: int) -> bool:
    """Tell whether a row takes fewer cycles with longer axes (see `forms.whole_rows`)."""
    now, then = (
        _cycles(prod(each), best_width(prod(each), lanes, vectors, each), lanes) for each in (axes, longer)
    )
    return then < now


def _cycles(length: int, width: int, lanes: int) -> int:
    return length // width * max(ceil(width / lanes), _LATENCY) + _LATENCY * sum(_steps(width))


def _steps(width: int) -> list[int]:
    """Cut a width into factors of at most ``_AT_ONCE`` where it has such."""
    steps = []
    while width > 1:
        step = next((s for s in range(_AT_ONCE, 1, -1) if width % s == 0), None)
        step = step or next(s for s in range(_AT_ONCE + 1, width + 1) if width % s == 0)
        steps.append(step)
        width //= step
    return steps
