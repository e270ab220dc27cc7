"""How an axis is cut: into blocks that threads share evenly, or nearly so, and into whole vectors."""

from __future__ import annotations

from math import ceil, gcd

UNEVEN = 1.06
"""Larger blocks are worth this much more work on the thread that has most."""

LEAST_LANES = 4
"""Vectors of fewer elements are worth no trouble."""


def divisors(number: int, most: int | None = None) -> tuple[int, ...]:
    """Return the divisors of a number, from 1 to itself, or up to so much."""
    last = number if most is None else min(number, most)
    return tuple(n for n in range(1, last + 1) if number % n == 0)


def even_part(whole: int, most: int, threads: int) -> int:
    """Return the largest even part of at most ``most`` that leaves no thread much more than its share."""
    sizes = ((n, ceil(whole / (threads * n))) for n in range(1, whole + 1))
    share = ceil(whole / threads)
    part = next((size for n, size in sizes if size <= most and n * size <= UNEVEN * share), 1)
    # A divisor that is not much smaller cuts no block short.
    return next((d for d in range(part, part * 3 // 4, -1) if share % d == 0), part)


def even_divisor(whole: int, most: int, threads: int, times: int = 1) -> int:
    """Return the largest divisor of at most ``most`` that leaves no thread much more than its share.

    ``times``: how often there is such a whole.

    A weight is turned in registers in whole blocks: 128 rows by 1280 x 1024, whose 40 panels are 8 blocks of
    5 then, take 0.59 of the time that 5 blocks of 7 and what is left take.
    """
    total = times * whole
    even = (d for d in divisors(whole, most) if ceil(total // d / threads) * threads * d <= UNEVEN * total)
    return max(even, default=1)


def dividing_lanes(columns: int, lanes: int) -> int:
    """Return the elements of the widest vectors, of at most ``lanes``, that columns are whole ones of.

    Shorter vectors of a weight that is read as it lies are no slower than waiting for memory is. Vectors of
    fewer than four elements are worth less than what they save; ``lanes`` is the answer then.
    """
    whole = gcd(columns, lanes)
    return whole if whole >= LEAST_LANES else lanes
