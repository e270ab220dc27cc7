"""Rows of any length as vectors of columns, in registers, and back: a permutation of all their elements.

``lanes`` rows of n elements lie in n vectors, one after the other. Of an even n pairs of vectors are parted
into even and odd columns, which are rows half as long. Of an odd n lane s of column k is in the vector
``(k - s) / lanes``, modulo n, which has an inverse: each lane goes on by its number, in steps of powers of
two, and then lanes change places. That is ``n (1 + log2(n))`` instructions or fewer, where element by element
they are ``lanes * n``::

    a0 b0 c0 a1      a0 b1 c2 a3      a0 a1 a2 a3
    b1 c1 a2 b2  ->  b0 c1 a2 b3  ->  b0 b1 b2 b3
    c2 a3 b3 c3      c0 a1 b2 c3      c0 c1 c2 c3

References
----------
B. Catanzaro, A. Keller, M. Garland, "A decomposition for in-place matrix transposition", PPoPP 2014.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .vector_expressions import shuffled

Named = Callable[[Any], Any]
"""From an expression to a variable that holds it."""


def columns_of_rows(vectors: Sequence[Any], lanes: int, named: Named) -> list[Any]:
    """Return the columns of as many rows as lanes, a power of two, which lie one after the other."""
    n = len(vectors)
    if n == 1:
        return [*vectors]
    if n % 2 == 0:
        pairs = [vectors[i : i + 2] for i in range(0, n, 2)]
        even, odd = (
            [named(shuffled(pair, range(first, 2 * lanes, 2))) for pair in pairs] for first in (0, 1)
        )
        halves = (columns_of_rows(half, lanes, named) for half in (even, odd))
        return [column for pair in zip(*halves, strict=True) for column in pair]
    inverse = pow(lanes, -1, n)
    turned = _rotated([vectors[j * inverse % n] for j in range(n)], -1, lanes, named)
    return [named(shuffled([turned[k]], [(r * n + k) % lanes for r in range(lanes)])) for k in range(n)]


def rows_of_columns(columns: Sequence[Any], lanes: int, named: Named) -> list[Any]:
    """Return the rows whose columns these are, in vectors one after the other."""
    n = len(columns)
    if n == 1:
        return [*columns]
    if n % 2 == 0:
        halves = (rows_of_columns(columns[first::2], lanes, named) for first in (0, 1))
        return [
            named(shuffled(pair, [half + s // 2 + s % 2 * lanes for s in range(lanes)]))
            for pair in zip(*halves, strict=True)
            for half in (0, lanes // 2)
        ]
    inverse = pow(n, -1, lanes)
    apart = [
        named(shuffled([column], [(s - k) * inverse % lanes for s in range(lanes)]))
        for k, column in enumerate(columns)
    ]
    turned = _rotated(apart, 1, lanes, named)
    return [turned[i * lanes % n] for i in range(n)]


def _rotated(vectors: Sequence[Any], direction: int, lanes: int, named: Named) -> list[Any]:
    """Return vectors whose lane s is that of the vector s further on, or back."""
    n, turned = len(vectors), [*vectors]
    for step in (1 << bit for bit in range((min(lanes, n) - 1).bit_length())):
        places = [s + (lanes if s % n & step else 0) for s in range(lanes)]
        further = direction * step
        turned = [named(shuffled([turned[k], turned[(k + further) % n]], places)) for k in range(n)]
    return turned
