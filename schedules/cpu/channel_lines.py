"""Convolution of channels first along lines that lie in memory: vectors are pixels, nothing is transposed.

The function begins in `forms.lines`, as depthwise convolution does in `lines`: lines are made whole vectors
long, in phases where windows move by several pixels. After::

    for n, blocks of output lines (parallel):
        make the input lines of the block, of all channels, padded and longer       # in L2
        for lines, tiles of vectors along the line, tiles of output channels:
            acc[outputs, vectors] = 0
            for c, i, j:  acc[o, :] += wide[c, .., :] * w[o, c, i, j]
            y[o, p, q] = epilogue(acc[o, q])

What a tile reads of an image is read again, from L1, by the tiles of all output channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tvm import s_tir

from ...machine.facts import facts
from ..analysis import static_extents
from ..forms.lines import SUMS, find_lines
from ..nests.channels_first import find_channels_first
from ..passes.loop_partition import partition
from ..rule import ScheduleRule
from ..space import Constraint, Knob, KnobSpace
from ..transforms import LEAST_PARALLEL_SUMS, finish_tile
from .channels_first import CONV2D_CHANNELS_FIRST, WINOGRAD_CHANNELS_FIRST
from .even_parts import dividing_lanes
from .left_pixels import LEFT_PIXELS
from .line_tiles import LineTiles
from .lines import blocks_of_lines, lines_algorithm, make_lines, space_of_lines
from .operand_layout import ends_by_masks
from .tile_choice import VECTOR_CANDIDATES

# Of the direct sum's multiply-adds, the share that others compute, as if by vectors: see `LineTiles`.
_SHARES = ((WINOGRAD_CHANNELS_FIRST, 0.6), (CONV2D_CHANNELS_FIRST, 1.0))
# Of so few channels Winograd's tiles are small, and save less than the result takes to be turned: 112x112 of
# 8 to 256 channels take 1.5 times as long as lines, of 12 to 256 1.36 (2 threads of a Zen 4).
_SHARE_OF_SMALL_TILES = 0.85

_OUTPUTS = (1, 2, 3, 4, 6, 8, 12, 16, 24)


def schedule_channel_lines(
    sch: s_tir.Schedule, *, lanes: int, outputs: int, vectors: int, lines: int, phases: int = 1
) -> None:
    """Rewrite a convolution of channels first, in the form of `forms.lines`, in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in that form.
    lanes : int
        Elements in a vector: names the form.
    outputs : int
        Output channels of a tile.
    vectors : int
        Vectors of a line in a tile.
    lines : int
        Output lines in a block, whose input is padded at a time.
    phases : int
        Phases in which lines are padded: names the form.
    """
    wide, sums, tail = blocks_of_lines(sch)
    shape, work = [int(sch.get(loop).extent) for loop in sch.get_loops(tail)], static_extents(sch, SUMS)
    loops, rank = list(sch.get_loops(sums)), len(shape)
    (images, output, *place), summed = loops[:rank], loops[rank:]
    *others, line, pixel = [images, *place]
    tiles, output = sch.split(output, [None, outputs])
    blocks, line = sch.split(line, [None, lines])
    tile, vector, lane = sch.split(pixel, [None, vectors, lanes])
    sch.reorder(*others, blocks, line, tile, tiles, *summed, output, vector, lane)
    whole = ends_by_masks(str(sch.get(tail).writes[0].source.dtype), lanes)
    finish_tile(sch, tail, tiles, lanes if whole else dividing_lanes(shape[-1], lanes))
    make_lines(sch, wide, blocks, phases, lanes)
    for loop, extent, part in ((tile, shape[-1], vectors * lanes), (tiles, shape[1], outputs)):
        if extent % part:
            partition(sch, loop)
    for loop in (output, vector):
        sch.unroll(loop)
    sch.vectorize(lane)
    shared = sch.fuse(*others, blocks) if others else blocks
    if prod(work or ()) >= LEAST_PARALLEL_SUMS:
        sch.parallel(shared)
    sch.decompose_reduction(sums, summed[0])


def _line_tiles(func: Any, target: Any) -> LineTiles | None:
    """Return the convolution of channels first, of lines of half a vector or more, of a function, or None."""
    found = find_lines(func)
    if found is None or find_channels_first(func) is None:
        return None
    types = {str(buffer.dtype) for buffer in (found.image.source, found.block.writes[0].source)}
    tiles = LineTiles(found, facts(target))
    return tiles if len(types) == 1 and 2 * found.extents[-1] > tiles.lanes else None


def _share_of_others(func: Any, target: Any) -> float | None:
    """Return the share that the next way to compute it takes, None where there is none."""
    for rule, share in _SHARES:
        space = rule.preferred_space(func, target)
        if space is not None:
            sizes = {knob.name: knob.values for knob in space.knobs}.get("m")
            small = rule is WINOGRAD_CHANNELS_FIRST and sizes == (2,)
            return _SHARE_OF_SMALL_TILES if small else share
    return None


def channel_lines_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the tiles to choose from; None without such a convolution, or where another way is quicker."""
    tiles = _line_tiles(func, target)
    if tiles is None or not tiles.reads_weight_from_l2():
        return None
    share = _share_of_others(func, target)
    if share is not None and not tiles.is_quicker(share):
        return None
    outputs, vectors = tiles.best()
    space = space_of_lines(
        tiles.found,
        tiles.lanes,
        (
            Knob("outputs", _up_to(tiles.outputs, _OUTPUTS, outputs), "output channels of a tile"),
            Knob("vectors", _up_to(tiles.steps, VECTOR_CANDIDATES, vectors), "vectors of a line in a tile"),
        ),
        (
            Constraint(
                "outputs and vectors are at least 1, and no more than there are",
                lambda k: 0 < k["outputs"] <= tiles.outputs and 0 < k["vectors"] <= tiles.steps,
            ),
            Constraint(
                "outputs by vectors, and what a step reads, fit the registers",
                lambda k: tiles.fits(k["outputs"], k["vectors"]),
            ),
        ),
        {"outputs": outputs, "vectors": vectors, "lines": tiles.lines()},
    )
    # 3x17 and 5x10 pixels of 64 to 64 channels, 3x3, take 2.1 and 1.5 times as long in lines.
    return replace(space, preferred=LEFT_PIXELS.preferred_space(func, target) is None)


def _up_to(most: int, candidates: Sequence[int], default: int) -> tuple[int, ...]:
    return tuple(sorted({default, *(n for n in candidates if n <= most)}))


CHANNEL_LINES = ScheduleRule(
    name="channel_lines",
    summary="convolution with channels first: tiles of output channels by pixels of a line, as they lie",
    rewrite=schedule_channel_lines,
    open_space=channel_lines_space,
    algorithm=lines_algorithm,
)
