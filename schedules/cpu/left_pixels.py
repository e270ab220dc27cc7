"""Convolution of few pixels, channels first: vectors of pixels, and those that are left as dot products.

Nothing of the weight is copied: a register tile has rows of it, each element of which is multiplied by all
vectors of pixels. After, in the form of `forms.left_pixels`::

    for blocks of output channels, in parallel:
        total = 0
        for parts of the sum:
            copy what is under the windows, of this part       # stays near while tiles meet it
            for tiles of mr channels, images:
                for k:  products[mr, vectors] += taps[mr, k] * windows[k, vectors]     # in registers
                for vectors of k:  dots[mr, lanes] += taps[mr, k] * left_windows[k]    # taps are still in L1
                total += products, dots
        y = epilogue of total

On 2 threads of a Zen 5 this reaches 0.92 of the peak for 7x7 pixels of 512 channels, 3x3, and 0.90 of 2048 to
512, 1x1, where 64 pixels computed for 49 leave 0.72.

References
----------
Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008 (parts of the sum).
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir

from ..analysis import block_names, block_of
from ..forms.im2col import TAPS, WINDOWS
from ..forms.left_pixels import DOTS, LEFT, LEFT_WINDOWS, OUTPUT, PRODUCTS, TOTAL
from ..restatement import steps_of
from ..rule import ScheduleRule
from ..transforms import unroll_tile
from .im2col import MOST_TAPS
from .left_pixels_space import left_pixels_space, side_by_side


def schedule_left_pixels(
    sch: s_tir.Schedule, *, lanes: int, depth: int, mr: int, nr: int, block_rows: int, ahead: int
) -> None:
    """Rewrite a convolution in the form of `forms.left_pixels` in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in that form.
    lanes, depth : int
        Pixels of a vector, and products of a part of the sum: they name the form.
    mr, nr : int
        Channels and pixels of a register tile; ``nr`` is whole vectors.
    block_rows : int
        Tiles of channels in a block.
    ahead : int
        1: threads share the copies of all windows first; 0: each copies a part of them before it uses it.
    """
    del depth
    taps = block_of(sch, TAPS).reads[0].source.shape
    line = int(block_of(sch, OUTPUT).writes[0].source.shape[-1])
    for name in steps_of(sch):
        if name not in (WINDOWS, LEFT_WINDOWS):
            sch.parallel(sch.fuse(*sch.get_loops(sch.get_sblock(name))[:-1]))
    sch.compute_inline(sch.get_sblock(TAPS))
    images, channels, pixels = sch.get_loops(sch.get_sblock(OUTPUT))
    block, channel = sch.split(channels, [None, mr * block_rows])
    vector, lane = sch.split(pixels, [None, lanes])
    sch.reorder(block, images, channel, vector, lane)
    sch.unroll(vector)
    sch.vectorize(lane)
    sch.parallel(block)
    for step in _blocks(sch, LEFT, TOTAL):
        sch.compute_at(step, block, preserve_unit_loops=True)
    part = _add_parts(sch, lanes, mr)
    _sum_products(sch, lanes, nr)
    for dots in _blocks(sch, DOTS):
        _sum_dots(sch, dots)
    _copy_windows(sch, part, [int(extent) for extent in taps[2:]], line, lanes, ahead)


def _blocks(sch: s_tir.Schedule, *names: str) -> list[Any]:
    """Return the blocks of these names that are there: some are only where pixels are left."""
    there = block_names(sch)
    return [sch.get_sblock(name) for name in names if name in there]


def _add_parts(sch: s_tir.Schedule, lanes: int, mr: int) -> Any:
    """Order the loops that add the parts of sums; return the one over the parts."""
    total = sch.get_sblock(TOTAL)
    *_, image, channel, column, part = sch.get_loops(total)
    tile, row = sch.split(channel, [None, mr])
    unroll_tile(sch, [part, tile, image], row, column, lanes)
    for step in _blocks(sch, PRODUCTS, DOTS):
        sch.compute_at(step, image, preserve_unit_loops=True)
    sch.decompose_reduction(total, part)
    return part


def _sum_products(sch: s_tir.Schedule, lanes: int, nr: int) -> None:
    """Hold the products of a tile of channels and pixels in registers."""
    products = sch.get_sblock(PRODUCTS)
    *_, row, column, k = sch.get_loops(products)
    panel, column = sch.split(column, [None, nr])
    unroll_tile(sch, [panel, k], row, column, lanes)
    sch.decompose_reduction(products, k)


def _sum_dots(sch: s_tir.Schedule, dots: Any) -> None:
    """Hold the dot products of a tile of channels and one pixel in registers."""
    *_, row, pixel, lane, step = sch.get_loops(dots)
    sch.reorder(pixel, step, row, lane)
    sch.unroll(row)
    sch.vectorize(lane)
    sch.decompose_reduction(dots, step)


def _copy_windows(
    sch: s_tir.Schedule, part: Any, window: list[int], line: int, lanes: int, ahead: int
) -> None:
    """Copy what is under windows, in vectors of lines of pixels: first, or in the loop over parts."""
    windows, *left = copies = _blocks(sch, WINDOWS, LEFT_WINDOWS)
    if not ahead:
        for block in copies:
            sch.compute_at(block, part, preserve_unit_loops=True)
    *_, along, pixel = sch.get_loops(windows)
    channel = _channels(sch, along, window)
    at_once = side_by_side(window, line, int(sch.get(pixel).extent), lanes)
    _, pixel = sch.split(pixel, [None, at_once])
    sch.vectorize(pixel)
    if ahead:
        images, *_ = sch.get_loops(windows)
        sch.parallel(sch.fuse(images, channel))
        for block in left:
            *others, along = sch.get_loops(block)
            sch.parallel(sch.fuse(*others, _channels(sch, along, window)))


def _channels(sch: s_tir.Schedule, along: Any, window: list[int]) -> Any:
    """Split what is summed into channels and taps, whose places are known then; return the first loop."""
    channel, *taps = sch.split(along, [None, *window])
    for tap, extent in zip(taps, window, strict=True):
        if extent <= MOST_TAPS:
            sch.unroll(tap)
    return channel


LEFT_PIXELS = ScheduleRule(
    name="left_pixels",
    summary="convolution of few pixels, channels first: vectors of pixels, and dot products for those left",
    rewrite=schedule_left_pixels,
    open_space=left_pixels_space,
    algorithm=lambda knobs: f"left_pixels_{knobs['lanes']}_{knobs['depth']}",
)
