"""A convolution of channels first as a matrix product: pixels of a line lie side by side, as they are.

The taps of all channels (k = c, i, j) are rows, and the pixels of all images are columns (s = n, p, q)::

    taps[o, k] = weight[o, c, i, j]
    pixels[k, s] = padded x[n, c, p + i, q + j]
    sums[o, s] = sum of taps[o, k] * pixels[k, s]
    y[n, o, p, q] = epilogue of sums[o, s]

Nothing is transposed: vectors are pixels, and each element of the weight is multiplied by several of them.
Those of a 1x1 convolution are read where they lie. Those of a window are copied for each of its taps, panel
by panel: worth it where channels are too few to be vectors.

Images of a 1x1 convolution may each be a product of its own, by the same taps: where vectors do not divide
lines, TVM does not see that pixels of one image among others lie side by side.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from tvm import te
from tvm.sym import Analyzer
from tvm.tirx import IntImm

from ..machine.errors import InputError
from .channels_first_nest import ChannelsFirst, find_channels_first, padded_image
from .flat_indices import flat, unflat
from .restatement import (
    STEP,
    placeholders,
    replaced,
    stage_nests,
    summed_term,
    whole,
    with_block_order,
    with_nests,
    without_buffers,
)

TAPS, PIXELS, SUMS, OUTPUT = (f"flat_{step}" for step in ("taps", "pixels", "sums", "output"))
"""The blocks: the weight and the image as matrices, their product, and what it becomes."""

MARGIN = f"{STEP}margin"
"""The block that pads an image: a step of its own."""


def find_flat(func: Any, lanes: int) -> ChannelsFirst | None:
    """Find the convolution of channels first of which vectors of so many pixels lie side by side, or None."""
    found = find_channels_first(func)
    if found is None or not _is_in_order(found) or _moves(found) != 1:
        return None
    extents = pixels_of(found.output)
    whole_images = is_pointwise(found) and prod(extents) % lanes == 0
    return found if whole_images or extents[-1] % lanes == 0 else None


def is_pointwise(found: ChannelsFirst) -> bool:
    """Tell whether a convolution is 1x1, without a margin and by strides of 1."""
    same = pixels_of(found.data.source) == pixels_of(found.output)
    return found.pad is None and same and set(found.weight.source.shape[2:]) == {1}


def _is_in_order(found: ChannelsFirst) -> bool:
    """Tell whether the weight's axes are outputs, inputs, and then those of the window."""
    outputs, inputs = found.weight.indices[:2]
    return bool(outputs.same_as(found.kept[1]) and inputs.same_as(found.data.indices[1]))


def _moves(found: ChannelsFirst) -> int | None:
    """Return how far apart neighbours of a line are read."""
    last, pixel = found.data.indices[-1], found.kept[-1]
    moved = Analyzer().simplify(replaced(last, {pixel: pixel + 1}) - last)
    return int(moved) if isinstance(moved, IntImm) else None


def pixels_of(buffer: Any) -> tuple[int, ...]:
    """Return the extents of an image of channels first, without its channels."""
    return tuple(int(extent) for extent in buffer.shape[2:])


@lru_cache(maxsize=4)  # a space asks, and then the schedule begins with it
def restate(func: Any, lanes: int, apart: int = 0) -> Any:
    """Put a matrix product in the place of a convolution of channels first.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_flat` finds a convolution.
    lanes : int
        Pixels of a vector; they divide those of a line, or of an image where the convolution is 1x1.
    apart : int
        1: each image of a 1x1 convolution is a product by itself; 0: all are one.

    Raises
    ------
    InputError
        There is no such convolution, or vectors do not divide its pixels: a trace may name a form that is not
        one of its function.
    """
    found = find_flat(func, lanes)
    if found is None or (apart and not is_pointwise(found)):
        raise InputError(f"the function is no convolution of channels first in vectors of {lanes} pixels")
    given = [found.image, found.weight.source, *found.beside, found.output]
    inner, buffers = stage_nests(given, _define_apart(found) if apart else _define(found))
    extents = pixels_of(found.output)

    def by_output(n: Any, o: Any, *place: Any) -> tuple[Any, ...]:
        return (n, o, flat(extents, whole(0), place)) if apart else (o, flat(extents, n, place))

    return with_block_order(with_nests(without_buffers(func), inner, buffers), OUTPUT, by_output)


def _define_apart(found: ChannelsFirst) -> list[Any]:
    """Return the TE tensors image, weight, what is added, and the output, of a product for each image."""
    extents = pixels_of(found.output)
    x, w, *others = placeholders([found.image, found.weight.source, *found.beside])
    images, outputs = (int(extent) for extent in found.output.shape[:2])
    channels, none = int(w.shape[1]), [whole(0)] * len(extents)

    def pixel(n: Any, c: Any, s: Any) -> Any:
        return x(n, c, *unflat(extents[1:], s))

    taps = te.compute((images, outputs, channels), lambda n, o, c: w(o, c, *none), name=TAPS)
    pixels = te.compute((images, channels, prod(extents)), pixel, name=PIXELS)
    k = te.reduce_axis((0, channels), "k0")

    def product(n: Any, o: Any, s: Any) -> Any:
        operands = {found.data: pixels(n, k, s), found.weight: taps(n, o, k)}
        return te.sum(replaced(summed_term(found.block), operands), axis=k)

    sums = te.compute((images, outputs, prod(extents)), product, name=SUMS)
    tensors = dict(zip(found.beside, others, strict=True))

    def output(*index: Any) -> Any:
        n, o, *place = index
        return found.finished(sums(n, o, flat(extents, whole(0), place)), tensors, index)

    return [x, w, *others, te.compute(found.output.shape, output, name=OUTPUT)]


def _define(found: ChannelsFirst) -> list[Any]:
    """Return the TE tensors image, weight, what is added, and the output."""
    extents = pixels_of(found.output)
    x, w, *others = placeholders([found.image, found.weight.source, *found.beside])
    images, outputs = (int(extent) for extent in found.output.shape[:2])
    # The taps that are summed; an axis of one element would be the last, and hide how many there are.
    rows = {n: extent for n, extent in enumerate(map(int, w.shape[1:])) if extent > 1} or {0: 1}
    columns = images * prod(extents)
    padded = x if found.pad is None else padded_image(found.pad, x, MARGIN)

    def tap(*k: Any) -> list[Any]:
        at = dict(zip(rows, k, strict=True))
        return [at.get(n, whole(0)) for n in range(len(w.shape) - 1)]

    def pixel(*index: Any) -> Any:
        *k, s = index
        # Of one image no index is divided by all its pixels: it is plain how far neighbours are apart.
        n, *place = unflat(extents, s) if images > 1 else (whole(0), *unflat(extents[1:], s))
        new = dict(zip(found.kept, (n, whole(0), *place), strict=True))
        new |= dict(zip(found.weight.indices[1:], tap(*k), strict=True))
        return padded(*(replaced(index, new) for index in found.data.indices))

    taps = te.compute((outputs, *rows.values()), lambda o, *k: w(o, *tap(*k)), name=TAPS)
    pixels = te.compute((*rows.values(), columns), pixel, name=PIXELS)
    sums_over = [te.reduce_axis((0, extent), f"k{n}") for n, extent in rows.items()]

    def product(o: Any, s: Any) -> Any:
        operands = {found.data: pixels(*sums_over, s), found.weight: taps(o, *sums_over)}
        return te.sum(replaced(summed_term(found.block), operands), axis=sums_over)

    sums = te.compute((outputs, columns), product, name=SUMS)
    tensors = dict(zip(found.beside, others, strict=True))

    def output(*index: Any) -> Any:
        n, o, *place = index
        return found.finished(sums(o, flat(extents, n, place)), tensors, index)

    return [x, w, *others, te.compute(found.output.shape, output, name=OUTPUT)]
