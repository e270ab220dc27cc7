"""An image in another size: which pixels an output lies between, in whole numbers, and what it is made of.

Along an axis an output p lies at (m p + b) / d among the pixels. With whole m, b and d nothing is rounded,
and where neighbours read the same pixels can be seen in the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import tvm
from tvm import te


@dataclass(frozen=True)
class Places:
    """Where the outputs along an axis lie among its pixels: (multiplied * p + added) / divided.

    Parameters
    ----------
    pixels, outputs : int
        How many there are.
    multiplied, added, divided : int
        The numbers in the formula.
    """

    pixels: int
    outputs: int
    multiplied: int
    added: int
    divided: int

    @classmethod
    def of(cls, mode: str, pixels: int, outputs: int) -> Places:
        """Return them for one of ONNX's coordinate transformations.

        ``half_pixel``: (p + 1/2) pixels / outputs - 1/2, as both cover the same area;
        ``pytorch_half_pixel``: the same, and 0 for one output; ``asymmetric``: p pixels / outputs;
        ``align_corners``: p (pixels - 1) / (outputs - 1), and 0 for one output.

        Raises
        ------
        KeyError
            It is none of these.
        """
        numbers = {
            "half_pixel": (2 * pixels, pixels - outputs, 2 * outputs),
            "asymmetric": (pixels, 0, outputs),
            "align_corners": (pixels - 1, 0, outputs - 1),
        }[mode.removeprefix("pytorch_")]
        if outputs == 1 and mode in ("pytorch_half_pixel", "align_corners"):
            numbers = 0, 0, 1
        common = gcd(*numbers)
        return cls(pixels, outputs, *(n // common for n in numbers))

    def nearest(self, p: Any, rounding: str) -> Any:
        """Return the pixel that an output takes, rounded as ONNX's ``nearest_mode`` says."""
        twice, half = (1, 0) if rounding in ("floor", "ceil") else (2, self.divided)
        up = {"floor": 0, "ceil": self.divided - 1, "round_prefer_floor": half - 1, "round_prefer_ceil": half}
        return self._within(self._over(p, twice, up[rounding]), *self._ends(twice, up[rounding]))

    def before(self, p: Any) -> tuple[Any, Any]:
        """Return the pixel before an output, perhaps -1, and how far on the output lies, in 1 / divided."""
        at = self.multiplied * p + self.added
        return at // self.divided, at % self.divided

    @property
    def beyond(self) -> tuple[int, int]:
        """How many pixels before the first and after the last one lie outputs between."""
        first, last = self._ends(1, 0)
        return max(0, -first), max(0, last + 1 - (self.pixels - 1))

    def _over(self, p: Any, twice: int, up: int) -> Any:
        return (twice * self.multiplied * p + twice * self.added + up) // (twice * self.divided)

    def _ends(self, twice: int, up: int) -> tuple[int, int]:
        first, last = (self._over(p, twice, up) for p in (0, self.outputs - 1))
        return first, last

    def _within(self, index: Any, first: int, last: int) -> Any:
        """Keep an index that goes from one to the other among the pixels."""
        index = te.max(index, 0) if first < 0 else index
        return te.min(index, self.pixels - 1) if last >= self.pixels else index


@dataclass(frozen=True)
class Resampling:
    """An image in another size.

    Parameters
    ----------
    rows, columns : Places
        Where the outputs lie.
    layout : str
        NHWC or NCHW.
    dtype : str
        What is computed in between pixels.
    """

    rows: Places
    columns: Places
    layout: str
    dtype: str

    def nearest(self, x: Any, rounding: str) -> Any:
        """Return the TE tensor of the nearest pixels."""

        def at(*position: Any) -> Any:
            p, q = self._place(position)
            return x(
                *self._moved(position, self.rows.nearest(p, rounding), self.columns.nearest(q, rounding))
            )

        return te.compute(self._shape(x, self.rows.outputs, self.columns.outputs), at, name="resize2d")

    def bilinear(self, x: Any) -> Any:
        """Return the TE tensor of what lies between four pixels, each weighted by the others' distance.

        Lines are computed first. Their ends are there twice where outputs lie beyond them, so that whatever
        lies between two columns is found in the same way.
        """
        left, right = self.columns.beyond
        width = left + self.columns.pixels + right

        def line(*position: Any) -> Any:
            (p, q), rows = self._place(position), self.rows.pixels
            top, down = self.rows.before(p)
            near = (te.max(te.min(row, rows - 1), 0) for row in (top, top + 1))
            first, last = (self._pixel(x, position, row, q - left) for row in near)
            return self._between(first, last, down, self.rows)

        lines = te.compute(self._shape(x, self.rows.outputs, width), line, name="lines")

        def at(*position: Any) -> Any:
            p, q = self._place(position)
            column, across = self.columns.before(q)
            first, last = (lines(*self._moved(position, p, column + left + more)) for more in (0, 1))
            return self._between(first, last, across, self.columns).astype(x.dtype)

        return te.compute(self._shape(x, self.rows.outputs, self.columns.outputs), at, name="resize2d")

    def _pixel(self, x: Any, position: Sequence[Any], row: Any, column: Any) -> Any:
        """Read a pixel, the first or last of its row where the column is beyond it."""
        last = self.columns.pixels - 1
        if self.layout.endswith("C"):
            column = te.max(te.min(column, last), 0)
            return x(*self._moved(position, row, column)).astype(self.dtype)
        # Along the last axis an index that stops would be read one by one; a loop is cut by conditions.
        before, at, behind = (x(*self._moved(position, row, j)) for j in (0, column, last))
        found = te.if_then_else(column < 0, before, te.if_then_else(column <= last, at, behind))
        return found.astype(self.dtype)

    def _between(self, first: Any, last: Any, part: Any, places: Places) -> Any:
        part = part.astype(self.dtype) / tvm.tirx.const(places.divided, self.dtype)
        return first * (1 - part) + last * part

    def _place(self, position: Sequence[Any]) -> Sequence[Any]:
        at = self.layout.index("H")
        return position[at : at + 2]

    def _moved(self, position: Sequence[Any], row: Any, column: Any) -> tuple[Any, ...]:
        """Return a position in another row and column."""
        at = self.layout.index("H")
        return *position[:at], row, column, *position[at + 2 :]

    def _shape(self, x: Any, rows: int, columns: int) -> tuple[Any, ...]:
        return self._moved(x.shape, rows, columns)
