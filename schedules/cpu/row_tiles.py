"""How many rows are reduced together, without a search: tiles of neighbours, pieces in between, parts."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from ...machine.element import element_bytes
from ...machine.facts import Facts
from ..nests.rows import RowNest
from ..transforms import LEAST_PARALLEL_WORK
from .even_parts import UNEVEN, divisors

# Vectors of partial results: enough to hide the latency of an addition, 3 or 4 cycles, 1 or 2 of them each.
VECTORS = 4
BLOCKS = (1, 2, 4, 8)
# Rows that lie between pieces of each other: their partial results are a half of L1.
_MOST_BETWEEN, _SHARE_OF_L1_FOR_PARTS, _SHORT_PIECE = 256, 2, 16
# Neighbouring rows: sums of 256 vectors are 16 KiB.
ACROSS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# See `_most_vectors`.
_STREAMS, _HELD, _NEAR_VECTORS = 24, 2, 8
# Partial results of neighbouring rows, of so many elements each, are few to write and to read again.
_LEAST_PART_ACROSS = 64
_TILES_A_CORE = 2


def is_in_pieces(nest: RowNest, pieces: Sequence[int] | None) -> bool:
    """Tell whether a row is reduced only, and in pieces between which those of other rows lie."""
    return nest.is_one_reduction and pieces is not None and len(pieces) > 1


def possible_blocks(nest: RowNest, pieces: Sequence[int] | None) -> tuple[int, ...]:
    """Return how many rows can be taken through each step together."""
    if not nest.contiguous:
        return (1,)
    if is_in_pieces(nest, pieces):
        return divisors(nest.row_extent, _MOST_BETWEEN)
    return tuple(b for b in BLOCKS if nest.row_extent % b == 0)


def rows_between(nest: RowNest, pieces: Sequence[int] | None, machine: Facts, blocks: Sequence[int]) -> int:
    """Choose how many rows to reduce piece by piece: as many as L1 holds the partial results of.

    Memory is then read in the order it lies in. On 2 threads of a Zen 4 sums of 64 images of 128 channels of
    64 x 64, over channels and columns, take 0.6 of the time of row after row, over all but lines 0.55, maxima
    of 512 channels of 16 images of 28 x 28, which L3 holds, 0.4; but of 128 channels of 14 x 14, which the
    near caches hold, 1.15. Rows that cannot be cut are left to all threads.
    """
    if _is_near(nest, machine):
        return 1
    most = machine.l1_bytes // _SHARE_OF_L1_FOR_PARTS // (VECTORS * machine.vector_bits // 8)
    tiles = 1 if can_be_cut(nest, pieces, machine.cores, True) else _TILES_A_CORE * machine.cores
    return max((b for b in blocks if b <= most and nest.count // b >= tiles), default=1)


def vectors_of_pieces(piece: int, lanes: int, between: int) -> int:
    """Choose vectors of partial results of rows in pieces of so many elements, so many rows at a time.

    A piece is one step, or several full ones: of 12 elements in 0.87 of the time. One after the other, short
    pieces of several rows are chains enough: of 61 and 64 elements in 0.74 to 0.9.
    """
    if between > 1 and piece <= _SHORT_PIECE * lanes:
        return 1
    return VECTORS if piece > 2 * lanes else 2


def vectors_across(nest: RowNest, machine: Facts, parts: int) -> tuple[int, int]:
    """Choose vectors of neighbouring rows, and how many in a tile: as many as leave each thread its share.

    They are whole vectors, or half as wide ones, unless these are far fewer. What memory holds is read in
    stretches that are as long as can be: maxima of 1024 columns in 2 tiles take 0.68 of the time of 4, on 2
    threads of a Zen 4, 1001 columns in tiles that end with a part of a vector 0.6.
    """
    widest, cores = machine.lanes(nest.dtype), machine.cores
    alone = parts > 1 or nest.work < LEAST_PARALLEL_WORK
    tiles = 1 if alone else cores if nest.is_one_reduction else _TILES_A_CORE * cores
    vectors, lines = ceil(nest.row_extent / widest), nest.count // nest.row_extent
    tiles_a_line = max(ceil(tiles / lines), ceil(vectors / _most_vectors(nest, machine, widest)))
    if not alone and lines % cores:
        tiles_a_line = ceil(tiles_a_line / cores) * cores
    cut = ceil(vectors / tiles_a_line)
    for lanes in (widest, max(1, widest // 2)):
        counts = {v: nest.count // (v * lanes) for v in whole_vectors(nest, machine, lanes)}
        even = [
            v for v, n in counts.items() if n >= tiles and (alone or ceil(n / cores) * cores <= UNEVEN * n)
        ]
        if even and 2 * max(even) * lanes >= cut * widest:
            return lanes, max(even)
    return widest, cut


def _most_vectors(nest: RowNest, machine: Facts, lanes: int) -> int:
    """Return up to how many vectors of neighbouring rows are worth it: L1 keeps what is reduced.

    Where they are read again they are few, which L2 still holds; also where a row is few elements, ahead of
    each of which the CPU fetches, and L3 has them: argmax of 19 x 524288 takes 0.5 of the time of 128
    vectors, of 12 x 300000 0.61, maxima 0.47, on 2 threads of a Zen 4; but of 32 x 131072 1.5. Of what is
    near 8 vectors are as fast as any: means of 8 images of 7 x 7 take 0.72 of the time of 64.
    """
    several = machine.lanes(nest.dtype) // lanes
    held = bytes_read(nest) <= _HELD * machine.kept_by_l3
    if not nest.is_one_reduction or (nest.length <= _STREAMS and held):
        return VECTORS * several
    return _NEAR_VECTORS * several if _is_near(nest, machine) else ACROSS[-1] // nest.values


def whole_vectors(nest: RowNest, machine: Facts, lanes: int) -> tuple[int, ...]:
    """Return how many vectors of neighbouring rows divide them, up to as many as are worth it.

    They are a part of a line, or whole lines: 128 channels of images of 64 x 64, added up, take 0.62 of the
    time in tiles of an image, 256 of 56 x 56 0.67 (2 threads of a Zen 4).
    """
    line = nest.row_extent
    found = divisors(nest.neighbours // lanes, _most_vectors(nest, machine, lanes))
    whole = found if nest.neighbours % lanes == 0 else ()
    return tuple(v for v in whole if line % (v * lanes) == 0 or v * lanes % line == 0)


def default_parts(nest: RowNest, machine: Facts, pieces: Sequence[int] | None, between: int) -> int:
    """Choose to cut a reduction where rows, or tiles of neighbouring rows, are too few for the threads.

    Across rows, tiles are as wide as sums fit L1, so that whole stretches of memory are read; of what is near
    they may be a vector, and parts are long: sums of 64 images of 56 x 56 take 0.22 of the time, of 100 x 100
    0.25. ``between``: rows that are reduced piece by piece.
    """
    cores, lanes = machine.cores, machine.lanes(nest.dtype)
    wide = lanes if _is_near(nest, machine) else ACROSS[-1] * lanes
    neighbours = between if nest.contiguous else min(nest.neighbours, wide)
    tiles = nest.count // neighbours
    if not nest.is_one_reduction or nest.work < LEAST_PARALLEL_WORK or tiles >= _TILES_A_CORE * cores:
        return 1
    least = 1 if nest.contiguous else _LEAST_PART_ACROSS
    counts = (p for p in (4 * cores, 2 * cores, cores) if nest.length >= least * p)
    return next((p for p in counts if can_be_cut(nest, pieces, p, pieces is not None)), 1)


def _is_near(nest: RowNest, machine: Facts) -> bool:
    """Tell whether the near caches hold what is read."""
    return bytes_read(nest) <= machine.near_bytes


def bytes_read(nest: RowNest) -> int:
    """Return the bytes of the longest reduction's input."""
    return nest.work * element_bytes(nest.dtype)


def can_be_cut(nest: RowNest, pieces: Sequence[int] | None, parts: int, whole: bool) -> bool:
    """Tell whether a row can be cut into so many parts, of pieces or of elements; ``whole``: any number."""
    if nest.values > 1:
        return False
    if pieces is not None and is_in_pieces(nest, pieces):
        return prod(pieces[:-1]) % parts == 0
    return whole or nest.length % parts == 0
