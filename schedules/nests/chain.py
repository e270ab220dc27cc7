"""A chain of blocks that work on sums element by element, for forms that sum in another order of axes.

What a bias, an activation or a residual make of a sum is computed when it is brought back to its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tvm.tirx import IterVar

from ..expressions import are_just, loads_of
from ..restatement import held_blocks, replaced
from .contraction import Contraction

_Kind = TypeVar("_Kind", bound="ProductChain")


@dataclass(frozen=True)
class Chain:
    """A block that sums, and the blocks after it.

    Parameters
    ----------
    block : SBlock
        What sums.
    after : tuple of SBlock
        What works on the sums element by element, in order.
    """

    block: Any
    after: tuple[Any, ...]

    @property
    def kept(self) -> list[Any]:
        """The axes of the sums."""
        return [v.var for v in self.block.iter_vars if v.iter_type == IterVar.DataPar]

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

    def is_simple(self, func: Any, before: Sequence[Any] = ()) -> bool:
        """Tell whether each block works on what the one before wrote, which nothing else reads.

        ``before``: buffers from before the sums, which these blocks do not read either.
        """
        if not are_just(self.block.body.indices, self.kept):
            return False
        written, earlier = self.block.body.buffer, list(before)
        for block in self.after:
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


@dataclass(frozen=True)
class ProductChain(Chain):
    """A sum of products, and the blocks after it.

    Parameters
    ----------
    nest : Contraction
        The product.
    data, weight : TensorLoad
        Its operands.
    """

    nest: Contraction
    data: Any
    weight: Any


def product_chain(func: Any, nest: Contraction, kind: type[_Kind]) -> _Kind | None:
    """Return the sum of products in a PrimFunc with what follows it, or None where that is not simple.

    ``kind``: a class of `ProductChain`.
    """
    blocks = held_blocks(func)
    block, after = blocks[nest.block], tuple(blocks[name] for name in nest.epilogue)
    found = kind(block, after, nest, *nest.operands(block))
    return found if found.is_simple(func) else None


def block_axes(block: Any) -> list[Any]:
    """Return the variables of a block's axes."""
    return [v.var for v in block.iter_vars]
