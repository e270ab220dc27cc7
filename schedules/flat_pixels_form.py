"""A 1x1 convolution of channels first as a matrix product: its pixels lie side by side, as they are.

Each channel is a row, and the pixels of all images are columns (s = n h w + p w + q)::

    taps[o, c] = weight[o, c, 0, 0]
    pixels[c, s] = x[n, c, p, q]
    sums[o, s] = sum of taps[o, c] * pixels[c, s]
    y[n, o, p, q] = epilogue of sums[o, s]

Nothing is transposed: vectors are pixels, and each element of the weight is multiplied by several of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

from tvm import s_tir, te
from tvm.ir import TensorLoad
from tvm.tirx import IndexMap

from ..machine.errors import InputError
from .channels_last_form import ChannelsFirst, find_channels_first
from .restatement import replaced, stage_nests, with_nests, without_buffers

TAPS, PIXELS, SUMS, OUTPUT = (f"flat_{step}" for step in ("taps", "pixels", "sums", "output"))
"""The blocks: the weight and the image as matrices, their product, and what it becomes."""


def find_pointwise(func: Any) -> ChannelsFirst | None:
    """Find the 1x1 convolution of channels first, without a margin and by strides of 1, or None."""
    found = find_channels_first(func)
    if found is None or found.pad is not None:
        return None
    _, channels, *window = (int(extent) for extent in found.weight.source.shape)
    same = pixels_of(found.data.source) == pixels_of(found.output)
    first = channels == int(found.data.source.shape[1])
    return found if same and first and set(window) == {1} else None


def pixels_of(buffer: Any) -> tuple[int, ...]:
    """Return the extents of an image of channels first, without its channels."""
    return tuple(int(extent) for extent in buffer.shape[2:])


@lru_cache(maxsize=4)  # a space asks, and then the schedule begins with it
def restate(func: Any, lanes: int) -> Any:
    """Put a matrix product in the place of a 1x1 convolution of channels first.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_pointwise` finds a convolution.
    lanes : int
        Pixels of a vector; they divide those of an image.

    Raises
    ------
    InputError
        There is no such convolution, or vectors do not divide its pixels: a trace may name a form that is not
        one of its function.
    """
    found = find_pointwise(func)
    if found is None or prod(pixels_of(found.output)) % lanes:
        raise InputError(
            f"the function is no 1x1 convolution of channels first, in vectors of {lanes} pixels"
        )
    given = [found.data.source, found.weight.source, *found.beside, found.output]
    inner, buffers = stage_nests(given, _define(found))
    schedule = s_tir.Schedule(with_nests(without_buffers(func), inner, buffers))
    extents = pixels_of(found.output)

    def flat(n: Any, o: Any, *place: Any) -> tuple[Any, Any]:
        return o, _flat(extents, n, place)

    rank = len(found.output.shape)
    order = IndexMap.from_func(flat, ndim=rank, index_dtype="int64")
    schedule.transform_block_layout(schedule.get_sblock(OUTPUT), order)
    return schedule.mod["main"]


def _flat(extents: Sequence[int], n: Any, place: Sequence[Any]) -> Any:
    """Return the column of a pixel of an image."""
    for extent, at in zip(extents, place, strict=True):
        n = n * extent + at
    return n


def _define(found: ChannelsFirst) -> list[Any]:
    """Return the TE tensors image, weight, what is added, and the output."""
    extents = pixels_of(found.output)
    x, w, *others = (
        te.placeholder(buffer.shape, buffer.dtype, buffer.name)
        for buffer in (found.data.source, found.weight.source, *found.beside)
    )
    images, outputs = (int(extent) for extent in found.output.shape[:2])
    channels, unit = int(x.shape[1]), [0] * len(extents)

    def pixel(c: Any, s: Any) -> Any:
        place: list[Any] = []
        for extent in reversed(extents):
            place.insert(0, s % extent)
            s = s // extent
        return x(s, c, *place)

    taps = te.compute((outputs, channels), lambda o, c: w(o, c, *unit), name=TAPS)
    pixels = te.compute((channels, images * prod(extents)), pixel, name=PIXELS)
    c = te.reduce_axis((0, channels), "c")
    value, total = found.block.body.value, found.block.body.buffer
    is_total = isinstance(value.a, TensorLoad) and value.a.source.same_as(total)
    term = value.b if is_total else value.a

    def product(o: Any, s: Any) -> Any:
        return te.sum(replaced(term, {found.data: pixels[c, s], found.weight: taps[o, c]}), axis=c)

    sums = te.compute((outputs, images * prod(extents)), product, name=SUMS)
    tensors = dict(zip(found.beside, others, strict=True))

    def output(*index: Any) -> Any:
        n, o, *place = index
        return found.finished(sums(o, _flat(extents, n, place)), tensors, index)

    return [x, w, *others, te.compute(found.output.shape, output, name=OUTPUT)]
