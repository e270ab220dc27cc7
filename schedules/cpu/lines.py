"""Windows along lines, or across them: depthwise convolution, channels first; averages of odd channels.

The function begins in `forms.lines`: lines are made whole vectors long. After::

    for n, c, blocks of output lines (parallel):
        make the input lines of the block, padded and longer     # in L1 or L2, where they are read at once
        for tiles of lines:
            for tiles of vectors along them:
                acc[rows, vectors] = 0
                for j:
                    for row, i (unrolled):  acc[row, :] += wide[..] * w[i, j]    # rows share lines
            for row, q:  y[p, q] = epilogue(acc[row, q])
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from tvm import s_tir
from tvm.tirx import IterVar

from ...machine.element import element_bytes
from ...machine.facts import Facts, facts
from ..analysis import block_names, keeps_shape_after, static_extents
from ..expressions import index_variables, loads_of
from ..forms.lines import CROPPED, SUMS, WIDE, Lines, find_lines
from ..passes.line_phases import mark_phases
from ..passes.loop_partition import partition
from ..rule import ScheduleRule
from ..space import Constraint, Knob, Knobs, KnobSpace
from ..transforms import LEAST_PARALLEL_SUMS, inline_blocks
from .even_parts import LEAST_LANES, divisors
from .separable import even_lines
from .window import UNROLLED_TAPS

# Vectors and lines of a tile: sums of one are added up one after another.
_VECTORS, _ROWS = (1, 2, 3, 4, 6), (1, 2, 4, 6, 7, 8)
# Multiply-adds of a tile that are unrolled, at most: 31x31 with 8 lines takes 0.29 of the time that it takes
# with one, with 8 by 2 vectors 0.93.
_UNROLLED = 256
# Windows of fewer lines read little again; beyond L1, or strided, they are faster with few lines in a tile.
_LEAST_TAPS, _FEW_ROWS = 5, 2


def schedule_lines(
    sch: s_tir.Schedule, *, lanes: int, vectors: int, lines: int, phases: int = 1, rows: int = 1
) -> None:
    """Rewrite a window along lines, in the form of `forms.lines`, in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in that form.
    lanes : int
        Elements in a vector: names the form.
    vectors : int
        Vectors of a line in a tile.
    lines : int
        Output lines in a block, whose input is padded at a time.
    phases : int
        Phases in which lines are padded: names the form.
    rows : int
        Output lines in a tile.
    """
    wide, sums, tail = blocks_of_lines(sch)
    extents = static_extents(sch, SUMS) or ()
    taps = len(extents) - len(sch.get_loops(tail))
    loops = list(sch.get_loops(sums))
    *outer, line, pixel = loops[: len(loops) - taps]
    blocks, line = sch.split(line, [None, lines])
    tile, vector, lane = sch.split(pixel, [None, vectors, lanes])
    window = loops[len(loops) - taps :]
    unrolled = window if prod(extents[-taps:]) <= UNROLLED_TAPS else []
    if rows > 1:
        line, row = sch.split(line, [None, rows])
        if lines % rows:
            partition(sch, line)
        along, across = _by_direction(sch, sums, window, phases)
        unrolled = [row, *across]
        window = [*along, *unrolled]
    sch.reorder(*outer, blocks, line, tile, *window, vector, lane)
    sch.reverse_compute_at(tail, line)
    make_lines(sch, wide, blocks, phases, lanes)
    partition(sch, sch.get_loops(tail)[-1])
    for loop in (*unrolled, vector):
        sch.unroll(loop)
    sch.vectorize(lane)
    if prod(extents) >= LEAST_PARALLEL_SUMS:
        sch.parallel(sch.fuse(*outer, blocks))
    sch.decompose_reduction(sums, window[0])


def _by_direction(
    sch: s_tir.Schedule, sums: Any, window: Sequence[Any], phases: int
) -> tuple[list[Any], list[Any]]:
    """Return the loops over a window that go along the line, and those that go across it."""
    block = sch.get(sums)
    (wide,) = (load for load in loads_of(block.body) if str(load.source.name) == WIDE)
    used = index_variables(wide.indices[-1 if phases == 1 else -2 :])
    taps = [v.var in used for v in block.iter_vars if v.iter_type == IterVar.CommReduce]
    along, across = ([loop for loop, at in zip(window, taps, strict=True) if at == d] for d in (True, False))
    return along, across


def blocks_of_lines(sch: s_tir.Schedule) -> tuple[Any, Any, Any]:
    """Inline what is around a window along lines; return what makes lines longer, what sums, what follows."""
    names = block_names(sch)
    before, after = names[: names.index(WIDE)], names[names.index(CROPPED) + 1 :]
    inline_blocks(sch, [*before, *([CROPPED, *after[:-1]] if after else ())])
    wide, sums, tail = (sch.get_sblock(name) for name in (WIDE, SUMS, after[-1] if after else CROPPED))
    return wide, sums, tail


def make_lines(sch: s_tir.Schedule, wide: Any, blocks: Any, phases: int, lanes: int) -> None:
    """Make the lines longer that a block reads, in the loop over blocks, in vectors of so many elements."""
    # Windows that are dilated by as much as they move read one phase only, others one line.
    sch.compute_at(wide, blocks, preserve_unit_loops=True)
    line, *within = sch.get_loops(wide)[-2 if phases == 1 else -3 :]
    if phases > 1:
        phase, along = within
        sch.reorder(along, phase)
        sch.unroll(phase)
        mark_phases(sch, along, lanes)
        within = [along]
    # Where a block is shorter than what lies beyond the image, TVM would cut beyond it.
    if int(sch.get(line).extent) >= _lines_beyond(sch, wide, phases):
        partition(sch, line)
    for loop in within:
        partition(sch, loop)


def _lines_beyond(sch: s_tir.Schedule, wide: Any, phases: int) -> int:
    """Return how many lines an image is longer than what it is made of: a buffer of as many axes."""
    block = sch.get(wide)
    made, rank = block.iter_vars[-2 if phases == 1 else -3].dom.extent, len(block.iter_vars) - (phases > 1)
    sources = (region.source for region in block.reads)
    return int(made) - min((int(s.shape[-2]) for s in sources if len(s.shape) == rank), default=0)


def lines_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the tiles to choose from; None without such a window, or where half a vector holds a line."""
    found = find_lines(func)
    if found is None or found.channels > 1 or found.output_axes or not found.is_worth_longer_lines:
        return None
    if not keeps_shape_after(func, found.name):
        return None
    machine = facts(target)
    widest = machine.lanes(str(found.block.writes[0].source.dtype))
    pixels = found.extents[-1]
    widths = [width for width in (widest, widest // 2, widest // 4) if width >= LEAST_LANES]
    lanes = min(widths, key=lambda width: (ceil(pixels / width), width), default=0)
    if not lanes or 2 * pixels <= lanes:
        return None
    steps = ceil(pixels / lanes)
    # Lines that are taken apart stay in L1: 5x5 by 2 of 112x112 takes 0.64 of the time with 14 of 56.
    most = None if found.apart == 1 else machine.l1_bytes // 2 // _bytes_of_block(found, 1)
    lines = even_lines(found.extents, machine.cores, most)
    vectors, rows = _default_tile(found, machine, lines, steps)
    return space_of_lines(
        found,
        lanes,
        (
            Knob("vectors", tuple(v for v in _VECTORS if steps % v == 0), "vectors of a line in a tile"),
            Knob("rows", tuple(sorted({*_ROWS, rows})), "output lines in a tile"),
        ),
        (
            Constraint(
                f"vectors divides those of a line ({steps})",
                lambda k: k["vectors"] > 0 and steps % k["vectors"] == 0,
            ),
            Constraint(
                f"rows divides lines, or is at most these where they are all ({found.extents[-2]})",
                lambda k: k["rows"] > 0 and _are_whole_tiles(k["rows"], k["lines"], found),
            ),
        ),
        {"vectors": vectors, "lines": lines, "rows": rows},
        {"rows": 1},
    )


def _default_tile(found: Lines, machine: Facts, lines: int, steps: int) -> tuple[int, int]:
    """Choose how many vectors, of how many lines of a block, are summed side by side.

    Two vectors where they divide a line, and as many lines as leave half of the registers for what is read.
    Windows that are a single line, or column, read little again for other lines.
    """
    across = found.taps_across
    vectors = 2 if steps % 2 == 0 and 2 * _ROWS[-1] * across <= _UNROLLED else 1
    if across in (1, prod(found.taps)):
        return vectors, 1
    most = min(machine.vector_registers // 2, _UNROLLED // across) // vectors
    from_afar = found.apart > 1 or _bytes_of_block(found, lines) > machine.l1_bytes // 2
    if across < _LEAST_TAPS and from_afar:
        most = min(most, _FEW_ROWS)
    most = max(1, min(most, lines, _ROWS[-1]))
    fitting = [rows for rows in range(1, most + 1) if _are_whole_tiles(rows, lines, found)]
    return vectors, min(fitting, key=lambda rows: (ceil(lines / rows), rows))


def _are_whole_tiles(rows: int, lines: int, found: Lines) -> bool:
    """Tell whether tiles end where a block does: TVM would compute the next block's lines, from no sums."""
    return lines % rows == 0 or rows <= lines == found.extents[-2]


def _bytes_of_block(found: Lines, lines: int) -> int:
    """Return the bytes of an image's lines, and the results, of a block of lines."""
    *_, all_lines, pixels = found.extents
    image = found.image.source
    read = prod(int(extent) for extent in image.shape[-2:]) * lines // all_lines
    return (read + lines * pixels) * element_bytes(image.dtype)


def space_of_lines(
    found: Lines,
    lanes: int,
    tile: Sequence[Knob],
    constraints: Sequence[Constraint],
    default: Knobs,
    alternative: Knobs | None = None,
) -> KnobSpace:
    """Return the space of tiles of longer lines, whose knobs are those of a tile beside those of lines.

    ``default``: that of a tile, and the lines of a block; ``alternative``: what fits where that does not.
    """
    fixed = {"lanes": lanes, "phases": found.apart}
    lines, apart = found.extents[-2], found.apart
    phases = tuple(sorted({1, apart}))
    return KnobSpace(
        knobs=(
            Knob("lanes", (lanes,), "elements in a vector"),
            *tile,
            Knob("lines", divisors(lines), "output lines in a block"),
            Knob("phases", phases, "phases of a line, each of every so-many-th element"),
        ),
        constraints=(
            Constraint(f"lanes is {lanes}", lambda k: k["lanes"] == lanes),
            *constraints,
            Constraint(
                f"lines divides the output lines ({lines})",
                lambda k: k["lines"] > 0 and lines % k["lines"] == 0,
            ),
            Constraint(
                f"phases is {' or '.join(map(str, phases))}: windows move by {apart}",
                lambda k: k["phases"] in phases,
            ),
        ),
        default={**fixed, **default},
        alternative=alternative and {**fixed, **default, **alternative},
    )


def lines_algorithm(knobs: Knobs) -> str:
    """Name the form of lines of so many elements more, in so many phases."""
    return f"lines_{knobs['lanes']}" + (f"_{knobs['phases']}" if knobs["phases"] > 1 else "")


LINES = ScheduleRule(
    name="lines",
    summary="windows along lines, or across: depthwise convolution, channels first; averages of odd channels",
    rewrite=schedule_lines,
    open_space=lines_space,
    algorithm=lines_algorithm,
)
