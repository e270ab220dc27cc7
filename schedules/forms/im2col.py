"""A convolution of channels first as a product of what is under each window by the weight as it lies.

A weight whose outputs come first lies along the sum, all of it for one output side by side. Where pixels are
few and the weight large, as in a network's last layers, the pixels under each window are copied, and nothing
of the weight is (im2col)::

    windows[s, k] = padded x[n, c, p + i, q + j]                 # s = (n, p, q), k = (c, i, j)
    taps[o, k] = weight[o, c, i, j]
    sums[s, o] = sum of windows[s, k] * taps[o, k]
    y[n, o, p, q] = epilogue of sums[s, o]

References
----------
Chellapilla et al., "High Performance Convolutional Neural Networks for Document Processing", 2006.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from tvm import s_tir, te, tirx
from tvm.ir import Range
from tvm_ffi import structural_map

from ...machine.errors import InputError
from ..nests.channels_first import ChannelsFirst, find_channels_first, padded_image
from ..restatement import (
    STEP,
    held_block,
    nests,
    of_stages,
    placeholders,
    replaced,
    summed_term,
    whole,
    with_block_order,
    with_nests,
)
from .flat_indices import flat, unflat

MARGIN, WINDOWS = f"{STEP}margin", f"{STEP}windows"
"""The blocks that pad an image, and that copy what is under each window: steps of their own."""

TAPS, SUMS, OUTPUT = (f"im2col_{step}" for step in ("taps", "sums", "output"))
"""The weight as a matrix, the product, and what it becomes."""


def find_im2col(func: Any) -> ChannelsFirst | None:
    """Find the convolution of channels first whose weight lies along the sum, and varies, or None."""
    found = find_channels_first(func)
    return found if found is not None and found.turns_weight else None


@lru_cache(maxsize=4)  # a space asks, and then the schedule begins with it
def restate(func: Any) -> Any:
    """Put a product by the weight as it lies in the place of a convolution of channels first.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_im2col` finds a convolution.

    Raises
    ------
    InputError
        There is no such convolution: a trace may name a form that is not one of its function.
    """
    found = find_im2col(func)
    if found is None:
        raise InputError("the function is no convolution of channels first by a weight along the sum")
    given = [found.image, found.weight.source, *found.beside, found.output]
    new = with_flat_taps(of_stages(func, given, _define(found)), found.weight.source)
    _, _, *extents = map(int, found.output.shape)

    def by_window(n: Any, o: Any, *place: Any) -> tuple[Any, Any]:
        return flat(extents, n, place), o

    return with_block_order(new, OUTPUT, by_window, SUMS)


def with_flat_taps(func: Any, weight: Any) -> Any:
    """Return a function whose `TAPS` are read along the weight's last axis, beyond its end.

    By channel, line and column TVM would not see that neighbours along the sum lie side by side.
    """
    body = nests(func)
    at = next(i for i, nest in enumerate(body) if held_block(nest).name_hint == TAPS)
    output, along = (axis.var for axis in held_block(body[at]).iter_vars)
    place = [output, *[whole(0)] * (len(weight.shape) - 2), along]
    region = tirx.BufferRegion(weight, [Range.from_min_extent(index, whole(1)) for index in place])

    def read_flat(block: Any) -> Any:
        store = tirx.BufferStore(block.body.buffer, tirx.BufferLoad(weight, place), block.body.indices)
        return s_tir.SBlock(block.iter_vars, [region], block.writes, block.name_hint, store)

    body[at] = structural_map(body[at], [(s_tir.SBlock, read_flat)])
    return with_nests(func, body)


def flat_taps(w: Any) -> Any:
    """Return the stage of a weight whose outputs come first as a matrix of these by all that is summed."""
    outputs, *summed = map(int, w.shape)
    return te.compute((outputs, prod(summed)), lambda o, k: w(o, *unflat(summed[1:], k)), name=TAPS)


def pixels_under_windows(found: ChannelsFirst, x: Any) -> Callable[..., Any]:
    """Return what is under a window: of an image, of the window's place in it, and of a position of the sum.

    ``x``: the tensor of the image; where it is padded, a stage of its own does so.
    """
    padded = x if found.pad is None else padded_image(found.pad, x, MARGIN)
    _, *summed = map(int, found.weight.source.shape)

    def pixel(n: Any, place: Sequence[Any], k: Any) -> Any:
        new = dict(zip(found.kept, (n, 0, *place), strict=True))
        new |= dict(zip(found.weight.indices[1:], unflat(summed[1:], k), strict=True))
        return padded(*(replaced(index, new) for index in found.data.indices))

    return pixel


def _define(found: ChannelsFirst) -> list[Any]:
    """Return the TE tensors image, weight, what is added, and the output."""
    images, outputs, *extents = map(int, found.output.shape)
    x, w, *others = placeholders([found.image, found.weight.source, *found.beside])
    _, *summed = map(int, w.shape)
    pixel = pixels_under_windows(found, x)

    def under_window(s: Any, k: Any) -> Any:
        n, *place = unflat(extents, s)
        return pixel(n, place, k)

    windows = te.compute((images * prod(extents), prod(summed)), under_window, name=WINDOWS)
    taps = flat_taps(w)
    along = te.reduce_axis((0, prod(summed)), "k")

    def product(s: Any, o: Any) -> Any:
        operands = {found.data: windows[s, along], found.weight: taps[o, along]}
        return te.sum(replaced(summed_term(found.block), operands), axis=along)

    sums = te.compute((images * prod(extents), outputs), product, name=SUMS)
    tensors = dict(zip(found.beside, others, strict=True))

    def output(*index: Any) -> Any:
        n, o, *place = index
        return found.finished(sums(flat(extents, n, place), o), tensors, index)

    return [x, w, *others, te.compute(found.output.shape, output, name=OUTPUT)]
