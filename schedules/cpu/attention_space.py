"""The knobs of attention, their candidates, constraints and default."""

from __future__ import annotations

from math import ceil
from typing import Any

from ...machine.facts import facts
from ..attention_form import can_restate
from ..attention_nest import find_attention
from ..lane_reduction import best_width
from ..space import Constraint, Knob, KnobSpace

_ROWS = (1, 2, 4, 6, 8, 12)
_BLOCKS = (8, 16, 24, 32, 48, 64, 96, 128)
# Rows are separate streams: with more than an L1 cache has ways, rows a power of two apart evict each other.
_TILE_ROWS = 8
# Vectors of a tile. With one query it is as wide as can be: rows of values are then read in long parts.
_VECTORS, _VECTORS_OF_ONE = (1, 2, 3, 4), (1, 2, 3, 4, 6, 8)
# Scores and weights of a block of queries keep to this part of L1 where at least a tile of queries does. On 2
# threads of a Zen 5, 12 heads, 256 keys of 64: 196 GFLOP/s with 8 queries, 188 with 32, 185 with 128.
_SHARE_OF_L1 = 2
# All queries of a block compute what its last one sees: with so many blocks it is a sixteenth too much.
_CAUSAL_BLOCKS = 8
# Keys are padded to whole tiles of two vectors where that adds no more than this part of them, else of one.
_LITTLE = 12


def attention_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the blocks and tiles to choose from, or None where it is no attention, or an odd one.

    Columns must fill vectors, and keys where they cannot be padded. One query makes no matrix product: the
    keys are read where they lie, and their elements must be summed in parts.
    """
    nest = find_attention(func)
    if nest is None:
        return None
    machine = facts(target)
    widest = _powers(machine.lanes(nest.dtype))
    lanes, pad = next((w for w in widest if nest.columns % w == 0), 1), 0
    if nest.n % lanes and can_restate(func):
        pad = next(w for w in (2 * lanes, lanes) if w == lanes or -nest.n % w * _LITTLE <= nest.n)
    elif nest.n % lanes:
        lanes = next(w for w in widest if nest.n % w == nest.columns % w == 0)
    if lanes < 4 or (nest.m == 1 and best_width(nest.d, lanes, 1) == 1):
        return None
    keys = ceil(nest.n / pad) * pad if pad else nest.n
    panels, columns = (
        [v * lanes for v in (_VECTORS if nest.m > 1 else _VECTORS_OF_ONE) if extent % (v * lanes) == 0]
        for extent in (keys, nest.columns)
    )
    panels = panels if nest.m > 1 else [0]
    least = min(nest.m, _TILE_ROWS)
    rows = sorted({*(r for r in _ROWS if r <= nest.m), least})
    item = machine.vector_bits // 8 // machine.lanes(nest.dtype)
    most = max(1, machine.l1_bytes // _SHARE_OF_L1 // (2 * keys * item))
    if nest.ahead is not None:
        most = min(most, nest.m // _CAUSAL_BLOCKS)
    blocks = sorted({*(b for b in _BLOCKS if b <= nest.m), min(nest.m, _BLOCKS[0])})
    block = max((b for b in blocks if least < b <= most and nest.m % b == 0), default=least)
    nr, nc = (max(w for w in widths if w <= 2 * lanes or nest.m == 1) for widths in (panels, columns))
    registers = machine.vector_registers

    def fits(width: int, height: int) -> bool:
        # One row's vectors are multiplied from memory.
        return (height + (height > 1)) * (width // lanes) < registers

    mr = max(r for r in rows if r <= _TILE_ROWS and block % r == 0 and fits(max(nr, nc), r))
    return KnobSpace(
        knobs=(
            Knob("lanes", (lanes,), "elements in a vector"),
            Knob("block", tuple(sorted({*blocks, block})), "queries whose scores exist at a time"),
            Knob("mr", tuple(rows), "queries of a register tile"),
            Knob("nr", tuple(panels), "keys of a register tile; 0: each is a dot product"),
            Knob("nc", tuple(columns), "columns of a register tile of the second product"),
            Knob("pad", (pad,), "keys are padded to a multiple of so many; 0: they are as they are"),
        ),
        constraints=(
            Constraint(
                f"lanes is {lanes} and pad is {pad}: they follow from the keys, the columns and the target",
                lambda k: (k["lanes"], k["pad"]) == (lanes, pad),
            ),
            Constraint("block, mr and nc are at least 1", lambda k: min(k["block"], k["mr"], k["nc"]) >= 1),
            Constraint(
                "nr is 0 with one query, and at least 1 with more", lambda k: (k["nr"] > 0) == (nest.m > 1)
            ),
            Constraint("mr divides block", lambda k: k["block"] % k["mr"] == 0),
            Constraint(
                f"nr divides the keys ({keys}) and nc the columns ({nest.columns}), in whole vectors",
                lambda k: (
                    keys % (k["nr"] or 1) == nest.columns % k["nc"] == k["nr"] % lanes == k["nc"] % lanes == 0
                ),
            ),
            Constraint(
                f"tiles, a row of a panel and a broadcast fit {registers} registers",
                lambda k: fits(k["nr"], k["mr"]) and fits(k["nc"], k["mr"]),
            ),
        ),
        default={"lanes": lanes, "block": block, "mr": mr, "nr": nr, "nc": nc, "pad": pad},
    )


def _powers(most: int) -> tuple[int, ...]:
    return tuple(1 << p for p in range(most.bit_length() - 1, -1, -1))
