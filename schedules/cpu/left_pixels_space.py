"""What vectors of pixels, and dot products for those left, may choose, and where they are worth it."""

from __future__ import annotations

from math import ceil, prod
from typing import Any, NamedTuple

from ...machine.facts import Facts, facts
from ..forms.left_pixels import find_left_pixels, vectors_of_pixels
from ..nests.channels_first import ChannelsFirst
from ..space import Constraint, Knob, KnobSpace
from ..transforms import LEAST_PARALLEL_SUMS
from .even_parts import divisors, even_divisor
from .tile_choice import BROADCAST_REGISTERS, ROW_STREAMS, tile_cost

# What each pixel that is left adds beside its lanes, in vectors: what adds up parts of its dot products, and
# once a sum's lanes. It is worth so many of the vectors that all pixels would be. On 2 threads of a Zen 5,
# time over that of `flat_pixels`, 1x1 by sums of 512: 18, 20, 35, 36, 49, 51, 52, 65, 81 pixels 0.72, 0.88,
# 0.84, 0.90, 0.81, 0.87, 0.91, 0.83, 0.91, 68, 84, 99 pixels 0.99 to 1.0, 25 pixels 1.4; by sums of 256 20,
# 36, 49 and 81 pixels 1.03, 1.09, 0.82 and 0.87.
_OF_DOT, _OF_LANES, _WORTH_DOTS = 0.06, 40, 0.95

# Fewer channels take less than what is copied for them: 7x7 of 256 to 16, 1x1, takes twice as long, to 32
# 1.04, 3x3 of 64 to 32 1.1 to 1.2, of 128 to 48 1.0, of 64 to 64 0.89.
_LEAST_CHANNELS = 64

# More images are as fast, or faster, by their channels: time over `conv2d_channels_first`, 7x7 of 2048 to 512
# and back, 4 images 0.80 and 0.86, 8 0.83 and 0.90, 16 0.98 and 1.05, 64 1.04 and 1.6.
_MOST_IMAGES = 8

# Where no pixel is left, others turn the weight for windows of several taps, or copy more of the image. On 2
# threads of a Xeon time over `conv2d_channels_first` of 1, 4, 9, 16, 25, 49 vectors: 0.43 to 0.48, 0.35 to
# 0.5, 0.68 to 0.86, 0.65 to 0.89, 0.97, 1.75.
_MOST_WHOLE_VECTORS = 16

# Sums of fewer parts LLVM unrolls, and keeps those of one while it computes the next: 7x7 pixels of 256 to
# 1024 channels take 2.4 times as long with AVX2.
_LEAST_PARTS = 4
# Products of a part, whose windows and weights stay near, and for which sums are seldom added: 7x7 of 512,
# 3x3, takes 0.455 ms with 96 and 144, 0.465 with 288. Where L3 is far away longer rows of weights are read at
# once: on 2 threads of a Xeon with 576 it takes 0.84 of the time, 12x12 of 256 by 2 0.86, 10x10 of 256 0.9,
# 1x1 of 2048 to 512 with 512 0.9, of 512 to 2048 1.06.
_DEPTH, _DEPTH_FAR = 144, 576

# To copy takes as long as so many multiply-adds. Threads share it where they have few channels each: to wait
# for each other takes as long. 14x14 of 832 to 128 by 2, copied element by element, takes 0.81 of the time,
# 7x7 of 128 to 64, 3x3, 1.04.
_COPIES = 12

_MOST_ROWS, _WIDEST = 16, 5
_ITEM = 4  # bytes of a float32


class _Shape(NamedTuple):
    """What decides: pixels of an image in ``whole`` vectors, and those ``left``.

    ``taps``: of a window; ``summed``: products of a sum; ``copies``: what is copied for each of them at once.
    """

    images: int
    channels: int
    taps: int
    summed: int
    whole: int
    left: int
    copies: int


def _shape(found: ChannelsFirst, lanes: int) -> _Shape:
    images, channels, *_, line = map(int, found.output.shape)
    _, inputs, *window = map(int, found.weight.source.shape)
    whole, left = vectors_of_pixels(found, lanes)
    at_once = 1 if found.stride > 1 else side_by_side(window, line, whole, lanes)
    taps, copies = prod(window), ceil(whole / at_once)
    return _Shape(images, channels, taps, inputs * taps, whole, left, copies)


def side_by_side(window: list[int], line: int, whole: int, lanes: int) -> int:
    """Return how many pixels are copied at once: a vector where those under a tap lie so, else a line."""
    return lanes if prod(window) == 1 or line >= whole else line


def _is_worth_it(shape: _Shape, lanes: int) -> bool:
    """Tell whether it takes less than vectors of all pixels, or, where none is left, than other schedules."""
    vectors, pixels = shape.whole // lanes, shape.whole + shape.left
    work = shape.images * shape.channels * shape.summed * pixels
    few = shape.channels < _LEAST_CHANNELS or shape.images > _MOST_IMAGES or work < LEAST_PARALLEL_SUMS
    if few or not vectors:
        return False
    if not shape.left:
        return shape.taps > 1 and vectors <= _MOST_WHOLE_VECTORS
    of_dots = shape.left * (1 / lanes + _OF_DOT + _OF_LANES / shape.summed)
    return vectors + of_dots < _WORTH_DOTS * (vectors + 1)


def left_pixels_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the tiles to choose from; None where it saves little, or none divide the channels."""
    found, machine = find_left_pixels(func), facts(target)
    if found is None:
        return None
    lanes, registers = machine.lanes("float32"), machine.vector_registers
    shape = _shape(found, lanes)
    depths = tuple(d for d in divisors(shape.summed, shape.summed // _LEAST_PARTS) if d % lanes == 0)
    default = _default(shape, machine, depths) if _is_worth_it(shape, lanes) else None
    if default is None:
        return None
    widths = divisors(shape.whole // lanes, _WIDEST)
    return KnobSpace(
        knobs=(
            Knob("lanes", (lanes,), "pixels of a vector"),
            Knob("depth", depths, "products of a part of the sum"),
            Knob("mr", divisors(shape.channels, _MOST_ROWS), "channels of a tile"),
            Knob("nr", tuple(vectors * lanes for vectors in widths), "pixels of a tile"),
            Knob("block_rows", divisors(shape.channels), "tiles of channels in a block"),
            Knob("ahead", (0, 1), "1: all windows are copied first; 0: a part of them before it is used"),
        ),
        constraints=(
            Constraint(
                f"lanes is {lanes}, and depth, mr, nr and block_rows are at least 1",
                lambda k: k["lanes"] == lanes and min(k["depth"], k["mr"], k["nr"], k["block_rows"]) >= 1,
            ),
            Constraint(
                f"depth divides the products of a sum ({shape.summed}), nr the pixels ({shape.whole}), and "
                "both are whole vectors",
                lambda k: _are_parts((k["depth"], shape.summed), (k["nr"], shape.whole), lanes=lanes),
            ),
            Constraint(
                f"mr * block_rows divides the channels ({shape.channels})",
                lambda k: shape.channels % (k["mr"] * k["block_rows"]) == 0,
            ),
            Constraint(
                f"mr rows of nr / lanes vectors, these and a broadcast fit {registers} registers",
                lambda k: _fits(k["mr"], k["nr"] // k["lanes"], registers),
            ),
        ),
        default=default,
    )


def _are_parts(*parts: tuple[int, int], lanes: int) -> bool:
    """Tell whether each is whole vectors, and divides what it is a part of."""
    return all(part % lanes == 0 and whole % part == 0 for part, whole in parts)


def _fits(mr: int, vectors: int, registers: int) -> bool:
    return (mr + 1) * vectors + BROADCAST_REGISTERS <= registers


def _default(shape: _Shape, machine: Facts, depths: tuple[int, ...]) -> dict[str, int] | None:
    """Choose the cheapest tile, and parts that stay in L2, of whole windows if there are such.

    Parts of others have their windows copied first, all of them. None where there are no parts or no tiles.
    """
    lanes = machine.lanes("float32")
    kept = machine.l2_bytes // 2 // (shape.images * shape.whole * _ITEM)
    whole = [depth for depth in depths if depth % shape.taps == 0]
    parts = [depth for depth in whole or depths if 2 * lanes <= depth <= kept]
    tiles = [
        (mr, vectors)
        for mr in divisors(shape.channels, ROW_STREAMS)
        for vectors in divisors(shape.whole // lanes, _WIDEST)
        if _fits(mr, vectors, machine.vector_registers)
    ]
    if not parts or not tiles:
        return None
    mr, vectors = min(tiles, key=lambda tile: tile_cost(*tile))
    block_rows = even_divisor(shape.channels // mr, shape.channels // mr, machine.cores)
    most = _DEPTH_FAR if machine.has_far_l3 else _DEPTH
    return {
        "lanes": lanes,
        "depth": max((depth for depth in parts if depth <= most), default=parts[0]),
        "mr": mr,
        "nr": vectors * lanes,
        "block_rows": block_rows,
        "ahead": int(not whole or _COPIES * shape.copies > mr * block_rows * shape.whole // lanes),
    }
