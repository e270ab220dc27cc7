"""The knobs of the row-by-row nest, their candidates and constraints."""

from __future__ import annotations

from math import prod
from typing import Any

from ...machine.facts import facts
from ..forms.whole_rows import kept_values, lengthened_axes
from ..lane_reduction import best_width
from ..nests.rows import find_rows
from ..passes.row_chunks import CHUNKS
from ..space import Constraint, Knob, Knobs, KnobSpace
from .row_choice import AHEAD, default_knobs, reads_again, writes_behind
from .row_tiles import ACROSS, VECTORS, can_be_cut, is_in_pieces, possible_blocks, whole_vectors


def rows_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the vectors and the threading to choose from, or None where rows are not independent."""
    nest = find_rows(func)
    if nest is None:
        return None
    machine = facts(target)
    widest = machine.lanes(nest.dtype)
    width = best_width(nest.length, widest, VECTORS)
    pieces = lengthened_axes(func, 1) if nest.contiguous else None
    if pieces is not None and len(pieces) > 1 and pieces[-1] < widest // 2:
        # Vectors would be nearly empty: 100 stretches of 4 elements take 0.4 of the time by `general`.
        return None
    if nest.contiguous and pieces is None and width < widest // 2 and nest.length > VECTORS * widest:
        return None
    blocks = possible_blocks(nest, pieces)
    default, across = default_knobs(func, target, nest, blocks, pieces), not nest.contiguous
    lanes = default["lanes"]
    whole = whole_vectors(nest, machine, lanes) if across else ()
    vectors = tuple(sorted({*ACROSS, *whole, default["vectors"]}))
    behind = (0, 1) if writes_behind(func, nest) else (0,)
    forms = (0,) if pieces is None else (0, 1, 2) if kept_values(func) else (0, 1)
    whole_parts = f"the row ({nest.length}) if whole=0"
    if pieces is not None and is_in_pieces(nest, pieces):
        whole_parts = f"the pieces of a row ({prod(pieces[:-1])})"
    return KnobSpace(
        knobs=(
            Knob("lanes", tuple(sorted({1, max(1, widest // 2), widest})), "elements in a vector"),
            Knob("vectors", vectors, "vectors of partial results, or of neighbouring rows"),
            Knob("block", blocks, "rows taken through each step together"),
            Knob("parallel", (0, 1), "1: rows are spread over the threads"),
            Knob("stream", (0, 1), "1: the output is written past the caches"),
            Knob(
                "ahead",
                AHEAD if reads_again(nest) else (0,),
                "blocks of rows that are fetched ahead; 0: none",
            ),
            Knob("chunk", CHUNKS, "blocks of rows that a thread takes one after the other"),
            Knob("behind", behind, "1: each row of a chunk is written while the next is computed"),
            Knob(
                "parts", tuple(sorted({1, default["parts"]})), "parts of a row that are reduced in parallel"
            ),
            Knob("whole", forms, "1: rows are reduced as whole vectors; 2: also what is kept of them"),
        ),
        constraints=(
            Constraint(
                "lanes is a power of two, and vectors along a row",
                lambda k: _is_power_of_two(k["lanes"]) and (across or _is_power_of_two(k["vectors"])),
            ),
            Constraint(
                f"block divides the innermost axis of rows ({nest.row_extent}), and is 1 across rows",
                lambda k: k["block"] in blocks,
            ),
            Constraint(
                f"parts divides {whole_parts}, and is 1 unless all is one reduction of one value",
                lambda k: (
                    k["parts"] == 1
                    or (nest.is_one_reduction and can_be_cut(nest, pieces, k["parts"], k["whole"] > 0))
                ),
            ),
            Constraint(
                "ahead=0 unless rows lie contiguous and are read again after a first pass, with parts=1",
                lambda k: k["ahead"] == 0 or (reads_again(nest) and k["parts"] == 1),
            ),
            Constraint(
                "behind=0 unless rows of exponentials are written past the caches, with parts=1 and block=1",
                lambda k: (
                    k["behind"] == 0
                    or (len(behind) > 1 and (k["stream"], k["parts"], k["block"]) == (1, 1, 1))
                ),
            ),
            Constraint("chunk is at least 1, and behind 0 or 1", lambda k: k["chunk"] > 0 <= k["behind"] < 2),
            Constraint(f"whole is at most {forms[-1]}", lambda k: 0 <= k["whole"] <= forms[-1]),
            Constraint(
                f"whole needs vectors that do not divide the row ({nest.length}), or axes that are one",
                lambda k: k["whole"] == 0 or lengthened_axes(func, *_width_and_parts(k)) != nest.axes,
            ),
        ),
        default=default,
    )


def whole_rows(knobs: Knobs) -> str | None:
    """Name the form in which rows are as long as these knobs want them."""
    form = ("", "whole_rows", "whole_values")[knobs["whole"]]
    return "_".join([form, *map(str, _width_and_parts(knobs))]) if form else None


def _width_and_parts(knobs: Knobs) -> tuple[int, ...]:
    """Return the elements that are reduced at a time, and in how many parts, if these are several."""
    width = knobs["lanes"] * knobs["vectors"]
    return (width,) if knobs["parts"] == 1 else (width, knobs["parts"])


def _is_power_of_two(number: int) -> bool:
    return number >= 1 and number & (number - 1) == 0
