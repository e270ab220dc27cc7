"""A convolution of channels first as one of channels last, between transpositions in registers.

Vectors of a convolution are output channels, and its sums are over input channels: with channels last both
lie side by side. So its image, its weight and its result are transposed, in squares (see `forms.squares`)::

    image[n, h, w, c] = x[n, c, h, w]
    taps[i, j, c, o] = weight[o, c, i, j]
    sums[n, p, q, o] = sum of padded image[n, p + i, q + j, c] * taps[i, j, c, o]
    y[n, o, p, q] = epilogue of sums[n, p, q, o]

What is added to the result, as a bias or a residual, is added to vectors of pixels. An image or a result of
fewer channels than a square has is copied as it is; a constant weight too, which is laid out beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

from tvm import te, tirx
from tvm.tirx import IterVar

from ...machine.errors import InputError
from ..expressions import are_just, index_variables, loads_of
from ..nests.chain import block_axes
from ..nests.channels_first import ChannelsFirst, channel_last, find_channels_first, padded_image
from ..restatement import STEP, placeholders, replaced, stage_nests, summed_term, with_nests, without_buffers
from .squares import Finish, Transposition, squares_nest, transposition
from .vector_expressions import NO_VECTORS, can_evaluate, evaluated

IMAGE, TAPS, RESULT = (f"{STEP}{operand}" for operand in ("image", "taps", "result"))
"""The blocks that transpose; the others are those of the convolution, channels last."""

OUTPUT = "channels_first"
"""The block that copies a result which is not transposed in squares."""

_LEAST_LANES = 4


def _can_finish(found: ChannelsFirst) -> bool:
    """Tell whether what works on the sums can be said in vectors of pixels."""
    if NO_VECTORS in (str(block.body.buffer.dtype) for block in (found.block, *found.after)):
        return False
    for block in found.after:
        axes, value = block_axes(block), block.body.value
        if not can_evaluate(value):
            return False
        for load in loads_of(value):
            along = bool(index_variables(load.indices) & set(axes[2:]))
            if NO_VECTORS == str(load.source.dtype) or (along and not are_just(load.indices, axes)):
                return False
    return True


def squares_of(found: ChannelsFirst, lanes: int) -> dict[str, int]:
    """Return the sides of the squares, up to ``lanes``, of what is transposed, by the blocks' names.

    What no square fits is not among them; nothing is where vectors cannot say what follows the sums, as of
    bfloat16: element by element on the way back 28x28 takes 1.1 times the time (2 threads of a Zen 4).
    """
    if not _can_finish(found):
        return {}
    sides = {IMAGE: _sides(found.image), RESULT: _sides(found.block.writes[0].source)}
    if found.turns_weight:
        outputs, *others = (int(extent) for extent in found.weight.source.shape)
        sides[TAPS] = (outputs, prod(others))
    widest = {name: _widest(min(lengths), lanes) for name, lengths in sides.items()}
    return {name: side for name, side in widest.items() if side >= _LEAST_LANES}


def _sides(buffer: Any) -> tuple[int, int]:
    _, channels, *pixels = (int(extent) for extent in buffer.shape)
    return channels, prod(pixels)


def _widest(length: int, lanes: int) -> int:
    return min(lanes, 1 << (length.bit_length() - 1))


@lru_cache(maxsize=4)  # the spaces of two rules ask, and then the schedule begins with it
def restate(func: Any, lanes: int) -> Any:
    """Put channels last inside a convolution of channels first.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_channels_first` finds a convolution.
    lanes : int
        Rows and columns of the largest squares.

    Raises
    ------
    InputError
        There is no such convolution, or no square fits into image or result: a trace may name a form that is
        not one of its function.
    """
    found = find_channels_first(func)
    squares = {} if found is None else squares_of(found, lanes)
    if found is None or not {IMAGE, RESULT} & set(squares):
        raise InputError(f"the function is no convolution of channels first, in squares of {lanes}")
    image, sums = _turned(found.image, "image"), _turned(found.block.writes[0].source, "sums")
    outputs, inputs, *window = found.weight.source.shape
    taps = tirx.decl_buffer([*window, inputs, outputs], found.weight.source.dtype, "taps")
    given = {
        "image": image if IMAGE in squares else found.image,
        "taps": taps if TAPS in squares else found.weight.source,
    }
    inner, buffers = _channels_last(found, given, sums, squares)
    if RESULT not in squares:
        copied, between = stage_nests([sums, *found.beside, found.output], _copied(found, sums))
        inner, buffers = [*inner, *copied], [*buffers, *between]
    rank = len(image.shape)
    body = []
    if IMAGE in squares:
        turn = transposition(found.image, image, (0, rank - 1, *range(1, rank - 1)))
        body.append(squares_nest(turn, squares[IMAGE], name=IMAGE))
        buffers.append(image)
    if TAPS in squares:
        body.append(squares_nest(_turned_taps(found.weight.source, taps), squares[TAPS], name=TAPS))
        buffers.append(taps)
    body += inner
    if RESULT in squares:
        back = transposition(sums, found.output, (0, *range(2, rank), 1))
        body.append(squares_nest(back, squares[RESULT], name=RESULT, finish=_finish(found, squares[RESULT])))
    return with_nests(without_buffers(func), body, [*buffers, sums])


def _turned_taps(weight: Any, taps: Any) -> Transposition:
    """Return the copy of a weight (o, c, i, j) to (i, j, c, o).

    What is contiguous in the weight is one row after the other of a square, wherever it goes.
    """
    last = len(weight.shape) - 1
    inputs = (last - 1, *range(last - 1))
    return Transposition(weight, taps, (last, *inputs), (inputs, (last,)))


def _turned(buffer: Any, name: str) -> Any:
    """Return a buffer for the same with its channels last."""
    return tirx.decl_buffer(channel_last(buffer.shape), buffer.dtype, name)


def _channels_last(
    found: ChannelsFirst, given: dict[str, Any], sums: Any, squares: dict[str, int]
) -> tuple[list[Any], list[Any]]:
    """Return the loop nests that pad an image and sum products, channels last, and the buffers between."""
    x, w = placeholders(given.values())
    padded = x
    if found.pad is not None:
        padded = padded_image(found.pad, x, str(found.pad.name_hint), is_turned=IMAGE in squares)
    name = str(found.block.name_hint)
    y = te.compute(sums.shape, _sum(found, padded, w, squares), name=name)
    return stage_nests([*given.values(), sums], [x, w, y])


def _sum(found: ChannelsFirst, x: Any, w: Any, squares: dict[str, int]) -> Any:
    """Return what sums the products of a padded image and taps, which may be turned, for one output."""
    sums = {
        v.var: te.reduce_axis((0, int(v.dom.extent)), str(v.var.name).removeprefix("v_"))
        for v in found.block.iter_vars
        if v.iter_type == IterVar.CommReduce
    }

    def product(n: Any, *index: Any) -> Any:
        *place, o = index
        new = dict(zip(found.kept, (n, o, *place), strict=True)) | {v: axis.var for v, axis in sums.items()}
        pixel, tap = ([replaced(i, new) for i in load.indices] for load in (found.data, found.weight))
        there = x(*channel_last(pixel)) if IMAGE in squares else x(*pixel)
        weight = w(*tap[2:], tap[1], tap[0]) if TAPS in squares else w(*tap)
        return te.sum(
            replaced(summed_term(found.block), {found.data: there, found.weight: weight}),
            axis=list(sums.values()),
        )

    return product


def _copied(found: ChannelsFirst, sums: Any) -> list[Any]:
    """Return the TE tensors sums, what is read beside them, and the output, of channels first."""
    x, *others = placeholders([sums, *found.beside])
    tensors = dict(zip(found.beside, others, strict=True))

    def value(*index: Any) -> Any:
        return found.finished(x(*channel_last(index)), tensors, index)

    return [x, *others, te.compute(found.output.shape, value, name=OUTPUT)]


def _finish(found: ChannelsFirst, lanes: int) -> Finish | None:
    """Return what becomes of a vector of sums, along pixels, before it is stored."""
    if not found.after:
        return None

    def value(sums: Any, there: Sequence[Any]) -> Any:
        source = found.block.writes[0].source
        for block in found.after:
            sums, source = _applied(block, source, sums, there, lanes), block.body.buffer
        return sums

    return Finish(value, tuple(found.beside))


def _applied(block: Any, source: Any, vector: Any, there: Sequence[Any], lanes: int) -> Any:
    """Return what a block makes of a vector of its operand ``source``, which begins at an index."""
    axes = block_axes(block)
    new = dict(zip(axes, there, strict=True))

    def loaded(load: Any) -> Any:
        if load.source.same_as(source):
            return vector
        indices = [replaced(index, new) for index in load.indices]
        if index_variables(load.indices) & set(axes[2:]):
            return load.source.vload(indices, f"{load.source.dtype}x{lanes}")
        return tirx.Broadcast(load.source[tuple(indices)], lanes)

    return evaluated(block.body.value, loaded)
