"""Tiles that go on from one line of the output to the next: `forms.flat_rows`, beside tiles of one line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import s_tir

from ..forms.flat_rows import find_flat_rows, restate
from ..nests.contraction import find_contraction
from ..space import Constraint, Knob, Knobs, KnobSpace
from .block_choice import default_blocks
from .register_tile import register_tile
from .tile_choice import ROW_STREAMS, TileChoice
from .tile_space import tile_space

# What tiles of all rows must cost at most, of what those of lines cost. Of short sums they are worth less
# than finding where each row begins takes: time over that of lines, 1x1, 2 threads of a Zen 3, 16 channels
# 1.1, 64 and 96 1.0 to 1.07, 128 and more 0.93 to 1.01.
_WORTH_ONE_AXIS, _LEAST_DEPTH = 0.99, 128


def schedule_tiles(sch: s_tir.Schedule, *, rows: int = 0, **knobs: int) -> None:
    """Rewrite a contraction in place, which `tiles_algorithm` has put into its form: see `register_tile`."""
    del rows
    register_tile(sch, **knobs)


def tiles_algorithm(knobs: Knobs) -> str | None:
    """Name the form in which the rows of all lines are one axis, where they are to be."""
    return f"flat_rows_{knobs['rows']}" if knobs.get("rows") else None


def tiles_of_lines_or_all(func: Any, choice: TileChoice, default: Knobs) -> KnobSpace:
    """Return the tiles of one line, and those of all lines' rows where these are several axes.

    The latter are the default where they compute less, or fill the registers better. Times over those of
    lines, 2 threads of a Zen 3: 1x1 of 13x13 pixels 0.94 to 0.96, 27x27 0.96 to 0.98, 8 and 4 of 7x7 0.85 to
    0.89, 28x28 and 14x14 0.89 to 1.01, 4 times 50 rows by 768 x 768 0.96, 8 times 13 0.94. Lines leave out
    taps that meet only padding, one axis does not.
    """
    lines, nest = tile_space(choice, default), choice.nest
    found = find_flat_rows(func) if nest.depth >= _LEAST_DEPTH else None
    if found is None:
        return lines
    vectors = default["nr"] // default["lanes"]
    candidates = range(1, min(choice.fitting_rows(vectors), ROW_STREAMS, found.rows) + 1)
    if not candidates:
        return lines
    rows = min(candidates, key=lambda mr: choice.cost_of(found.rows, mr, vectors))
    one_axis = find_contraction(restate(func, rows))
    assert one_axis is not None, "the form is a product"
    if one_axis.columns != nest.columns:  # of one column and many rows it is the rows that are columns
        return lines
    flat = replace(choice, nest=one_axis)
    tile = {**default, "mr": rows, **default_blocks(flat, rows, default["nr"])}
    cost = choice.cost_of(found.rows, rows, vectors)
    by_lines = nest.outer_rows * choice.cost_of(nest.row_extent, default["mr"], vectors)
    is_cheaper = not nest.padded and cost < _WORTH_ONE_AXIS * by_lines
    return either_tiles(lines, tile_space(flat, tile), rows, is_cheaper)


def either_tiles(lines: KnobSpace, flat: KnobSpace, rows: int, is_flat: bool) -> KnobSpace:
    """Return the points of two spaces: those of tiles of one line, and those of ``rows`` rows of any."""
    meaning = "rows of a tile that goes on with the next line; 0: tiles are of one line"
    others = {knob.name: knob.values for knob in flat.knobs}
    values = {knob.name: {*knob.values, *others.get(knob.name, ())} for knob in lines.knobs}
    knobs = (replace(knob, values=tuple(sorted(values[knob.name]))) for knob in lines.knobs)
    # Taps that meet only padding are known along a line.
    alone = {name: 0 for name in values if name not in others}
    constraints = (
        Constraint(f"rows is 0 or {rows}", lambda k: k["rows"] in (0, rows)),
        *(_of_part(False, each) for each in lines.constraints),
        *(_of_part(True, each) for each in (*flat.constraints, *map(_off, alone))),
    )
    defaults = {"rows": 0, **lines.default}, {"rows": rows, **alone, **flat.default}
    return KnobSpace(
        (Knob("rows", (0, rows), meaning), *knobs), constraints, defaults[is_flat], defaults[not is_flat]
    )


def _of_part(is_flat: bool, constraint: Constraint) -> Constraint:
    """Return a rule for the points of one part only: tiles of one line, or of all rows."""
    return replace(constraint, holds=lambda k: (k["rows"] > 0) != is_flat or constraint.holds(k))


def _off(name: str) -> Constraint:
    return Constraint(f"{name} is 0 where rows is not", lambda k: k[name] == 0)
