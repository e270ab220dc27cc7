r"""The sums of a transposed convolution, channels last, of lines, images or volumes.

.. math:: y_{n,p,o} = \sum_{i,c} x_{n,\; u,\; g(o) + c} \; w_{i,\; g(o) + c,\; o'}
    \quad\text{over}\quad u s + i = p + r

where p, u, i, the stride s and the cropping r have a number for each axis of the image, g(o) is the first
input channel of o's group and o' the place of o in it.

Of a place p + r = s a + b with b < s only the taps i = b + s (T - 1 - t) exist, where T = ceil(k / s), and
they meet the pixel a - (T - 1) + t: the sum runs over T taps an axis, and no zero between pixels is
multiplied. Where s does not divide the kernel it is filled up with zeros. Pixels grow with t: of a difference
LLVM works out each place anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import te, topi


@dataclass(frozen=True)
class TransposedConvolution:
    """What a transposed convolution computes; there is a number for each axis of the image.

    Parameters
    ----------
    strides : sequence of int
        How far apart the outputs lie that a tap makes of neighbours.
    cropped : sequence of int
        How many places are left out before the first output.
    outputs : sequence of int
        Extents of the output; places that no pixel reaches are zeros.
    groups : int
        Of input and output channels.
    dtype : str
        What is summed in.
    """

    strides: Sequence[int]
    cropped: Sequence[int]
    outputs: Sequence[int]
    groups: int
    dtype: str

    def of(self, data: Any, weight: Any) -> Any:
        """Return the TE tensor (n, *outputs, co).

        Parameters
        ----------
        data, weight : te.Tensor
            (n, *pixels, ci) and (*taps, ci, co / groups).
        """
        pixels, kernel = ([int(d) for d in x] for x in (data.shape[1:-1], weight.shape[:-2]))
        taps = [-(-k // s) for k, s in zip(kernel, self.strides, strict=True)]
        before = [max(0, t - 1 - first) for t, first in zip(taps, self._first, strict=True)]
        after = [max(0, last - (size - 1)) for last, size in zip(self._last, pixels, strict=True)]
        missing = [t * s - k for t, s, k in zip(taps, self.strides, kernel, strict=True)]
        x = _filled(data, (0, *before, 0), (0, *after, 0), "pad")
        w = _filled(weight, (0,) * len(weight.shape), (*missing, 0, 0), "weight_pad")
        axes = [te.reduce_axis((0, t), name=name) for name, t in zip("ijk", taps, strict=False)]
        if all(s == 1 for s in self.strides):
            return self._turned(x, w, axes, before)
        alone = self.groups > 1 and int(data.shape[-1]) == self.groups and int(weight.shape[-1]) == 1
        return (self._by_channel if alone else self._by_phase)(x, w, axes, before)

    @property
    def _name(self) -> str:
        return f"conv{len(self.outputs)}d_transpose"

    @property
    def _first(self) -> list[int]:
        """The first pixel that reaches the output: what is cropped whole is never computed."""
        return [r // s for r, s in zip(self.cropped, self.strides, strict=True)]

    @property
    def _last(self) -> list[int]:
        """The last pixel that outputs ask for."""
        ends = zip(self.outputs, self.cropped, self.strides, strict=True)
        return [(p - 1 + r) // s for p, r, s in ends]

    def _turned(self, x: Any, w: Any, axes: Sequence[Any], before: Sequence[int]) -> Any:
        """Enlarge nothing: a convolution with its taps in the other order."""
        ci, co = int(x.shape[-1]) // self.groups, int(w.shape[-1])
        c, kernel = te.reduce_axis((0, ci), name="c"), [int(k) for k in w.shape[:-2]]

        def first_channel(o: Any) -> Any:
            return o // co * ci if self.groups > 1 else 0

        def tap(*indices: Any) -> Any:
            *taps, c, o = indices
            places = [k - 1 - t for k, t in zip(kernel, taps, strict=True)]
            return w(*places, first_channel(o) + c, o % co if self.groups > 1 else o)

        turned = te.compute((*kernel, ci, self.groups * co), tap, name="weight_turned")
        first = [f + b - (k - 1) for f, b, k in zip(self._first, before, kernel, strict=True)]

        def at(n: Any, *indices: Any) -> Any:
            *outputs, o = indices
            met = [p + f + t for p, f, t in zip(outputs, first, axes, strict=True)]
            return self._sum(x(n, *met, first_channel(o) + c), turned(*axes, c, o), [*axes, c])

        return te.compute((x.shape[0], *self.outputs, self.groups * co), at, name=self._name)

    def _by_phase(self, x: Any, w: Any, axes: Sequence[Any], before: Sequence[int]) -> Any:
        """Compute outputs that lie a stride apart as channels of one convolution: they meet the same taps."""
        ci, co = int(x.shape[-1]) // self.groups, int(w.shape[-1])
        c, phases = te.reduce_axis((0, ci), name="c"), prod(self.strides) * co

        def first_channel(m: Any) -> Any:
            return m // phases * ci if self.groups > 1 else 0

        def tap(*indices: Any) -> Any:
            *taps, c, m = indices
            begins = self._begins((m % phases if self.groups > 1 else m) // co)
            turned = [k - 1 - t for k, t in zip(counts, taps, strict=True)]
            places = [b + s * t for b, s, t in zip(begins, self.strides, turned, strict=True)]
            return w(*places, first_channel(m) + c, m % co)

        counts = [int(axis.dom.extent) for axis in axes]
        by_phase = te.compute((*counts, ci, self.groups * phases), tap, name="weight_by_phase")

        def at(n: Any, *indices: Any) -> Any:
            *places, m = indices
            first = [f + b - (k - 1) for f, b, k in zip(self._first, before, counts, strict=True)]
            met = [p + f + t for p, f, t in zip(places, first, axes, strict=True)]
            return self._sum(x(n, *met, first_channel(m) + c), by_phase(*axes, c, m), [*axes, c])

        places = [last - first + 1 for first, last in zip(self._first, self._last, strict=True)]
        z = te.compute((x.shape[0], *places, self.groups * phases), at, name="phases")

        def placed(n: Any, *indices: Any) -> Any:
            *outputs, o = indices
            met, begins = self._met(outputs)
            phase = 0
            for begin, stride in zip(begins, self.strides, strict=True):
                phase = phase * stride + begin
            channel = o // co * phases + phase * co + o % co if self.groups > 1 else phase * co + o
            return z(n, *(m - first for m, first in zip(met, self._first, strict=True)), channel)

        shape = (x.shape[0], *self.outputs, self.groups * co)
        return te.compute(shape, placed, name=self._name)

    def _by_channel(self, x: Any, w: Any, axes: Sequence[Any], before: Sequence[int]) -> Any:
        """Compute channels that are each by itself where they lie: there is no product to make of them."""

        def at(n: Any, *indices: Any) -> Any:
            *outputs, o = indices
            met, begins = self._met(outputs)
            pixel = x(n, *(m + b - t for m, b, t in zip(met, before, axes, strict=True)), o)
            taps = [b + s * t for b, s, t in zip(begins, self.strides, axes, strict=True)]
            # They are within the weight, as TVM cannot tell of a difference.
            within = (te.max(te.min(t, k - 1), 0) for t, k in zip(taps, w.shape, strict=False))
            return self._sum(pixel, w(*within, o, 0), axes)

        return te.compute((x.shape[0], *self.outputs, self.groups), at, name=self._name)

    def _sum(self, pixel: Any, tap: Any, axes: Sequence[Any]) -> Any:
        return te.sum(pixel.astype(self.dtype) * tap.astype(self.dtype), axis=list(axes))

    def _begins(self, phase: Any) -> list[Any]:
        """Return the first tap of each axis in a phase; the last axis's counts by one."""
        found: list[Any] = []
        for stride in reversed(self.strides[1:]):
            found.insert(0, phase % stride)
            phase = phase // stride
        return [phase, *found]

    def _met(self, outputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the last pixel that reaches an output, and the tap by which it does.

        The tap is a difference where something is cropped: of two remainders of sums in one index TVM 0.27
        makes wrong ones once the loops over both places are fused, (f mod 6 + 1) mod 2 becomes (f + 6) mod 2.
        Else it is a remainder, from which can be told that each place is met once.
        """
        places = [p + r for p, r in zip(outputs, self.cropped, strict=True)]
        met = [p // s for p, s in zip(places, self.strides, strict=True)]
        parts = zip(places, met, self.strides, self.cropped, strict=True)
        return met, [p - m * s if r else p % s for p, m, s, r in parts]


def _filled(tensor: Any, before: Sequence[int], after: Sequence[int], name: str) -> Any:
    """Pad with zeros where there are any to add."""
    return topi.nn.pad(tensor, before, after, name=name) if any((*before, *after)) else tensor
