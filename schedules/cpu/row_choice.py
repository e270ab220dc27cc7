"""Which vectors, how many rows at once and in which form rows are computed, without a search."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from ...machine.element import element_bytes
from ...machine.facts import Facts, facts, line_elements
from ...machine.vector_math import EXPONENTIALS
from ..expressions import called
from ..forms.whole_rows import kept_values
from ..lane_reduction import best_width, is_faster_lengthened
from ..nests.rows import RowNest
from ..passes.row_chunks import default_chunk
from ..passes.streaming import exceeds_caches
from ..space import Knobs
from .row_tiles import (
    BLOCKS,
    VECTORS,
    bytes_read,
    default_parts,
    is_in_pieces,
    rows_between,
    vectors_across,
    vectors_of_pieces,
)

# Units that take so many bits at once begin the next rows before some are done: see `_rows_at_once`.
_WIDE_UNITS = 512
# Rows at once of a norm in narrow registers, and when these are busy: see `_narrow_lanes`.
_ROWS_OF_A_NORM = 4
# With so many, those of AVX-512 and aarch64, rows of so many vectors are unrolled: see `_rows_at_once`.
_MANY_REGISTERS, _UNROLLED = 32, range(10, 33)
_LEAST_PARTS, _LONG = 4, 4096
# Rows of fewer vectors do not fill several chains of exponentials: an odd number of rows of log_softmax, of
# 133, 144, 197, 240 and 333 elements, takes 0.67, 0.39, 0.78, 0.42 and 0.90 of the time with one, of 384 and
# 512 1.03 and 1.07 (2 threads of a Zen 5).
_FEW_EXPONENTIALS = 22

# What a block of rows reads and writes stays in L1: an input, an intermediate and an output, and room.
_SHARE_OF_L1 = 4
# Rows beyond the caches are fetched ahead (see `row_prefetch`), one block after the other. On 2 threads of a
# Zen 5, whose memory moves 85 GB/s for a ReLU: layer_norm of 16384 x 1024 34 GB/s without, 56, 76 with 1, 2
# rows ahead; 65536 x 256 36 without, 43, 47, 50 with 1, 2, 4; rms_norm of 4096 x 4096 54, 79 and 82; softmax
# of 65536 x 300, past the caches as well, 24, 47, 47 and 44. Rows that caches hold are 0.9 to 1.2 times as
# fast.
AHEAD = (0, 1, 2, 4)
_BYTES_AHEAD = 8192

# What is written past the caches at a time: vectors of so many bits or more that divide a row. On 2 threads
# of a Zen 4 norms of rows that are whole vectors of 128 bits only take 0.73 to 0.79 of the time so; softmax
# of rows of 256 bits 0.63 to 0.99, of 128 0.94 to 1.2, where its exponentials are in a row that ends within a
# vector.
LEAST_BITS, LEAST_BITS_IN_PLACE = 128, 256
# Other rows are written in lines (`aligned_rows`) if they are as many lines: a softmax that keeps no values
# reads anew what it has just stored, where vectors begin elsewhere. On 2 threads of a Xeon softmax of 850 and
# more elements, no multiple of 4, takes 0.72 to 0.92 of the time so, of 302 to 770 0.95 to 1.8.
LEAST_LINES_IN_PLACE = 50
# See `_takes_two_rows`.
_FEW_VECTORS, _FEW_VECTORS_IN_PLACE = 12, 8


def default_knobs(
    func: Any, target: Any, nest: RowNest, blocks: Sequence[int], pieces: tuple[int, ...] | None
) -> Knobs:
    """Choose vectors, rows at once and parts without a search.

    ``pieces``: the axes of a reduction, the last of them what lies in one piece; None: rows stay as they are.
    """
    machine = facts(target)
    widest = machine.lanes(nest.dtype)
    apart = is_in_pieces(nest, pieces)
    between = rows_between(nest, pieces, machine, blocks) if apart else 1
    parts = default_parts(nest, machine, pieces, between)
    in_l1 = machine.l1_bytes // _SHARE_OF_L1 // (nest.length * element_bytes(nest.dtype))
    exponential = bool(EXPONENTIALS & called(func.body))
    at_once = _rows_at_once(nest, machine, exponential)
    block = max((b for b in blocks if b <= min(in_l1, at_once)), default=1)
    lanes, vectors = widest, _vectors_along(nest, widest)
    if not nest.contiguous:
        lanes, vectors = vectors_across(nest, machine, parts)
    if pieces is not None and len(pieces) > 1:
        vectors = vectors_of_pieces(pieces[-1], lanes, between)
    if nest.is_norm and exponential and (block >= VECTORS or nest.length < _FEW_EXPONENTIALS * widest):
        # So many rows are chains enough, and a polynomial wants the registers: 128 to 512 columns in 0.86 to
        # 0.92 of the time.
        vectors = 1
    elif nest.is_norm and not exponential and (narrow := _narrow_lanes(nest, machine, block)) < widest:
        lanes, vectors, block = narrow, VECTORS, min(block, _ROWS_OF_A_NORM)
    stream = exceeds_caches(func, target)
    again = reads_again(nest) and parts == 1
    far = stream and again
    fetched = again and exponential and _comes_from_afar(nest, machine)
    # As a position that is found in a second pass. On 2 threads of a Xeon argmax of 16384 rows of 1024
    # elements takes 0.7 to 0.8 of the time so, of 65536 of 1000 0.88, of 262144 of 128 0.95, of 4096 of 8192
    # 0.99.
    from_memory = again and bytes_read(nest) > machine.kept_by_l3
    longer = far and pieces is not None and nest.length % (lanes * vectors) > 0
    of_values = bool(longer) and _keeps_whole_values(func, nest, widest)
    better_whole = pieces is not None and _is_better_whole(nest, pieces, lanes, vectors, parts)
    two = far and exponential and _takes_two_rows(nest, widest, blocks, of_values)
    at_a_time = between if apart else 2 if two else block if parts == 1 and not far else 1
    chunk = default_chunk(nest.count // at_a_time, machine.cores) if stream and parts == 1 else 1
    # On 2 threads of a Zen 4, in turns in one process: softmax of 4096 x 4096 and of 256 x 65536 takes 0.82
    # and 0.81 of the time of rows that are finished first, of 16384 x 1024 0.93, of 8192 x 2048 1.0,
    # log_softmax of 4096 x 4096 0.88, of 1024 x 30522 0.80.
    behind = int(bool(far and exponential) and at_a_time == 1 < chunk)
    return {
        "lanes": lanes,
        "vectors": vectors,
        "block": at_a_time,
        "parallel": 1,
        "parts": parts,
        "whole": 2 if of_values else int(better_whole),
        "stream": stream,
        "ahead": _ahead(nest) if far or fetched or from_memory else 0,
        "chunk": chunk,
        "behind": behind,
    }


def _keeps_whole_values(func: Any, nest: RowNest, widest: int) -> bool:
    """Tell whether the exponentials of a softmax past the caches are kept in a row that ends with a vector.

    Rows that begin within a line of memory are written from one of their own. On 2 threads of a Zen 4 rows of
    150 to 641 elements take 0.6 to 0.85 of the time of rows that end within a vector, of 1001 and more 1.0.
    """
    line = max(widest, line_elements(nest.output_dtype))
    return bool(nest.in_place and kept_values(func)) and nest.length % line > 0


def _takes_two_rows(nest: RowNest, widest: int, blocks: Sequence[int], whole_values: bool) -> bool:
    """Tell whether exponentials past the caches are computed two rows at a time: these are few vectors.

    Then chains of operations are too short to be written behind. On 2 threads of a Zen 4 rows of a
    log_softmax of 49 to 128 elements take 0.70 to 0.81 of the time so, of 150 0.82, of 197 and 250 1.0, of a
    softmax of 49 and 100 0.88, of 150 and more 1.06 to 1.27, of 64 and 128 1.1.
    """
    few = _FEW_VECTORS_IN_PLACE if nest.in_place else _FEW_VECTORS
    return 2 in blocks and nest.length < few * widest and (whole_values or not nest.in_place)


def reads_again(nest: RowNest) -> bool:
    """Tell whether a row is read in a first pass, and in others after it."""
    return nest.contiguous and not nest.is_one_reduction


def writes_behind(func: Any, nest: RowNest) -> bool:
    """Tell whether rows are computed, for which memory waits, before they are written (`written_behind`)."""
    return reads_again(nest) and bool(EXPONENTIALS & called(func.body))


def _comes_from_afar(nest: RowNest, machine: Facts) -> bool:
    """Tell whether rows come from an L3 that is far away.

    Where exponentials are computed meanwhile they are fetched ahead: on 2 threads of a Xeon softmax of 4608 x
    384 takes 0.87 to 0.95 of the time so, of 6144 x 197 0.91; norms, which need few cycles, 1.0 to 1.1.
    """
    return machine.has_far_l3 and 2 * bytes_read(nest) > machine.near_bytes


def _ahead(nest: RowNest) -> int:
    """Choose how many rows to fetch ahead: as many as are some pages, no more than are worth it."""
    row = nest.length * element_bytes(nest.dtype)
    return next((rows for rows in AHEAD[1:] if rows * row >= _BYTES_AHEAD), AHEAD[-1])


def _is_better_whole(nest: RowNest, pieces: Sequence[int], lanes: int, vectors: int, parts: int) -> bool:
    """Tell whether parts of a row take fewer cycles as whole vectors, or cannot be had otherwise."""
    if is_in_pieces(nest, pieces):
        parts = 1  # each is whole pieces
    several = len(nest.axes) > 1
    if parts > 1 and (several or nest.length % parts):
        return True
    axes, (*apart, last) = (tuple(n // parts for n in each) for each in (nest.axes, pieces))
    # A vector that reaches from one piece into the next is read element by element.
    reaches = bool(apart) and last % best_width(nest.length, lanes, vectors, axes) > 0
    longer = (*apart, ceil(last / (lanes * vectors)) * lanes * vectors)
    return reaches or is_faster_lengthened(axes, longer, lanes, vectors)


def _narrow_lanes(nest: RowNest, machine: Facts, block: int) -> int:
    """Return the elements that a unit takes at once where registers of these are the faster for a norm.

    Its rows are in L1, which gives narrower registers as much, and several rows, or steps of a long one,
    keep them busy. On 2 threads of a Zen 4, which takes 512 bits in halves, layer_norm and rms_norm of 128
    to 1024 elements take 0.72 to 0.95 of the time with 256, group_norm 0.74 to 0.9; odd rows, or rows of an
    odd length, 1.05 to 1.3. A Zen 5, which takes them whole, is the faster with 512: 0.85 to 0.9, 1.0 where
    rows are short.
    """
    widest = machine.lanes(nest.dtype)
    lanes = max(1, widest * machine.unit_bits // machine.vector_bits)
    part = lanes * VECTORS
    several = block > 1 and nest.length >= _LEAST_PARTS * part
    return lanes if nest.length % part == 0 and (several or nest.length >= _LONG) else widest


def _rows_at_once(nest: RowNest, machine: Facts, exponential: bool) -> int:
    """Choose how many rows to take at once: their steps do not wait for each other.

    Of norms many; but of those of one reduction CPUs whose units take 512 bits whole begin the next rows
    before some are done, if these are several vectors. Two at once, over 8 or 4 on 2 threads of a Zen 5, take
    0.64 to 1.0 of the time of an rms_norm of 128 to 770 elements; of 16 to 72 1.0 to 1.2, of a layer_norm of
    768 1.07.
    Of rows that only are read several where a row is few vectors: 49 elements in 0.85 of the time by fours,
    128 in 0.94 by twos; otherwise one after the other, as memory is fastest. Of a softmax two, 0.85 to 0.97
    of the time; but rows of 10 to 32 vectors one after the other, 0.87 to 1.0 on 2 threads of a Zen 4, where
    registers hold what LLVM unrolls: 0.94 to 1.12 with the 16 of AVX2.
    """
    vectors = nest.length / machine.lanes(nest.dtype)
    simple = len(nest.reductions) == 1 and not exponential
    if nest.is_norm and simple and vectors >= 2 * VECTORS and machine.unit_bits >= _WIDE_UNITS:
        return 2
    if nest.is_norm or not nest.contiguous:
        return BLOCKS[-1]
    if nest.in_place:
        unrolled = machine.vector_registers >= _MANY_REGISTERS and int(vectors) in _UNROLLED
        return 1 if unrolled else 2
    return 4 if vectors < 2 * VECTORS else 2 if vectors <= 4 * VECTORS else 1


def _vectors_along(nest: RowNest, lanes: int) -> int:
    """Choose as many vectors as a row fills at least twice."""
    return next((v for v in (VECTORS, 2) if nest.length >= 2 * v * lanes), 1)
