"""What threads share of attention: heads, heads that share keys, or parts of their queries."""

from __future__ import annotations

from math import ceil, gcd
from typing import NamedTuple

from ..nests.attention import Attention
from ..space import Constraint, Knob

# So many heads a thread are even shares.
_MANY_HEADS = 4
# Threads may share the queries of a head where each gets so many: every one of them makes panels of all keys.
_MANY_QUERIES = 32


def are_even(heads: int, threads: int) -> bool:
    """Tell whether threads have as many heads each, or many."""
    return heads % threads == 0 or heads >= _MANY_HEADS * threads


class Shares(NamedTuple):
    """How threads share heads: so many of these share panels, and so many parts of their queries a thread."""

    group: int
    parts: int


def even_shares(nest: Attention, threads: int, cost: float = 1.0) -> Shares:
    """Choose to let all heads that read the same keys share panels, in parts if they are too few for threads.

    Where that does not pay each head has panels of its own. ``cost``: the time that all parts take together,
    over that of their heads.
    """
    units = nest.heads // nest.group
    if are_even(units, threads):
        return Shares(nest.group, 1)
    parts = threads // gcd(units, threads)
    is_quicker = units * cost < ceil(units / threads) * threads
    return Shares(nest.group, parts) if is_quicker and nest.m >= parts * _MANY_QUERIES else Shares(1, 1)


def shares_knobs(nest: Attention, parts: int) -> tuple[Knob, Knob]:
    """Return the knobs of what threads share; ``parts``: as many as are chosen without a search."""
    of_panels = "heads in a row that share panels, as they share keys"
    return (
        Knob("group", tuple(sorted({1, nest.group})), of_panels),
        Knob("parts", tuple(sorted({1, parts})), "parts of the queries of these, for a thread each"),
    )


def shares_constraints(nest: Attention) -> tuple[Constraint, Constraint]:
    """Return their rules."""
    groups = sorted({1, nest.group})
    return (
        Constraint(
            f"group is {' or '.join(map(str, groups))}: {nest.group} heads in a row share keys",
            lambda k: k["group"] in groups,
        ),
        Constraint(
            f"parts divides the blocks of {nest.m} queries",
            lambda k: k["parts"] >= 1 and ceil(nest.m / k["block"]) % k["parts"] == 0,
        ),
    )
