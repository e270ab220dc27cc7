"""The rows of the strategies study: quartiles of trials needed, and what is promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Any

from ...kernels.operator import Workload

TRANSFER = "+transfer"
"""What is added to a strategy's name where it starts from trials of other shapes."""

XGB_AT_MOST, TRANSFER_AT_MOST = 32, 8
"""Trials that ``xgb`` is promised to need at most in the matmul 1024^3 space, cold and after a transfer."""


@dataclass(frozen=True)
class StrategyRow:
    """How many trials a strategy needed.

    Parameters
    ----------
    operator, shape, dtype, space : str, mapping, str, str
        What was searched.
    strategy : str
        The strategy; ``+transfer`` where it started from other shapes.
    learned_from : int
        Trials of other shapes that it started from.
    share, best_s : float, float
        A trial with at least this share of the throughput of the best point known has reached it; and the
        seconds of that best.
    seeds, reached, limit : int
        Searches, those that came so far, and the trials after which a search was given up.
    median, q25, q75 : float or None
        Trials needed; None is more than the limit.
    goal, met : str, bool or None
        What is promised, if anything, and whether that was shown.
    trials : tuple of int or None
        Trials needed by each seed; None is more than the limit.
    """

    operator: str
    shape: Mapping[str, Any]
    dtype: str
    space: str
    strategy: str
    learned_from: int
    share: float
    best_s: float
    seeds: int
    reached: int
    limit: int
    median: float | None
    q25: float | None
    q75: float | None
    trials: tuple[int | None, ...]
    goal: str = ""
    met: bool | None = None


def strategy_row(
    workload: Workload,
    space: str,
    strategy: str,
    learned_from: int,
    share: float,
    best_s: float,
    needed: Sequence[int],
    limit: int,
) -> StrategyRow:
    """Make the row of the trials that searches needed; ``limit + 1`` is one that was given up."""
    return StrategyRow(
        operator=workload.name,
        shape=dict(workload.shape),
        dtype=workload.dtype,
        space=space,
        strategy=strategy,
        learned_from=learned_from,
        share=share,
        best_s=best_s,
        seeds=len(needed),
        reached=sum(trials <= limit for trials in needed),
        limit=limit,
        median=quantile(needed, 0.5, limit),
        q25=quantile(needed, 0.25, limit),
        q75=quantile(needed, 0.75, limit),
        trials=tuple(trials if trials <= limit else None for trials in needed),
    )


def quantile(counts: Sequence[int], q: float, limit: int) -> float | None:
    """Return a quantile of trials needed, interpolated; None where it depends on a search that was given up.

    Of such a search nothing is known but that it needs more than ``limit`` trials. So a median is known as
    long as more than half of the searches ended.
    """
    ordered = sorted(counts)
    position = (len(ordered) - 1) * q
    low, high = ordered[floor(position)], ordered[ceil(position)]
    return None if high > limit else low + (high - low) * (position - floor(position))


def with_goals(rows: Sequence[StrategyRow]) -> list[StrategyRow]:
    """Add what is promised for the matmul 1024^3 space to the rows it is promised for."""
    by_name = {row.strategy: row for row in rows}
    return [_with_goal(row, by_name.get("random")) for row in rows]


def _with_goal(row: StrategyRow, control: StrategyRow | None) -> StrategyRow:
    if row.strategy == f"xgb{TRANSFER}":
        met = row.median is not None and row.median <= TRANSFER_AT_MOST
        return replace(row, goal=f"at most {TRANSFER_AT_MOST} trials", met=met)
    if row.strategy != "xgb":
        return row
    met = row.median is not None and row.median <= XGB_AT_MOST
    if control is None:
        return replace(row, goal=f"at most {XGB_AT_MOST} trials", met=met)
    # Where random was given up, it needed more than its limit.
    least = control.limit if control.median is None else control.median
    goal = f"at most {XGB_AT_MOST} trials, and less than half of those of random"
    return replace(row, goal=goal, met=met and 2 * (row.median or 0) < least)
