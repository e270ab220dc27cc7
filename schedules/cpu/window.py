"""Windows that slide over an image, each channel for itself: depthwise convolution and pooling.

Channels are last. Before, with a copy of the image padded beforehand::

    for n, p, q, c, i, j:  y[n, p, q, c] += x[n, p * s + i, q * s + j, c] * w[i, j, c]

After::

    for n, blocks of output lines, groups of channels (parallel):
        pad the input lines of the block                       # in L2, where they are read at once
        for channels of the group in steps of vectors, lines, tiles of pixels:
            acc[pixels, vectors] = 0
            for i, j (unrolled):  acc[:, :] += x[..] * w[i, j, :]
            y = epilogue(acc)

The weights of a tap are loaded once for all pixels of a tile, and these share most of what they read. Where
nothing is padded, there is no copy that lies as it is read: the steps go inside the tiles then, and a pixel's
channels are read in one stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import ceil, floor, prod
from typing import Any

from tvm import s_tir

from ...machine.element import element_bytes
from ...machine.facts import LINE_BYTES, Facts, facts
from ...machine.streaming_store import streams
from ..nests.sliding_window import Window, find_window
from ..passes.row_prefetch import fetch_ahead
from ..passes.streaming import STREAM_MARK, exceeds_caches
from ..rule import ScheduleRule
from ..space import Constraint, Knob, Knobs, KnobSpace
from ..transforms import LEAST_PARALLEL_SUMS, finish_tile, inline_blocks, vectorize_last
from .even_parts import divisors

UNROLLED_TAPS = 25
"""More taps than these are a loop: LLVM takes seconds for thousands of instructions."""

# One vector of channels, and as many pixels as share most taps: on 2 threads of a Zen 5, depthwise 3x3 of 144
# channels at 56x56 takes 0.068 ms with 4 or 7 pixels, 0.139 with 28, where registers no longer hold the taps.
_TILE_PIXELS = 8
_PIXELS = (1, 2, 4, 6, 7, 8, 14)
_VECTORS = (1, 2, 3, 4)
_LINES = (1, 2, 4, 7, 8, 14, 16, 28)
# What comes from memory is fetched ahead. On 2 threads of a Zen 4, windows of 50 to 100 MiB: pooling 3x3 0.90
# to 0.98 of the time, by 2 0.96 and 0.99, depthwise 3x3 0.91 to 0.93, by 2 0.93 and 1.0, 5x5 0.83, 7x7 0.97.
# Cycles to copy a vector of the image, and to multiply and add one.
_CYCLES_PADDED, _CYCLES_MULTIPLIED = 1.5, 0.5
# Lines that L2 does not hold until all their channels are padded come from a far L3 again and again. On 2
# threads of a Xeon, 3x3 windows of 112x112 pixels in blocks of fewer lines: 64 channels 0.70 of the time, 96
# by 2 0.69, 144 by 2 0.90, max pooling of 64 by 2 0.77; 8 images of 28x28 of 192 0.93.
_FROM_AFAR = 2
# What lies so far away is also read and written a pixel at a time, of few pixels: 3x3 windows of 112x112
# pixels of 64 channels take 0.76 of the time, pooling of these by 2 0.83; 64 images of 28x28 of 576, 5x5,
# 0.80, pooling of 256 0.51; 7x7 windows of 56x56 of 384 would take 1.1.
_FEW_PIXELS = 4
# Channels that are read in one stretch: pooling 2x2 of 256 channels at 56x56 takes 0.030 ms with 4 vectors of
# one pixel, 0.035 with one of 4, 2 threads of a Zen 3 (0.126 with steps outside the lines).
_WIDE_VECTORS = 4


def schedule_window(
    sch: s_tir.Schedule,
    *,
    lanes: int,
    vectors: int,
    pixels: int,
    lines: int,
    group: int,
    inside: int = 0,
    stream: int = 0,
    ahead: int = 0,
) -> None:
    """Rewrite a sliding window in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of an unscheduled PrimFunc named ``main``.
    lanes : int
        Elements in a vector.
    vectors : int
        Vectors of channels in a tile.
    pixels : int
        Pixels of a line in a tile.
    lines : int
        Output lines in a block, whose input is padded at a time.
    group : int
        Steps of channels in a group, which a thread takes through a block.
    inside : int
        1: the steps are inside the tiles of pixels; 0: around the block's lines.
    stream : int
        1: the output is written past the caches, see `streaming`.
    ahead : int
        1: while a block that threads share is padded, what the next one reads is fetched, see `row_prefetch`.
    """
    nest = find_window(sch.mod["main"])
    assert nest is not None, "the rule's space says that there is one"
    inline_blocks(sch, [*nest.prologue, *nest.epilogue[:-1]])
    block = sch.get_sblock(nest.block)
    tail = sch.get_sblock(nest.epilogue[-1]) if nest.epilogue else sch.cache_write(block, 0, "global")
    loops = list(sch.get_loops(block))
    *outer, line, pixel, channel = loops[: len(nest.extents)]
    taps = loops[len(nest.extents) :]
    blocks, line = sch.split(line, [None, lines])
    tiles, pixel = sch.split(pixel, [None, pixels])
    groups, step, vector, lane = sch.split(channel, [None, group, vectors, lanes])
    around = (line, tiles, step) if inside else (step, line, tiles)
    sch.reorder(*outer, blocks, groups, *around, *taps, pixel, vector, lane)
    finish_tile(sch, tail, around[-1], lanes)
    if stream:
        sch.annotate(sch.get_loops(tail)[-1], STREAM_MARK, 1)
    if nest.pad is not None:
        pad = sch.get_sblock(nest.pad)
        sch.compute_at(pad, groups)
        vectorize_last(sch, pad, lanes)
    for name in nest.fills:
        vectorize_last(sch, sch.get_sblock(name), lanes)
    for loop in (pixel, vector, *(taps if prod(nest.taps) <= UNROLLED_TAPS else ())):
        sch.unroll(loop)
    sch.vectorize(lane)
    if nest.work >= LEAST_PARALLEL_SUMS:
        fused = sch.fuse(*outer, blocks, groups)
        sch.parallel(fused)
        if ahead and nest.pad is not None:
            fetch_ahead(sch, fused, sch.get_loops(sch.get_sblock(nest.pad))[-2], 1)
    sch.decompose_reduction(block, taps[0])


def window_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the tiles to choose from, or None where there is no window or channels do not fill vectors."""
    nest = find_window(func)
    if nest is None:
        return None
    machine = facts(target)
    *_, lines, pixels, channels = nest.extents
    widest = machine.lanes(nest.dtype)
    lanes = next((w for w in (widest, widest // 2, widest // 4) if w >= 4 and channels % w == 0), 0)
    if not lanes:
        return None
    registers = machine.vector_registers
    widths = tuple(v for v in _VECTORS if channels % (v * lanes) == 0)
    heights = tuple(p for p in _PIXELS if p <= pixels)
    block, group = _blocks(nest, machine, lanes)
    wide, tile, inside = _tile(nest, machine, [v for v in widths if group % v == 0])
    # Past the caches, on 2 threads of a Xeon, depthwise 3x3 of 58 MB takes 0.6 of the time.
    can_stream, past = streams(str(func.params[-1].ty.dtype)), exceeds_caches(func, target)
    return KnobSpace(
        knobs=(
            Knob("lanes", (lanes,), "elements in a vector"),
            Knob("vectors", widths, "vectors of channels in a tile"),
            Knob("pixels", tuple(sorted({*heights, tile})), "pixels of a line in a tile"),
            Knob("lines", tuple(sorted({*(x for x in _LINES if x <= lines), block})), "lines in a block"),
            Knob("group", divisors(channels // lanes), "steps of channels in a group"),
            Knob("inside", (0, 1), "1: steps of channels inside the tiles; 0: around the lines"),
            Knob("stream", (0, 1) if can_stream else (0,), "1: the output is written past the caches"),
            Knob("ahead", (0, 1) if nest.pad else (0,), "1: what the next block reads is fetched"),
        ),
        constraints=(
            Constraint(
                f"group * vectors * lanes divides the channels ({channels})",
                lambda k: _positive(k) and channels % (k["group"] * k["vectors"] * k["lanes"]) == 0,
            ),
            Constraint(
                f"(pixels + 1) * vectors accumulators and weights fit {registers} registers",
                lambda k: (k["pixels"] + 1) * k["vectors"] < registers,
            ),
            Constraint(f"lines divides the output lines ({lines})", lambda k: lines % k["lines"] == 0),
            Constraint(f"pixels is at most the line ({pixels})", lambda k: 1 <= k["pixels"] <= pixels),
        ),
        default={
            "lanes": lanes,
            "vectors": wide,
            "pixels": tile,
            "lines": block,
            "group": group // wide,
            "inside": inside,
            "stream": past if can_stream else 0,
            "ahead": past if nest.pad else 0,
        },
    )


def _tile(nest: Window, machine: Facts, widths: Sequence[int]) -> tuple[int, int, int]:
    """Choose the vectors and pixels of a tile, and whether steps of channels go inside the tiles.

    ``widths``: vectors that divide a group of channels.
    """
    if nest.pad is None:
        return max(v for v in widths if v <= _WIDE_VECTORS), 1, 1
    pixels = nest.extents[-2]
    few, tile = (divisors(pixels, most)[-1] for most in (_FEW_PIXELS, _TILE_PIXELS))
    if tile == 1 < pixels:
        tile = ceil(pixels / ceil(pixels / _TILE_PIXELS))
    if not _comes_from_afar(nest, machine) or prod(nest.taps) > UNROLLED_TAPS:
        return 1, tile, 0
    return 1, few if 2 * few > _FEW_PIXELS else tile, 1


def _comes_from_afar(nest: Window, machine: Facts) -> bool:
    """Tell whether a padded image comes from memory, or from an L3 that is far away."""
    *images, _, _, channels = nest.extents
    padded = prod(images) * prod(nest.padded or (0, 0)) * channels * element_bytes(nest.dtype)
    return padded > (machine.l2_bytes if machine.has_far_l3 else machine.kept_by_l3)


def _positive(knobs: Knobs) -> bool:
    return all(knobs[name] >= 1 for name in ("lanes", "vectors", "pixels", "lines", "group"))


def _blocks(nest: Window, machine: Facts, lanes: int) -> tuple[int, int]:
    """Choose the lines of a block and the steps of a group: evenly shared, and few lines padded twice.

    What a block pads keeps to a quarter of L2, which two threads may share: depthwise 7x7 of 384 channels at
    56x56 takes 0.68 ms with 160 or 320 KiB, 0.73 with 490 (2 threads of a Zen 5). Of equals the widest group
    is best: memory is read in longer stretches.
    """
    *images, lines, pixels, channels = nest.extents
    height, width = nest.padded or (0, 0)
    stride = (height - nest.taps[0]) / max(1, lines - 1)
    # Input lines an output line: transposed convolutions have a part of one.
    stride = floor(stride) if stride >= 1 else stride
    vector_bytes = element_bytes(nest.dtype) * lanes
    most, line_steps = machine.l2_bytes // 4 // vector_bytes, max(1, LINE_BYTES // vector_bytes)
    steps = channels // lanes
    # Threads that write parts of a line of the cache wait for each other, and each reads all of it.
    groups = [g for g in divisors(steps) if g % line_steps == 0] or [steps]
    comes_from_afar = _comes_from_afar(nest, machine)

    def padded(block: int) -> int:
        """Count the vectors that a block of lines pads for one step of channels."""
        return max(0, ceil(height - (lines - block) * stride)) * width

    def cycles(choice: tuple[int, int]) -> tuple[bool, float, int, int]:
        block, group = choice
        blocks = prod(images) * (lines // block) * (channels // lanes // group)
        uneven = ceil(blocks / machine.cores) * machine.cores / blocks
        copied = lines // block * padded(block) * _CYCLES_PADDED
        if comes_from_afar and padded(block) * steps > most:
            copied *= _FROM_AFAR
        multiplied = prod(nest.taps) * lines * pixels * _CYCLES_MULTIPLIED
        return padded(block) * group > most, uneven * (copied + multiplied), -group, -block

    return min(product(divisors(lines), groups), key=cycles)


WINDOW = ScheduleRule(
    name="window",
    summary="tiles of pixels by channels under a sliding window: depthwise convolution and pooling",
    rewrite=schedule_window,
    open_space=window_space,
)
