"""The knobs of attention, their candidates and constraints."""

from __future__ import annotations

from typing import Any

from ...machine.facts import facts
from ...machine.vector_math import CHAINS
from ..algorithms import THEN
from ..forms.attention import can_pad_keys, can_pad_values
from ..forms.attention_bound import can_bound
from ..forms.shared_keys import can_share, restate
from ..lane_reduction import best_width
from ..nests.attention import find_attention
from ..space import Constraint, Knob, Knobs, KnobSpace
from .attention_choice import QUERIES_OF_DOTS, AttentionChoice
from .attention_shares import are_even, shares_constraints, shares_knobs
from .even_parts import LEAST_LANES

_BLOCKS = (8, 12, 16, 24, 32, 48, 64, 96, 128)
# Keys are padded to whole tiles of two vectors where that adds no more than this part of them, else of one.
_LITTLE = 12


def attention_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the blocks and tiles to choose from, or None where it is no attention, or an odd one.

    Keys and columns must fill vectors where they cannot be padded, and a row of scores must be summed in
    parts. One query makes no matrix product: the keys are read where they lie, and their elements must be
    summed in parts as well. One key, or keys of one element, make no sum.
    """
    nest = find_attention(func)
    if nest is None:
        return None
    machine = facts(target)
    shared_keys = can_share(nest) and are_even(nest.heads // nest.group, machine.cores)
    if shared_keys:
        func = restate(func)
        nest = find_attention(func)
    if nest is None or 1 in (nest.n, nest.d):
        return None
    lanes, pad, widen = machine.lanes(nest.dtype), 0, 0
    if nest.columns % lanes and nest.m > 1 and can_pad_values(func):
        widen = lanes
    else:
        lanes = next(w for w in _powers(lanes) if nest.columns % w == 0)
    if nest.n % lanes and can_pad_keys(func):
        pad = next(w for w in (2 * lanes, lanes) if w == lanes or -nest.n % w * _LITTLE <= nest.n)
    elif nest.n % lanes:
        lanes = next(w for w in _powers(lanes) if nest.n % w == 0)
    bounded = nest.m > 1 and can_bound(func, nest)
    choice = AttentionChoice(nest, machine, lanes, pad, widen, bounded, shared_keys)
    sums = [(choice.keys, CHAINS), *([(nest.d, 1)] if nest.m == 1 else [])]
    if lanes < LEAST_LANES or any(best_width(extent, lanes, vectors) == 1 for extent, vectors in sums):
        return None
    default = choice.default()
    blocks = sorted({*(b for b in _BLOCKS if b <= nest.m), default["block"]})
    knobs = (
        Knob("lanes", (lanes,), "elements in a vector"),
        Knob("block", tuple(blocks), "queries whose scores exist at a time"),
        Knob("mr", tuple(choice.rows), "queries of a register tile"),
        Knob("nr", tuple(choice.panels), "keys of a register tile; 0: each is a dot product"),
        Knob("nc", tuple(choice.widths(choice.columns)), "columns of a register tile of the second product"),
        Knob("values", (0, 1), "1: values are copied into panels; 0: they are read where they lie"),
        Knob("pad", (pad,), "keys are padded to a multiple of so many; 0: they are as they are"),
        Knob("widen", (widen,), "columns of values are padded to a multiple of so many; 0: as they are"),
        bounded_knob(choice.can_bound),
        *shares_knobs(nest, default["parts"]),
        Knob("shared_keys", (int(shared_keys),), "1: heads that read the same keys are queries of one"),
    )
    return KnobSpace(knobs, _constraints(choice), default)


def attention_algorithm(knobs: Knobs) -> str | None:
    """Name the form in which keys and columns fill vectors, and lengths bound the scores."""
    keys, columns, forms = knobs["pad"] or 1, knobs["widen"] or 1, ["shared_keys"] * knobs["shared_keys"]
    if knobs["bounded"]:
        forms.append(f"attention_{keys}_{columns}_{knobs['lanes']}")
    elif max(keys, columns) > 1:
        forms.append(f"padded_attention_{keys}_{columns}")
    return THEN.join(forms) or None


def _constraints(choice: AttentionChoice) -> tuple[Constraint, ...]:
    """Return the rules between the knobs."""
    nest, lanes, keys, columns = choice.nest, choice.lanes, choice.keys, choice.columns
    given = {"lanes": lanes, "pad": choice.pad, "widen": choice.widen, "shared_keys": int(choice.shared_keys)}
    return (
        Constraint(
            f"{', '.join(f'{name} is {value}' for name, value in given.items())}: they follow from the "
            "heads, the keys, the columns and the target",
            lambda k: all(k[name] == value for name, value in given.items()),
        ),
        Constraint("block, mr and nc are at least 1", lambda k: min(k["block"], k["mr"], k["nc"]) >= 1),
        Constraint(
            f"nr is 0 with one query, at least 1 with more than {QUERIES_OF_DOTS[1]}, or keys of no parts",
            lambda k: k["nr"] >= 0 and (nest.m > 1 if k["nr"] else 0 in choice.panels),
        ),
        Constraint(
            "values is 0 or 1, and 0 with one query or one panel of columns",
            lambda k: k["values"] == 0 or (k["values"] == 1 and nest.m > 1 and k["nc"] < columns),
        ),
        bounded_constraint(choice.can_bound),
        Constraint("bounded is 0 where nr is", lambda k: k["nr"] > 0 or k["bounded"] == 0),
        *shares_constraints(nest),
        Constraint("mr divides block", lambda k: k["block"] % k["mr"] == 0),
        Constraint(
            f"nr divides the keys ({keys}) and nc the columns ({columns}), in whole vectors",
            lambda k: keys % (k["nr"] or 1) == columns % k["nc"] == k["nr"] % lanes == k["nc"] % lanes == 0,
        ),
        Constraint(
            f"tiles, a row of a panel and a broadcast fit {choice.machine.vector_registers} registers",
            lambda k: choice.fits(k["nr"], k["mr"]) and choice.fits(k["nc"], k["mr"]),
        ),
    )


def bounded_knob(can_bound: bool) -> Knob:
    """Return the knob that leaves out maxima."""
    meaning = "1: where lengths bound the scores of a head, no maxima are taken"
    return Knob("bounded", (0, 1)[: 1 + can_bound], meaning)


def bounded_constraint(can_bound: bool) -> Constraint:
    """Return its rule."""
    return Constraint(
        "bounded is 0 or 1, and 0 where scores are more than products times a number or keys no vectors",
        lambda k: 0 <= k["bounded"] <= can_bound,
    )


def _powers(most: int) -> tuple[int, ...]:
    return tuple(1 << p for p in range(most.bit_length() - 1, -1, -1))
