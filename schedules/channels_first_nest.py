"""A convolution of channels first, how it is found, and what its two forms share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tvm import te
from tvm.tirx import IterVar

from .analysis import are_just, loads_of
from .contraction import find_contraction, product_operands
from .restatement import held_blocks, replaced


@dataclass(frozen=True)
class ChannelsFirst:
    """A convolution of channels first, all of them summed.

    Parameters
    ----------
    block : SBlock
        What sums products.
    data, weight : TensorLoad
        Its operands.
    pad : SBlock or None
        What pads the image.
    after : tuple of SBlock
        What works on the sums element by element, in order.
    turns_weight : bool
        Whether the weight has its output channels first, and is no constant.
    """

    block: Any
    data: Any
    weight: Any
    pad: Any
    after: tuple[Any, ...]
    turns_weight: bool

    @property
    def kept(self) -> list[Any]:
        """The axes of the output."""
        return [v.var for v in self.block.iter_vars if v.iter_type == IterVar.DataPar]

    @property
    def image(self) -> Any:
        """The buffer of the image."""
        return self.data.source if self.pad is None else loads_of(self.pad.body.value)[0].source

    @property
    def output(self) -> Any:
        """The buffer of the output."""
        return (self.block if not self.after else self.after[-1]).writes[0].source

    @property
    def beside(self) -> list[Any]:
        """The buffers that what works on the sums reads besides, each once."""
        written = [self.block.writes[0].source, *(block.body.buffer for block in self.after)]
        loads = [load.source for block in self.after for load in loads_of(block.body.value)]
        return list(dict.fromkeys(each for each in loads if not any(each.same_as(w) for w in written)))

    def finished(self, sums: Any, beside: Mapping[Any, Any], index: Sequence[Any]) -> Any:
        """Return what becomes of the sum at an index of the output, where others read tensors ``beside``."""
        source = self.block.writes[0].source
        for block in self.after:
            new = dict(zip(block_axes(block), index, strict=True))
            loads = {
                load: sums
                if load.source.same_as(source)
                else beside[load.source](*(replaced(i, new) for i in load.indices))
                for load in loads_of(block.body.value)
            }
            sums, source = replaced(block.body.value, loads), block.body.buffer
        return sums


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
    operands = product_operands(block)
    assert operands is not None, "a contraction sums products"
    data, weight = operands if nest.data_first else operands[::-1]
    turned = nest.weight_axes[0] == nest.column and not nest.constant_weight
    pad = blocks[nest.staged] if nest.staged else None
    found = ChannelsFirst(block, data, weight, pad, after, turned)
    simple = (pad is None or _only_pads(pad)) and _is_chain(func, found)
    return found if simple and are_just(block.body.indices, found.kept) else None


def _is_chain(func: Any, found: ChannelsFirst) -> bool:
    """Tell whether each block after the sums works on what the one before wrote, which no other reads."""
    written = found.block.body.buffer
    earlier: list[Any] = [] if found.pad is None else [found.pad.body.buffer]
    for block in found.after:
        axes = block_axes(block)
        if not are_just(block.body.indices, axes):
            return False
        for load in loads_of(block.body.value):
            if any(load.source.same_as(each) for each in earlier):
                return False
            if load.source.same_as(written) and not are_just(load.indices, axes):
                return False
        earlier.append(written)
        written = block.body.buffer
    return not any(parameter.same_as(each) for parameter in func.params for each in earlier)


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


def block_axes(block: Any) -> list[Any]:
    """Return the variables of a block's axes."""
    return [v.var for v in block.iter_vars]


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
