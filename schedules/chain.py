"""A chain of blocks that work on sums element by element, for forms that sum in another order of axes.

What a bias, an activation or a residual make of a sum is computed when it is brought back to its place:
element by element, or on vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx import IterVar

from .analysis import are_just, index_variables, loads_of
from .restatement import replaced
from .squares_form import Finish
from .vector_expressions import NO_VECTORS, can_evaluate, evaluated


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

    def can_finish(self, first: int) -> bool:
        """Tell whether it can be said in vectors along the output's dimensions from ``first`` on."""
        if NO_VECTORS in (str(block.body.buffer.dtype) for block in (self.block, *self.after)):
            return False
        for block in self.after:
            if not can_evaluate(block.body.value):
                return False
            for load in loads_of(block.body.value):
                if NO_VECTORS == str(load.source.dtype) or not _is_vector(block, load, first):
                    return False
        return True

    def finish(self, lanes: int, first: int) -> Finish | None:
        """Return what becomes of a vector of sums before it is stored, where `can_finish` holds."""
        if not self.after:
            return None

        def value(sums: Any, there: Sequence[Any]) -> Any:
            source = self.block.writes[0].source
            for block in self.after:
                sums, source = _applied(block, source, sums, there, lanes, first), block.body.buffer
            return sums

        return Finish(value, tuple(self.beside))


def block_axes(block: Any) -> list[Any]:
    """Return the variables of a block's axes."""
    return [v.var for v in block.iter_vars]


def _is_vector(block: Any, load: Any, first: int) -> bool:
    """Tell whether what is loaded for a vector is one number, or a vector of elements side by side."""
    along = block_axes(block)[first:]
    others, last = load.indices[: -len(along)], load.indices[-len(along) :]
    if not index_variables(load.indices) & set(along):
        return True
    inner, wanted = (list(buffer.shape)[1 - len(along) :] for buffer in (load.source, block.body.buffer))
    alike = len(along) == 1 or list(map(int, inner)) == list(map(int, wanted))
    return are_just(last, along) and alike and not index_variables(others) & set(along)


def _applied(block: Any, source: Any, vector: Any, there: Sequence[Any], lanes: int, first: int) -> Any:
    """Return what a block makes of a vector of its operand ``source``, which begins at an index."""
    axes = block_axes(block)
    new = dict(zip(axes, there, strict=True))

    def loaded(load: Any) -> Any:
        if load.source.same_as(source):
            return vector
        indices = [replaced(index, new) for index in load.indices]
        if index_variables(load.indices) & set(axes[first:]):
            return load.source.vload(indices, f"{load.source.dtype}x{lanes}")
        return tirx.Broadcast(load.source[tuple(indices)], lanes)

    return evaluated(block.body.value, loaded)
