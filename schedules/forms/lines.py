"""Windows along lines with a weight, of one channel or of all, over lines that are made whole vectors long.

A line of 14 pixels is two vectors of 8, and of the second two elements are computed for nothing::

    wide[.., h, u] = x[.., h, u], and 0 beyond the line
    sums[.., p, q] = sum of wide[.., p * s + i, q * s + j] * w[.., i, j] over i, j   # q to a vector's end
    y[.., p, q]    = sums[.., p, q]

Where windows move by s elements, neighbours of a vector are s apart. Lines are made longer in s phases then,
each of every s-th element, of which vectors are contiguous again (knob ``phases`` of the form)::

    wide[.., h, f, u] = x[.., h, u * s + f]
    sums[.., p, q] = sum of wide[.., p * s + i, j % s, q + j // s] * w[.., i, j]

Channels that are summed, as of a convolution with channels first, are another axis of image, weight and sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod
from typing import Any

import tvm
from tvm import sym, te, tirx
from tvm.ir import TensorLoad

from ...machine.errors import InputError
from ..analysis import Reduction, plain_reduction
from ..expressions import index_variables, loads_of, step_along
from ..restatement import replaced, with_stages

WIDE, SUMS, CROPPED = "lines_wide", "lines_sums", "lines_cropped"
"""The blocks of the form: lines made longer, sums along them, and what is kept of these."""


@dataclass(frozen=True)
class Lines(Reduction):
    """A sum over windows of an image whose last axis is contiguous and kept: they slide along it, or across.

    Parameters
    ----------
    image : TensorLoad
        The operand that slides along the line.
    others : tuple of TensorLoad
        What it is multiplied with: the same for all pixels of a line.
    """

    image: Any
    others: tuple[Any, ...]

    @property
    def output_axes(self) -> list[Any]:
        """The kept axes that the image does not have: its channels are summed for each of them."""
        used = index_variables(self.image.indices)
        return [v for v in self.kept if v.var not in used]

    @property
    def is_worth_longer_lines(self) -> bool:
        """Whether windows slide along the line, or read its elements several times across it."""
        read = prod(self.extents) * prod(self.taps)
        across = isinstance(self.image.indices[-1], tirx.Var)
        return not across or read > prod(int(extent) for extent in self.image.source.shape)

    @property
    def channels(self) -> int:
        """How many elements of the image are summed where windows do not slide."""
        slides = [index_variables([i]) for i in self.image.indices if not isinstance(i, tirx.Var)]
        return prod(int(v.dom.extent) for v in self.reduced if not any(v.var in each for each in slides))

    @property
    def apart(self) -> int:
        """How far apart along the line neighbours read it; 1 where that is no constant."""
        return step_along(self.image.indices[-1], self.kept[-1].var) or 1

    @property
    def taps_across(self) -> int:
        """How many elements of a window lie across the line."""
        along = index_variables(self.image.indices[-1:])
        return prod(int(v.dom.extent) for v in self.reduced if v.var not in along)

    @property
    def taps(self) -> list[int]:
        """How long the summed axes are."""
        return [int(v.dom.extent) for v in self.reduced]


@lru_cache(maxsize=16)  # the space asks, and then the restatement
def find_lines(func: Any) -> Lines | None:
    """Find the one window along lines of an unscheduled PrimFunc; None where it is something else."""
    sums = plain_reduction(func)
    if sums is None:
        return None
    block, kept = sums.block, [v.var for v in sums.kept]
    value, neutral = block.body.value, getattr(getattr(block.init, "value", None), "value", None)
    if not isinstance(value, tirx.Add) or neutral != 0 or not isinstance(value.a, TensorLoad):
        return None
    if not value.a.source.same_as(block.body.buffer):
        return None
    loads = loads_of(value.b)
    images = [load for load in loads if kept[-1] in index_variables(load.indices)]
    longer_than_1 = {v.var for v in sums.reduced if int(v.dom.extent) > 1}
    if len(images) != 1 or not _slides(images[0], kept, longer_than_1):
        return None
    found = Lines(block, images[0], tuple(load for load in loads if load is not images[0]))
    # A line that is read from its end has nothing before its beginning; one that leans has no bounds here.
    return found if _along(found, 2 * found.extents[-1]).min_value >= 0 else None


def _slides(image: Any, kept: Sequence[Any], summed: set[Any]) -> bool:
    """Tell whether an operand slides, by the last axis along its last; what does not slide may be summed."""
    used = [index_variables([index]) for index in image.indices]
    slid = {v for found in used if found & set(kept) for v in found & summed}
    plain = {index for index in image.indices if isinstance(index, tirx.Var)}
    return bool(slid) and summed <= slid | plain and kept[-1] not in set().union(*used[:-1])


def restate(func: Any, lanes: int, phases: int = 1) -> Any:
    """Put sums over longer lines in the place of those of a window.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_lines` finds a window.
    lanes : int
        What the length of a line becomes a multiple of.
    phases : int
        In how many phases a line is made longer: 1, or as many elements as windows move by.

    Raises
    ------
    InputError
        There is no such window: a trace may name a form that is not one of its function.
    """
    found = find_lines(func)
    if found is None or phases not in (1, found.apart):
        raise InputError(f"the function has no window along lines in {phases} phases")
    operands = {load.source: None for load in (found.image, *found.others)}
    return with_stages(func, found.name, list(operands), _define(found, list(operands), lanes, phases))


def _define(found: Lines, operands: Sequence[Any], lanes: int, phases: int) -> list[Any]:
    """Return the TE tensors of the operands and the output."""
    given = {b: te.placeholder([int(e) for e in b.shape], b.dtype, b.name) for b in operands}
    *outer, pixels = found.extents
    padded = ceil(pixels / lanes) * lanes
    x, pixel = given[found.image.source], found.kept[-1].var
    length = int(x.shape[-1])
    reach = max(length, int(_along(found, padded).max_value) + 1)

    def longer(*index: Any) -> Any:
        *lines, at = index if phases == 1 else (*index[:-2], index[-1] * phases + index[-2])
        return tirx.if_then_else(at < length, x(*lines, at), tirx.const(0, x.dtype))

    along = [reach] if phases == 1 else [phases, ceil(reach / phases)]
    wide = te.compute([*x.shape[:-1], *along], longer, name=WIDE)
    taps = [te.reduce_axis((0, extent), f"i{n}") for n, extent in enumerate(found.taps)]

    def summed(*index: Any) -> Any:
        new = dict(zip((v.var for v in found.kept), index, strict=True))
        new |= {v.var: tap.var for v, tap in zip(found.reduced, taps, strict=True)}

        def moved(load: Any) -> Any:
            if load is not found.image:
                return given[load.source](*(replaced(i, new) for i in load.indices))
            *lines, at = load.indices
            places = [replaced(i, new) for i in lines]
            if phases == 1:
                return wide(*places, replaced(at, new))
            # Of the tap alone: a constant where windows are unrolled. No pixel is divided.
            tap = replaced(at, {**new, pixel: tirx.IntImm("int64", 0)})
            return wide(*places, tirx.floormod(tap, phases), new[pixel] + tirx.floordiv(tap, phases))

        loads = {load: moved(load) for load in (found.image, *found.others)}
        return te.sum(replaced(found.block.body.value.b, loads), axis=taps)

    sums = te.compute([*outer, padded], summed, name=SUMS)
    return [*given.values(), te.compute([*outer, pixels], lambda *index: sums(*index), name=CROPPED)]


def _along(found: Lines, pixels: int) -> Any:
    """Return the bounds of where windows at so many pixels read a line."""
    ranges = sym.Analyzer()
    for v in found.reduced:
        ranges.bind(v.var, v.dom)
    ranges.bind(found.kept[-1].var, tvm.ir.Range(0, pixels))
    return ranges.const_int_bound(found.image.indices[-1])
