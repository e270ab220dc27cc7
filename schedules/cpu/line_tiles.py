"""What a tile of a convolution along lines is chosen by: its cost, its registers, what others would take."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from ...machine.element import element_bytes
from ...machine.facts import Facts
from ..forms.lines import Lines
from .separable import even_lines
from .tile_choice import BROADCAST_REGISTERS, ROW_STREAMS, VECTOR_CANDIDATES

# Lines that a block reads, of all channels, keep to this part of L2.
_PART_OF_L2 = 2

# What broadcasts and vectors of a line, which mostly lie in two lines of a cache, add to the cost of a step's
# multiply-adds. Fitted to 9 layers on 2 threads of a Xeon, all tiles of each: 8 outputs by 2 or 3 vectors are
# within 5 % of the best, 16 by 1 take 1.15 of the time, 4 by 5 1.10, 2 by 7 1.25.
_BROADCAST, _LOAD = 0.6, 2.0

# What others take, between transpositions: the multiply-adds that they compute, more where windows move by
# several pixels; for transposing an element, and for passes that wait for each other, as many multiply-adds
# of vectors. One of these is `_OTHERS` of the unit of `cost`. Fitted to 134 layers on 2 threads of a Xeon:
# what is chosen takes 1.5 % longer than the best of each.
_OTHERS, _STRIDED, _TRANSPOSED, _PASSES = 1.4, 1.3, 2.0, 150_000


@dataclass(frozen=True)
class LineTiles:
    """What the choice of a tile depends on: a convolution along lines on a machine.

    Parameters
    ----------
    found : Lines
        The sums: of all channels, for each of several outputs.
    machine : Facts
        The target's facts.
    """

    found: Lines
    machine: Facts

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return element_bytes(self.found.image.source.dtype)

    @property
    def lanes(self) -> int:
        """Elements in a vector."""
        return self.machine.lanes(str(self.found.image.source.dtype))

    @property
    def outputs(self) -> int:
        """How many channels the output has."""
        return int(self.found.output_axes[0].dom.extent)

    @property
    def steps(self) -> int:
        """Vectors of a line."""
        return ceil(self.found.extents[-1] / self.lanes)

    @property
    def shared(self) -> list[int]:
        """Extents of the axes that threads may share, and of a line."""
        return [int(v.dom.extent) for v in self.found.kept if v not in self.found.output_axes]

    def fits(self, outputs: int, vectors: int) -> bool:
        """Tell whether a tile's sums, a step of its lines and a broadcast are in registers."""
        return outputs * vectors + vectors + BROADCAST_REGISTERS <= self.machine.vector_registers

    def best(self) -> tuple[int, int]:
        """Choose the output channels and the vectors of a tile."""
        widths = range(1, min(self.steps, VECTOR_CANDIDATES[-1]) + 1)
        heights = range(1, min(self.outputs, ROW_STREAMS) + 1)
        return min(((o, v) for v in widths for o in heights if self.fits(o, v)), key=lambda t: self.cost(*t))

    def cost(self, outputs: int, vectors: int) -> float:
        """Estimate a step of a line, of all output channels, in multiply-adds of vectors."""

        def parts(whole: int, part: int) -> list[tuple[int, int]]:
            return [(whole // part, part), *([(1, whole % part)] if whole % part else [])]

        return sum(
            n * m * height * width * (1 + _BROADCAST / width + _LOAD / height)
            for n, height in parts(self.outputs, outputs)
            for m, width in parts(self.steps, vectors)
        )

    def lines(self) -> int:
        """Choose the output lines of a block, whose input L2 keeps."""
        *_, height, width = (int(extent) for extent in self.found.image.source.shape)
        line = self.found.channels * width * self.item * ceil(height / self.found.extents[-2])
        most = self.machine.l2_bytes // _PART_OF_L2 // line
        return even_lines(self.shared, self.machine.cores, max(1, most))

    def reads_weight_from_l2(self) -> bool:
        """Tell whether L2 holds the weight: it is read again for each line."""
        return self.outputs * prod(self.found.taps) * self.item <= self.machine.l2_bytes

    def is_quicker(self, share: float) -> bool:
        """Tell whether tiles of lines take less time than vectors of channels between transpositions.

        ``share``: of the direct sum's multiply-adds, those that the latter compute.
        """
        *outer, pixels = self.shared
        taps, image = prod(self.found.taps), prod(int(extent) for extent in self.found.image.source.shape)
        along_lines = prod(outer) * taps * self.cost(*self.best())
        along_channels = prod(outer) * taps * pixels * ceil(self.outputs / self.lanes)
        share *= _STRIDED if self.found.apart > 1 else 1
        moved = _TRANSPOSED * (image + prod(self.found.extents)) + _PASSES
        return along_lines < _OTHERS * (share * along_channels + moved)
