"""A convolution of channels first whose pixels are vectors, and those that are left, if any, dot products.

49 pixels are three vectors of 16 and a pixel, for which a fourth vector would be computed: a quarter of all
multiply-adds. Along the sum its lanes do as much as those of others. The sum is cut into parts of ``depth``,
so that what is read of the weight is still near when the dot products read it again::

    windows[n, k, s] = padded x[n, c, p + i, q + j]          # k = (c, i, j), s = (p, q) of whole vectors
    left_windows[n, l, k] = the same of the pixels that are left
    taps[o, k] = weight[o, c, i, j]
    products[j, n, o, s] = sum of taps[o, j * depth + k] * windows[n, j * depth + k, s]
    dots[j, n, o, l, v] = sum of taps[o, j * depth + k * lanes + v] * left_windows[n, l, the same]
    total[n, o] = sum over j of products[j, n, o] and, beside them, dots[j, n, o]
    left[n, o, l] = sum over v of what total has of the dots
    y[n, o, p, q] = epilogue of total[n, o, s], or of left[n, o, l]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

from tvm import te, tirx

from ...machine.errors import InputError
from ..nests.channels_first import ChannelsFirst, find_channels_first
from ..restatement import STEP, of_stages, placeholders, replaced, summed_term, with_block_order
from .flat_indices import flat, unflat
from .im2col import WINDOWS, flat_taps, pixels_under_windows, with_flat_taps

LEFT_WINDOWS = f"{STEP}left_windows"
"""The block that copies what is under the windows that are left."""

PRODUCTS, DOTS, TOTAL, LEFT, OUTPUT = (
    f"left_pixels_{step}" for step in ("products", "dots", "total", "left", "output")
)
"""What sums the products of vectors and of what is left, adds the parts, adds up lanes, and what follows."""


@lru_cache(maxsize=16)  # a rule asks, and then the restatement
def find_left_pixels(func: Any) -> ChannelsFirst | None:
    """Find the convolution of channels first in float32 whose weight has its outputs first, or None."""
    found = find_channels_first(func)
    if found is None or not found.weight.indices[0].same_as(found.kept[1]):
        return None
    buffers = (found.data.source, found.weight.source, found.block.writes[0].source)
    return found if all(str(buffer.dtype) == "float32" for buffer in buffers) else None


def vectors_of_pixels(found: ChannelsFirst, lanes: int) -> tuple[int, int]:
    """Return how many pixels of an image whole vectors have, and how many are left."""
    _, _, *extents = map(int, found.output.shape)
    left = prod(extents) % lanes
    return prod(extents) - left, left


@lru_cache(maxsize=4)  # a space asks, and then the schedule begins with it
def restate(func: Any, lanes: int, depth: int) -> Any:
    """Put vectors of pixels and dot products in the place of a convolution of channels first.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_left_pixels` finds a convolution.
    lanes : int
        Pixels of a vector.
    depth : int
        Products of a part of the sum: whole vectors, and a divisor of all.

    Raises
    ------
    InputError
        There is no such convolution, or none of such vectors and parts: a trace may name a form that is not
        one of its function.
    """
    found = find_left_pixels(func)
    if found is None:
        raise InputError(
            "the function is no convolution of channels first whose weight has its outputs first"
        )
    whole, left = vectors_of_pixels(found, lanes)
    summed = prod(map(int, found.weight.source.shape[1:]))
    if not whole or depth % lanes or summed % depth:
        raise InputError(
            f"there is no vector of {lanes} pixels, or {summed} products are no parts of {depth}"
        )
    given = [found.image, found.weight.source, *found.beside, found.output]
    new = with_flat_taps(of_stages(func, given, _define(found, lanes, depth)), found.weight.source)
    _, _, *extents = map(int, found.output.shape)

    def by_pixel(n: Any, o: Any, first: Any, *place: Any) -> tuple[Any, Any, Any]:
        return n, o, flat(extents[1:], first, place)

    return with_block_order(new, OUTPUT, by_pixel, *((TOTAL, LEFT) if left else (TOTAL,)))


def _define(found: ChannelsFirst, lanes: int, depth: int) -> list[Any]:
    """Return the TE tensors image, weight, what is added, and the output."""
    images, outputs, *extents = map(int, found.output.shape)
    x, w, *others = placeholders([found.image, found.weight.source, *found.beside])
    (whole, left), summed = vectors_of_pixels(found, lanes), prod(map(int, w.shape[1:]))
    pixel, taps, parts = pixels_under_windows(found, x), flat_taps(w), summed // depth

    def product(o: Any, k: Any, data: Any) -> Any:
        return replaced(summed_term(found.block), {found.weight: taps[o, k], found.data: data})

    def window(n: Any, s: Any, k: Any) -> Any:
        return pixel(n, unflat(extents[1:], s), k)

    windows = te.compute((images, summed, whole), lambda n, k, s: window(n, s, k), name=WINDOWS)
    along = te.reduce_axis((0, depth), "k")

    def of_vector(j: Any, n: Any, o: Any, s: Any) -> Any:
        k = j * depth + along
        return te.sum(product(o, k, windows[n, k, s]), axis=along)

    products, dots = te.compute((parts, images, outputs, whole), of_vector, name=PRODUCTS), None
    if left:
        left_windows = te.compute(
            (images, left, summed), lambda n, at, k: window(n, at + whole, k), name=LEFT_WINDOWS
        )
        steps = te.reduce_axis((0, depth // lanes), "steps")

        def of_left(j: Any, n: Any, o: Any, at: Any, v: Any) -> Any:
            k = j * depth + steps * lanes + v
            return te.sum(product(o, k, left_windows[n, at, k]), axis=steps)

        dots = te.compute((parts, images, outputs, left, lanes), of_left, name=DOTS)
    sums, tensors = _sums(products, dots), dict(zip(found.beside, others, strict=True))

    def output(*index: Any) -> Any:
        n, o, first, *place = index
        return found.finished(sums(n, o, flat(extents[1:], first, place)), tensors, index)

    return [x, w, *others, te.compute(found.output.shape, output, name=OUTPUT)]


def _sums(products: Any, dots: Any | None) -> Callable[[Any, Any, Any], Any]:
    """Return what gives the sum of an image, an output and a pixel; without dots no pixel is left."""
    parts, images, outputs, whole = map(int, products.shape)
    j = te.reduce_axis((0, parts), "j")
    if dots is None:
        total = te.compute(
            (images, outputs, whole), lambda n, o, s: te.sum(products[j, n, o, s], axis=j), name=TOTAL
        )
        return lambda n, o, s: total[n, o, s]
    *_, left, lanes = map(int, dots.shape)

    def part(n: Any, o: Any, s: Any) -> Any:
        beyond = s - whole
        return tirx.if_then_else(
            s < whole, products[j, n, o, s], dots[j, n, o, beyond // lanes, beyond % lanes]
        )

    total = te.compute(
        (images, outputs, whole + left * lanes), lambda *at: te.sum(part(*at), axis=j), name=TOTAL
    )
    lane = te.reduce_axis((0, lanes), "v")
    lasts = te.compute(
        (images, outputs, left),
        lambda n, o, at: te.sum(total[n, o, whole + at * lanes + lane], axis=lane),
        name=LEFT,
    )
    return lambda n, o, s: tirx.if_then_else(s < whole, total[n, o, s], lasts[n, o, s - whole])
