"""A convolution of channels first, how it is found, and what its two forms share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tvm import te
from tvm.sym import Analyzer

from ..expressions import are_just, loads_of
from ..restatement import held_blocks, replaced, whole
from .chain import Chain, block_axes
from .contraction import find_contraction


@dataclass(frozen=True)
class ChannelsFirst(Chain):
    """A convolution of channels first, all of them summed.

    Parameters
    ----------
    data, weight : TensorLoad
        The operands of its sums.
    pad : SBlock or None
        What pads the image.
    turns_weight : bool
        Whether the weight has its output channels first, and is no constant.
    """

    data: Any
    weight: Any
    pad: Any
    turns_weight: bool

    @property
    def image(self) -> Any:
        """The buffer of the image."""
        return self.data.source if self.pad is None else loads_of(self.pad.body.value)[0].source

    @property
    def stride(self) -> int:
        """By how many pixels of a line windows move."""
        along = self.data.indices[-1]
        first, second = (replaced(along, {self.kept[-1]: whole(place)}) for place in (0, 1))
        return int(Analyzer().simplify(second - first))


@lru_cache(maxsize=16)  # rules ask, and then the restatement
def find_channels_first(func: Any) -> ChannelsFirst | None:
    """Find the convolution of channels first that a PrimFunc consists of, or None."""
    nest = find_contraction(func)
    if nest is None or nest.plain or nest.batch or nest.rest or nest.weight_block:
        return None
    if nest.data_rank < 3 or (nest.data_channel, nest.output_column) != (1, 1):
        return None
    if nest.prologue != (() if nest.staged is None else (nest.staged,)):
        return None
    blocks = held_blocks(func)
    block, after = blocks[nest.block], tuple(blocks[name] for name in nest.epilogue)
    data, weight = nest.operands(block)
    turned = nest.weight_axes[0] == nest.column and not nest.constant_weight
    pad = blocks[nest.staged] if nest.staged else None
    found = ChannelsFirst(block, after, data, weight, pad, turned)
    before = [] if pad is None else [pad.body.buffer]
    return found if (pad is None or _only_pads(pad)) and found.is_simple(func, before) else None


def _only_pads(pad: Any) -> bool:
    """Tell whether a block reads one image, each channel from the same channel."""
    loads = loads_of(pad.body.value)
    channel = pad.iter_vars[1].var
    return (
        len(loads) == 1
        and len(loads[0].indices) == len(pad.iter_vars)
        and loads[0].indices[1].same_as(channel)
        and are_just(pad.body.indices, block_axes(pad))
    )


def padded_image(pad: Any, x: Any, name: str, *, is_turned: bool = False) -> Any:
    """Return the stage that pads an image, perhaps of channels last."""
    (load,), extents = loads_of(pad.body.value), list(pad.body.buffer.shape)

    def pixel(*index: Any) -> Any:
        at = [index[0], index[-1], *index[1:-1]] if is_turned else list(index)
        axes = dict(zip(block_axes(pad), at, strict=True))
        there = [replaced(i, axes) for i in load.indices]
        there = channel_last(there) if is_turned else there
        return replaced(replaced(pad.body.value, {load: x(*there)}), axes)

    return te.compute(channel_last(extents) if is_turned else extents, pixel, name=name)


def channel_last(indices: Sequence[Any]) -> list[Any]:
    """Return indices, or extents, with the channel's last."""
    n, channel, *place = indices
    return [n, *place, channel]
