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

Where the window moves by several pixels, those that it meets are copied first, and lie side by side then::

    picked[n, c, p, q] = x[n, c, p * stride, q * stride]

Groups of channels are as many products: ``sums[g, o, s]`` of ``taps[g, o, c]`` and ``pixels[g, c, s]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

from tvm import te
from tvm.sym import Analyzer

from ...machine.errors import InputError
from ..expressions import are_just, index_variables
from ..nests.channels_first import ChannelsFirst, find_channels_first
from ..restatement import (
    STEP,
    held_blocks,
    of_stages,
    placeholders,
    replaced,
    summed_term,
    whole,
    with_block_order,
)
from .flat_indices import flat, unflat
from .grouped import find_grouped
from .widened import HALVES

PICKED = f"{STEP}picked"
"""The block that copies the pixels which a window meets that moves by several: a step of its own."""

_WIDE = "float32"

TAPS, PIXELS, SUMS, OUTPUT = (f"flat_{step}" for step in ("taps", "pixels", "sums", "output"))
"""The blocks: the weight and the image as matrices, their product, and what it becomes."""


@lru_cache(maxsize=16)  # rules ask, for several lanes, and then the restatement
def find_flat(func: Any, lanes: int) -> ChannelsFirst | None:
    """Find the 1x1 convolution of channels first whose images are vectors of so many pixels, or None."""
    found = find_channels_first(func) or _find_groups(func)
    if found is None or not is_pointwise(found) or not _is_in_order(found):
        return None
    types = {str(load.source.dtype) for load in (found.data, found.weight)}
    if _picks(found) and types & {*HALVES} and str(found.block.body.buffer.dtype) != _WIDE:
        return None
    return found if prod(pixels_of(found.output)) % lanes == 0 else None


def _find_groups(func: Any) -> ChannelsFirst | None:
    """Find the grouped convolution of channels first that a PrimFunc consists of, or None."""
    found = find_grouped(func)
    if found is None or found.dimension != 1 or len(found.data.indices) < 3:
        return None
    first, *after = held_blocks(func).values()
    if first.name_hint != found.block.name_hint or found.kept.index(found.column) != 1:
        return None
    chain = ChannelsFirst(found.block, tuple(after), found.data, found.weight, None, turns_weight=False)
    return chain if chain.is_simple(func) else None


def _groups_of(found: ChannelsFirst) -> int:
    """Return how many groups of channels there are."""
    return int(found.data.source.shape[1]) // int(found.weight.source.shape[1])


def is_pointwise(found: ChannelsFirst) -> bool:
    """Tell whether a convolution is 1x1 and without a margin."""
    return found.pad is None and set(found.weight.source.shape[2:]) == {1}


def _places(found: ChannelsFirst, place: Sequence[Any]) -> list[Any]:
    """Return which pixel of the image the window of one of the output meets."""
    _, _, *taps = found.weight.indices
    new = dict(zip(found.kept[2:], place, strict=True)) | dict.fromkeys(taps, whole(0))
    return [Analyzer().simplify(replaced(index, new)) for index in found.data.indices[2:]]


def _picks(found: ChannelsFirst) -> bool:
    """Tell whether windows meet other pixels than all of the image in their order."""
    axes = found.kept[2:]
    same = pixels_of(found.data.source) == pixels_of(found.output)
    return not same or not are_just(_places(found, axes), axes)


def _is_in_order(found: ChannelsFirst) -> bool:
    """Tell whether the weight's axes are outputs, inputs, and then those of the window."""
    outputs, inputs = found.weight.indices[:2]
    return bool(outputs.same_as(found.kept[1]) and inputs in index_variables(found.data.indices[1:2]))


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
    return with_block_order(new, OUTPUT, partial(_column, found, apart), SUMS)


def _define(found: ChannelsFirst, apart: int) -> list[Any]:
    """Return the TE tensors image, weight, what is added, and the output."""
    extents = pixels_of(found.output)
    x, w, *others = placeholders([found.image, found.weight.source, *found.beside])
    images, outputs = (int(extent) for extent in found.output.shape[:2])
    channels, groups, none = int(w.shape[1]), _groups_of(found), [whole(0)] * len(extents)
    image = _image(found, x) if _picks(found) else x

    def tap(*index: Any) -> Any:
        *batch, o, c = index
        return w(batch[-1] * (outputs // groups) + o if groups > 1 else o, c, *none)

    def pixel(*index: Any) -> Any:
        *batch, c, s = index
        n, at = (batch[0], s) if apart else unflat([prod(extents)], s) if images > 1 else (whole(0), s)
        return image(n, batch[-1] * channels + c if groups > 1 else c, *none[1:], at)

    batch = [*([images] if apart else []), *([groups] if groups > 1 else [])]
    columns = prod(extents) if apart else images * prod(extents)
    taps = te.compute((*batch, outputs // groups, channels), tap, name=TAPS)
    pixels = te.compute((*batch, channels, columns), pixel, name=PIXELS)
    k = te.reduce_axis((0, channels), "k0")

    def product(*index: Any) -> Any:
        *batched, o, s = index
        operands = {found.data: pixels(*batched, k, s), found.weight: taps(*batched, o, k)}
        return te.sum(replaced(summed_term(found.block), operands), axis=k)

    sums = te.compute((*batch, outputs // groups, columns), product, name=SUMS)
    tensors = dict(zip(found.beside, others, strict=True))

    def output(*index: Any) -> Any:
        return found.finished(sums(*_column(found, apart, *index)), tensors, index)

    return [x, w, *others, te.compute(found.output.shape, output, name=OUTPUT)]


def _image(found: ChannelsFirst, x: Any) -> Any:
    """Return the stage that copies the pixels which windows meet."""
    # To TVM a bfloat16 of the function's own is a float32, which widened once need not be again.
    wide = _WIDE if str(x.dtype) in HALVES else x.dtype
    shape = (*map(int, x.shape[:2]), *pixels_of(found.output))
    return te.compute(shape, lambda n, c, *place: x(n, c, *_places(found, place)).astype(wide), name=PICKED)


def _column(found: ChannelsFirst, apart: int, n: Any, o: Any, *place: Any) -> tuple[Any, ...]:
    """Return where the sums have a pixel of an output."""
    extents, groups = pixels_of(found.output), _groups_of(found)
    channel = unflat([int(found.output.shape[1]) // groups], o) if groups > 1 else [o]
    return (n, *channel, flat(extents, whole(0), place)) if apart else (*channel, flat(extents, n, place))
