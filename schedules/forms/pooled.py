"""Windows that move by several elements along short lines, as whole vectors: pooling by 2, channels first.

Each column of a window is reduced first, in vectors of the line, and then the columns: those of a vector of
outputs lie apart, and are brought together in registers. Where vectors do not divide a line of outputs, the
last one reaches back; what lies beyond the image is the value that changes nothing::

    for p, vectors of 4 of the 7 outputs:                   # a window of 3 by 2, from q0 = 0, 3
        columns = max of x[2 p + i, 2 q0 : ..] over i       # one or more vectors
        y[p, q0 : q0 + 4] = max of columns[j, j + 2, j + 4, j + 6] over j
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil
from typing import Any

from tvm import tirx
from tvm.sym import Analyzer
from tvm.tirx import IntImm

from ...machine.errors import InputError
from ..expressions import index_variables, is_choice, loads_of
from ..restatement import held_block, nests, replaced, vector_start, whole, with_one_block
from .separable import SeparableWindow, find_separable
from .vector_expressions import NO_VECTORS, can_evaluate, evaluated, shuffled

BLOCK = "pooled"
"""The block of the form: a line of the output an iteration."""

_MOST_TAPS = 5
MOST_VECTORS = 4


@dataclass(frozen=True)
class Pooling:
    """A window along lines, with what pads its image and what becomes of each result.

    Parameters
    ----------
    window : SeparableWindow
        The reduction.
    pad : SBlock or None
        The block that pads the image.
    after : SBlock or None
        The block that computes the output of the results, element by element.
    columns : tuple of (int or None)
        Which column of the image an element of the padded line is; None beyond the image.
    stride, taps, spread : int
        By how much windows move along the line, and how many elements they have, how far apart.
    """

    window: SeparableWindow
    pad: Any
    after: Any
    columns: tuple[int | None, ...]
    stride: int
    taps: int
    spread: int

    @property
    def image(self) -> Any:
        """The buffer of the image."""
        return self.window.load.source if self.pad is None else loads_of(self.pad.body.value)[0].source

    @property
    def output(self) -> Any:
        """The buffer of the output."""
        return (self.window.block if self.after is None else self.after).body.buffer

    @property
    def width(self) -> int:
        """How long the image's lines are."""
        return int(self.image.shape[-1])


@lru_cache(maxsize=16)  # a rule's space asks, and then the restatement
def find_pooling(func: Any) -> Pooling | None:
    """Find the pooling by more than one element along the last axis that a PrimFunc consists of."""
    window = find_separable(func)
    blocks = [held_block(nest) for nest in nests(func)]
    if window is None or any(block is None for block in blocks):
        return None
    at = next(i for i, block in enumerate(blocks) if block.name_hint == window.name)
    before, after = blocks[:at], blocks[at + 1 :]
    steps = [_step(window, axis) for axis in (window.kept[-1], window.along)]
    taps = int(window.along.dom.extent)
    if len(before) > 1 or len(after) > 1 or None in steps or steps[0] == 1:
        return None
    pad, last = (before or [None])[0], (after or [None])[0]
    columns = _columns(window, pad)
    found = Pooling(window, pad, last, columns, steps[0] or 0, taps, steps[1] or 0)
    return found if columns and _is_simple(found) else None


def _step(window: SeparableWindow, axis: Any) -> int | None:
    """Return how far apart along the line the elements of neighbours on an axis lie."""
    index = window.load.indices[-1]
    moved = Analyzer().simplify(replaced(index, {axis.var: axis.var + 1}) - index)
    return int(moved) if isinstance(moved, IntImm) else None


def _columns(window: SeparableWindow, pad: Any) -> tuple[int | None, ...]:
    """Return the columns of the image that the elements of a line of the window's operand are."""
    width = int(window.load.source.shape[-1])
    if pad is None:
        return tuple(range(width))
    if not pad.body.buffer.same_as(window.load.source) or not is_choice(pad.body.value):
        return ()
    condition, inside, _ = pad.body.value.args
    *_, last = (v.var for v in pad.iter_vars)
    columns: list[int | None] = []
    for column in range(width):
        new = {last: whole(column)}
        index = Analyzer().simplify(replaced(inside.indices[-1], new))
        outside = Analyzer().simplify(replaced(condition, new))
        there = not (isinstance(outside, IntImm) and not int(outside))
        if there and not isinstance(index, IntImm):
            return ()
        columns.append(int(index) if there else None)
    return tuple(columns)


def _is_simple(found: Pooling) -> bool:
    """Tell whether vectors of all that is computed are known, and none of it depends on the column."""
    window, pad, after = found.window, found.pad, found.after
    last = window.kept[-1].var
    neutral = window.block.init.value
    if found.output.dtype == NO_VECTORS or found.image.dtype == NO_VECTORS:
        return False
    if pad is not None and not (
        len(loads_of(pad.body.value)) == 1
        and pad.body.value.args[2].value == neutral.value
        and all(index.same_as(v.var) for index, v in zip(pad.body.indices, pad.iter_vars, strict=True))
        and not index_variables(loads_of(pad.body.value)[0].indices[:-1]) & {pad.iter_vars[-1].var}
    ):
        return False
    if after is not None:
        loads = loads_of(after.body.value)
        alone = len(loads) == 1 and loads[0].source.same_as(window.block.body.buffer)
        plain = alone and all(
            i.same_as(v.var) for i, v in zip(loads[0].indices, after.iter_vars, strict=True)
        )
        rest = replaced(after.body.value, {loads[0]: tirx.const(0, loads[0].ty.dtype)}) if alone else None
        if not plain or index_variables([rest]) or not can_evaluate(after.body.value):
            return False
    first = Analyzer().simplify(
        replaced(window.load.indices[-1], {last: whole(0), window.along.var: whole(0)})
    )
    taps = [int(v.dom.extent) for v in window.down]
    few = max([found.taps, *taps]) <= _MOST_TAPS and isinstance(first, IntImm) and int(first) == 0
    return few and can_evaluate(window.term)


def restate(func: Any, lanes: int) -> Any:
    """Put vectors in the place of a pooling's elements.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_pooling` finds one.
    lanes : int
        Outputs in a vector, at most a line of them and of the image.

    Raises
    ------
    InputError
        There is no such pooling: a trace may name a form that is not one of its function.
    """
    found = find_pooling(func)
    line = 0 if found is None else found.window.extents[-1]
    if found is None or not 1 < lanes <= min(line, found.width) or ceil(line / lanes) > MOST_VECTORS:
        raise InputError(f"the function pools no lines of {lanes} outputs or more")

    def body(place: list[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        starts = (vector_start(number, line, lanes) for number in range(ceil(line / lanes)))
        numbers = [int(Analyzer().simplify(whole(0) + start)) for start in starts]
        return [s for start in numbers for s in _vector(found, place, lanes, start)], {}

    *outer, _ = found.window.extents
    return with_one_block(func, BLOCK, outer, (found.image, found.output), body)


def _vector(found: Pooling, place: Sequence[Any], lanes: int, start: int) -> list[Any]:
    """Return the statements that compute a vector of outputs."""
    window, statements = found.window, list[Any]()
    elements = [
        [found.columns[found.stride * (start + lane) + found.spread * tap] for lane in range(lanes)]
        for tap in range(found.taps)
    ]
    inside = [column for taps in elements for column in taps if column is not None]
    width = lanes * 2 if lanes * 2 <= found.width else lanes
    firsts, reach = list[int](), min(inside)
    while reach <= max(inside):
        firsts.append(min(reach, found.width - width))
        reach = firsts[-1] + width
    vectors: list[Any] = []
    for first in firsts:
        value = _reduced_column(found, place, width, first)
        vectors.append(tirx.Var("columns", value.ty.dtype))
        statements.append(tirx.Bind(vectors[-1], value))
    if len(inside) < lanes * found.taps:
        vectors.append(tirx.Broadcast(window.block.init.value, width))

    def lane_of(column: int | None) -> int:
        at = next((i for i, f in enumerate(firsts) if column is not None and f <= column < f + width), None)
        return width * len(firsts) if at is None or column is None else width * at + column - firsts[at]

    result: Any = None
    for taps in elements:
        value = shuffled(vectors, [lane_of(column) for column in taps])
        result = value if result is None else window.step(result, value)
    if found.after is not None:
        summed = tirx.Var("result", result.ty.dtype)
        statements.append(tirx.Bind(summed, result))
        result = evaluated(found.after.body.value, lambda _: summed)
    statements.append(found.output.vstore([*place, whole(start)], result))
    return statements


def _reduced_column(found: Pooling, place: Sequence[Any], lanes: int, first: int) -> Any:
    """Return a vector of columns of a window, reduced."""
    window, result = found.window, None
    given = dict(zip((v.var for v in window.kept), [*place, whole(0)], strict=True))
    for taps in product(*(range(int(v.dom.extent)) for v in window.down)):
        new = given | {v.var: whole(tap) for v, tap in zip(window.down, taps, strict=True)}
        row = [replaced(index, new) for index in window.load.indices[:-1]]
        value = _line(found, row, lanes, first)
        result = value if result is None else window.step(result, value)
    return result


def _line(found: Pooling, row: Sequence[Any], lanes: int, first: int) -> Any:
    """Return a vector of a line of the image, or of what changes nothing where the line is beyond it."""
    window, image = found.window, found.image
    dtype = f"{image.dtype}x{lanes}"
    if found.pad is None:
        return evaluated(window.term, lambda _: image.vload([*row, whole(first)], dtype))
    condition, inside, _ = found.pad.body.value.args
    *others, last = (v.var for v in found.pad.iter_vars)
    middle = next(i for i, column in enumerate(found.columns) if column is not None)
    new = dict(zip([*others, last], [*row, whole(middle)], strict=True))
    there = Analyzer().simplify(replaced(condition, new))
    at = [replaced(index, new) for index in inside.indices[:-1]]
    bounded = [tirx.max(tirx.min(i, extent - 1), 0) for i, extent in zip(at, image.shape, strict=False)]
    value = evaluated(window.term, lambda _: image.vload([*bounded, whole(first)], dtype))
    neutral = tirx.Broadcast(window.block.init.value, lanes)
    return tirx.Select(there, value, neutral)
