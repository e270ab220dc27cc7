"""A 1x1 convolution of channels first as a matrix product: pixels lie side by side, as they are.

The taps of all channels are rows, and the pixels of all images are columns (s = n, p, q)::

    taps[o, c] = weight[o, c]
    pixels[c, s] = x[n, c, p, q]
    sums[o, s] = sum of taps[o, c] * pixels[c, s]
    y[n, o, p, q] = epilogue of sums[o, s]

Nothing is transposed: vectors are pixels, read where they lie, and each element of the weight is multiplied
by several of them.

A pixel is indexed along the first line, beyond its end: lines of an image follow each other in memory. By
line and place TVM would not see that neighbours lie side by side where vectors do not divide lines, nor let
an instruction load them.

Images may each be a product of its own, by the same taps: of one image among others TVM does not see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

from tvm import te

from ...machine.errors import InputError
from ..nests.channels_first import ChannelsFirst, find_channels_first
from ..restatement import of_stages, placeholders, replaced, summed_term, whole, with_block_order
from .flat_indices import flat, unflat

TAPS, PIXELS, SUMS, OUTPUT = (f"flat_{step}" for step in ("taps", "pixels", "sums", "output"))
"""The blocks: the weight and the image as matrices, their product, and what it becomes."""


def find_flat(func: Any, lanes: int) -> ChannelsFirst | None:
    """Find the 1x1 convolution of channels first whose images are vectors of so many pixels, or None."""
    found = find_channels_first(func)
    if found is None or not is_pointwise(found) or not _is_in_order(found):
        return None
    return found if prod(pixels_of(found.output)) % lanes == 0 else None


def is_pointwise(found: ChannelsFirst) -> bool:
    """Tell whether a convolution is 1x1, without a margin and by strides of 1."""
    same = pixels_of(found.data.source) == pixels_of(found.output)
    return found.pad is None and same and set(found.weight.source.shape[2:]) == {1}


def _is_in_order(found: ChannelsFirst) -> bool:
    """Tell whether the weight's axes are outputs, inputs, and then those of the window."""
    outputs, inputs = found.weight.indices[:2]
    return bool(outputs.same_as(found.kept[1]) and inputs.same_as(found.data.indices[1]))


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
        Pixels of a vector; they divide those of an image.
    apart : int
        1: each image is a product by itself; 0: all are one.

    Raises
    ------
    InputError
        There is no such convolution, or vectors do not divide its pixels: a trace may name a form that is not
        one of its function.
    """
    found = find_flat(func, lanes)
    if found is None:
        raise InputError(f"the function is no convolution of channels first in vectors of {lanes} pixels")
    given = [found.image, found.weight.source, *found.beside, found.output]
    new = of_stages(func, given, _define(found, apart))
    return with_block_order(new, OUTPUT, partial(_column, pixels_of(found.output), apart))


def _define(found: ChannelsFirst, apart: int) -> list[Any]:
    """Return the TE tensors image, weight, what is added, and the output."""
    extents = pixels_of(found.output)
    x, w, *others = placeholders([found.image, found.weight.source, *found.beside])
    images, outputs = (int(extent) for extent in found.output.shape[:2])
    channels, none = int(w.shape[1]), [whole(0)] * len(extents)
    batch, columns = ([images], prod(extents)) if apart else ([], images * prod(extents))

    def pixel(*index: Any) -> Any:
        *batched, c, s = index
        n, at = (*batched, s) if apart else unflat([prod(extents)], s) if images > 1 else (whole(0), s)
        return x(n, c, *none[1:], at)

    taps = te.compute((*batch, outputs, channels), lambda *index: w(*index[-2:], *none), name=TAPS)
    pixels = te.compute((*batch, channels, columns), pixel, name=PIXELS)
    k = te.reduce_axis((0, channels), "k0")

    def product(*index: Any) -> Any:
        *batched, o, s = index
        operands = {found.data: pixels(*batched, k, s), found.weight: taps(*batched, o, k)}
        return te.sum(replaced(summed_term(found.block), operands), axis=k)

    sums = te.compute((*batch, outputs, columns), product, name=SUMS)
    tensors = dict(zip(found.beside, others, strict=True))

    def output(*index: Any) -> Any:
        return found.finished(sums(*_column(extents, apart, *index)), tensors, index)

    return [x, w, *others, te.compute(found.output.shape, output, name=OUTPUT)]


def _column(extents: Sequence[int], apart: int, n: Any, o: Any, *place: Any) -> tuple[Any, ...]:
    """Return where the sums have a pixel of an output."""
    return (n, o, flat(extents, whole(0), place)) if apart else (o, flat(extents, n, place))
