"""What a cost model sees of a point of a knob space: the knobs, and how they fit the workload's dimensions.

Nothing here knows an operator or a schedule. Tile sizes act by products (a tile's area, the registers it
needs) and ratios (its aspect), which trees would have to approximate by many splits. Between workloads what
carries over are the knobs beside the dimensions: how many tiles and blocks there are, and which part of the
last one is beyond the edge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

Matrix = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class KnobFeatures:
    """The columns that describe points.

    Parameters
    ----------
    knobs : tuple of str
        The knobs that tell points apart.
    dims : tuple of str
        The dimensions of the workload to see the knobs beside.
    workloads : int
        How many workloads there are. Within one, how often a size fits a dimension says no more than the
        size does: those columns are left out.
    """

    knobs: tuple[str, ...]
    dims: tuple[str, ...]
    workloads: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """What each column is, for people."""
        pairs = list(combinations(self.knobs, 2))
        products = [f"{a} * {b}" for a, b in pairs]
        sizes = [*self.knobs, *products]
        beside = [f"{dim} / ({s})" if "*" in s else f"{dim} / {s}" for dim in self._beside for s in sizes]
        beyond = [f"{dim} beyond whole {s}" for dim in self.dims for s in sizes]
        return (*sizes, *(f"{a} / {b}" for a, b in pairs), *beside, *beyond) if self.knobs else ("nothing",)

    def of(self, points: Sequence[Mapping[str, int]], shape: Mapping[str, int | str]) -> Matrix:
        """Return a row for each point: logarithms of sizes and ratios, and shares of a dimension.

        A knob of 0 is a choice and no size: as a logarithm it is one less than that of 1, and it covers as
        much as 1.
        """
        if not self.knobs:
            return np.zeros((len(points), 1), np.float32)
        values = np.array([[p[k] for k in self.knobs] for p in points], dtype=np.int64)
        first, second = np.array(list(combinations(range(len(self.knobs)), 2)), dtype=int).reshape(-1, 2).T
        covered = np.maximum(values, 1)
        covered = np.concatenate([covered, covered[:, first] * covered[:, second]], axis=1)
        logs = np.log2(np.maximum(values, 0.5)).astype(np.float32)
        sizes = np.concatenate([logs, logs[:, first] + logs[:, second]], axis=1)
        columns = [sizes, logs[:, first] - logs[:, second]]
        columns += [np.float32(np.log2(int(shape[dim]))) - sizes for dim in self._beside]
        for extent in (int(shape[dim]) for dim in self.dims):
            columns.append(((-extent) % covered / extent).astype(np.float32))
        return np.concatenate(columns, axis=1)

    @property
    def _beside(self) -> tuple[str, ...]:
        return self.dims if self.workloads > 1 else ()


def open_knobs(points: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """Return the knobs that all points have, and that do not have the same value everywhere.

    A schedule may have got another knob since some of the points were measured.
    """
    common = (name for name in points[0] if all(name in p for p in points))
    return tuple(name for name in common if len({p[name] for p in points}) > 1)


def dimensions(shapes: Sequence[Mapping[str, int | str]]) -> tuple[str, ...]:
    """Return the dimensions worth seeing the knobs beside: those longer than 1 in some workload.

    One that is 0 or a word somewhere is a flag, or padding.
    """
    return tuple(
        name
        for name in shapes[0]
        if all(isinstance(s.get(name), int) and int(s[name]) > 0 for s in shapes)
        and any(int(s[name]) > 1 for s in shapes)
    )
