"""Windows that slide over an image, each channel for itself, channels last: how one is found.

Depthwise convolution, also transposed, and pooling::

    for n, p, q, c, i, j:  y[n, p, q, c] += x[n, p * s + i, q * s + j, c] * w[i, j, c]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from tvm.tirx import IterVar

from ..analysis import (
    block_names,
    block_of,
    has_condition,
    one_reduction,
    same_shape,
    schedule_to_read,
    static_extents,
)
from ..expressions import index_variables, loads_of


@dataclass(frozen=True)
class Window:
    """A reduction over a sliding window in which each channel is by itself, and channels are contiguous.

    Parameters
    ----------
    block : str
        The reduction's block.
    pad : str or None
        The block that pads its input.
    fills : tuple of str
        Blocks that fill up weights with zeros.
    prologue, epilogue : tuple of str
        Element-wise blocks before it (without the padding) and after it, in order.
    extents : tuple of int
        Iterations of the loops that are kept: images and lines, pixels, channels.
    taps : tuple of int
        Iterations of the loops that are reduced.
    padded : tuple of int
        Lines and pixels of the padded image; none where no block pads.
    dtype : str
        The type that is reduced in.
    """

    block: str
    pad: str | None
    fills: tuple[str, ...]
    prologue: tuple[str, ...]
    epilogue: tuple[str, ...]
    extents: tuple[int, ...]
    taps: tuple[int, ...]
    padded: tuple[int, ...]
    dtype: str

    @property
    def work(self) -> int:
        """Elements that are reduced."""
        return prod(self.extents) * prod(self.taps)


@lru_cache(maxsize=16)  # each rule asks, and then its rewriting
def find_window(func: Any) -> Window | None:
    """Find the one sliding window of an unscheduled PrimFunc; None where it is something else."""
    sch = schedule_to_read(func)
    names, sums = block_names(sch), one_reduction(sch)
    if sums is None:
        return None
    block, extents = block_of(sch, sums), static_extents(sch, sums)
    kept = [v for v in block.iter_vars if v.iter_type == IterVar.DataPar]
    if extents is None or len(extents) != len(block.iter_vars) or len(kept) < 3 or len(block.writes) != 1:
        return None
    if list(block.iter_vars)[: len(kept)] != kept or not _slides_by_channel(block, kept):
        return None
    at = names.index(sums)
    pads = [name for name in names[:at] if has_condition(sch, name)]
    if not all(same_shape(sch, sums, name) for name in names[at + 1 :]):
        return None
    # A weight may be filled up too; of the two the image is the larger.
    by_size = sorted(pads, key=lambda name: prod(static_extents(sch, name) or ()))
    fills, pad = (by_size[:-1], by_size[-1]) if by_size else ([], None)
    return Window(
        block=sums,
        pad=pad,
        fills=tuple(fills),
        prologue=tuple(name for name in names[:at] if name not in pads),
        epilogue=tuple(names[at + 1 :]),
        extents=extents[: len(kept)],
        taps=extents[len(kept) :],
        padded=(static_extents(sch, pad) or ())[-3:-1] if pad else (),
        dtype=str(block.writes[0].source.dtype),
    )


def _slides_by_channel(block: Any, kept: list[Any]) -> bool:
    """Tell whether all loads are contiguous along the last axis that is kept, and some slide along others."""
    channel = kept[-1].var
    single = {v.var for v in block.iter_vars if int(v.dom.extent) == 1}
    reduced = {v.var for v in block.iter_vars if v.iter_type == IterVar.CommReduce} - single
    places = {v.var for v in kept[:-1]}
    loads = [load for load in loads_of(block.body) if not load.source.same_as(block.writes[0].source)]
    for load in loads:
        # Axes of extent 1 behind the channel move nothing.
        indices = [i for i, d in zip(load.indices, load.source.shape, strict=True) if int(d) != 1]
        last, others = index_variables(indices[-1:]) - single, index_variables(indices[:-1])
        if last != {channel} or channel in others:
            return False
    return any(
        index_variables([i]) & reduced and index_variables([i]) & places
        for load in loads
        for i in load.indices
    )
