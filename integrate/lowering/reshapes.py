"""Reshapes of transposed tensors: which part of the transposition can wait until after the reshape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

Groups = list[tuple[list[int], list[int]]]

RESHAPES = ("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten", "relax.nn.batch_flatten")
"""The operators that reshape and do nothing else."""


def move_past_reshape(
    source: Sequence[int], axes: Sequence[int], target: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Write ``reshape(permute(x, axes), target)`` as ``permute(reshape(permute(x, first), shape), last)``.

    ``first`` moves only what the reshape merges: it is the identity where dimensions are split, or merged
    with their neighbours in x.

    Parameters
    ----------
    source : sequence of int
        The shape of x.
    axes : sequence of int
        The transposition.
    target : sequence of int
        The shape after the reshape, with as many elements.

    Returns
    -------
    tuple of (first, shape, last)
    """
    moved = [source[a] for a in axes]
    pairs, place = groups(moved, target), [-1]
    for dims, _ in pairs:
        # Where its first dimension lies in x; what has no extent stays behind what it stood behind.
        place.append(min((axes[a] for a in dims if moved[a] != 1), default=place[-1]))
    order = sorted(range(len(pairs)), key=lambda i: (place[i + 1], i))
    first = [axes[a] for i in order for a in pairs[i][0]]
    shape = [target[b] for i in order for b in pairs[i][1]]
    positions = [b for i in order for b in pairs[i][1]]
    last = [positions.index(b) for b in range(len(target))]
    if _same_order(source, first):
        first = list(range(len(source)))
    return tuple(first), tuple(shape), tuple(last)


def groups(before: Sequence[int], after: Sequence[int]) -> Groups:
    """Pair the shortest runs of dimensions of two shapes of one tensor with equal products."""
    found: Groups = []
    i = j = 0
    while i < len(before) or j < len(after):
        left, right = before[i : i + 1], after[j : j + 1]
        if left != right and 1 in (*left, *right):
            # A dimension of extent 1 comes or goes by itself.
            gone = list(left) == [1]
            found.append(([i], []) if gone else ([], [j]))
            i, j = i + gone, j + (not gone)
            continue
        m, n = i + 1, j + 1
        while (a := prod(before[i:m])) != (b := prod(after[j:n])):
            m, n = m + (a < b), n + (a > b)
        found.append((list(range(i, m)), list(range(j, n))))
        i, j = m, n
    return found


def _same_order(shape: Sequence[int], axes: Sequence[int]) -> bool:
    kept = [a for a in axes if shape[a] != 1]
    return kept == sorted(kept)
