"""What a benchmark of many shapes comes to: the first implementation against the best library of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import geometric_mean
from typing import Any

from .baselines import LIBRARIES

# A difference of less is within the noise of such a comparison.
_EQUAL = 0.98


@dataclass(frozen=True)
class Standing:
    """How an implementation stands against libraries.

    Parameters
    ----------
    count : int
        Shapes on which some library ran and was right.
    ratio : float
        The geometric mean of the best library's time over the implementation's: more than 1 is faster.
    slower : tuple of (str, float, str)
        Shapes on which it is slower by more than noise: the shape, that quotient, and the library.
    """

    count: int
    ratio: float
    slower: tuple[tuple[str, float, str], ...]


def against_best_library(rows: Sequence[Mapping[str, Any]]) -> Standing | None:
    """Compare the first implementation of each shape with the best library there; None where none ran.

    Parameters
    ----------
    rows : sequence of mapping
        What `bench` returned; rows of one shape follow each other.
    """
    ratios: list[tuple[str, float, str]] = []
    for _, group in groupby(rows, key=lambda row: (row["operator"], row["shape"], row["dtype"])):
        first, *others = group
        libraries = [row for row in others if row["implementation"] in LIBRARIES and row["verified"]]
        if libraries and first["implementation"] not in LIBRARIES:
            best = min(libraries, key=lambda row: row["median_s"])
            shape = ",".join(f"{name}={value}" for name, value in first["shape"].items())
            label = f"{first['operator']} {shape}"
            ratios.append((label, best["median_s"] / first["median_s"], best["implementation"]))
    if not ratios:
        return None
    slower = tuple(sorted((r for r in ratios if r[1] < _EQUAL), key=lambda r: r[1]))
    return Standing(len(ratios), geometric_mean(ratio for _, ratio, _ in ratios), slower)
