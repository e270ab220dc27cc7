"""Bilinear resizing along the last axis, as whole vectors, for lines of any length.

Outputs between two columns depend on the same two in the same way in each step of some outputs, two where an
image doubles. A line between two rows is computed first, and so a vector of it at once; its neighbours are
other vectors of the line, and at its ends the same one moved in registers. Where vectors do not divide a
line, the last one reaches back::

    line[j] = x[up, j - 1] * (1 - down) + x[up + 1, j - 1] * down       # its ends are there twice
    y[p, i] = line[i // 2 ..] * .. + line[i // 2 + 1 ..] * ..           # i < 26

    for p, vectors of 8 of the 13 columns:                              # j0 = 0, 5
        a, b, c = lines of x[.., j0 - 1 : j0 + 7], x[.., j0 : j0 + 8], x[.., j0 + 1 : j0 + 9]
        even, odd = a / 4 + b * 3 / 4, b * 3 / 4 + c / 4
        y[p, 2 j0 : 2 j0 + 16] = even and odd interleaved
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any

from tvm import tirx
from tvm.sym import Analyzer
from tvm.tirx import IntImm

from ...machine.errors import InputError
from ..analysis import schedule_to_read, steps_of_reading
from ..expressions import index_variables, loads_of
from ..restatement import held_block, nests, replaced, whole, with_one_block
from .vector_expressions import NO_VECTORS, at_index, can_evaluate, decided, evaluated, shuffled

BLOCK = "interpolated"
"""The block of the form: a line of the output an iteration."""

# A line of more vectors is a loop, but for its ends.
_MOST_UNROLLED = 4


@dataclass(frozen=True)
class Interpolation:
    """Lines that are computed first, and between whose columns outputs lie.

    Parameters
    ----------
    line, output : SBlock
        The blocks that compute the line and the output.
    times : int
        Outputs of a step, after which all is one column on.
    columns : tuple of int
        Which column of the input an element of the line is made of.
    """

    line: Any
    output: Any
    times: int
    columns: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """How long the axes are; the last one is the input's line."""
        *outer, line = (int(v.dom.extent) for v in self.output.iter_vars)
        return (*outer, line // self.times)

    @property
    def before(self) -> int:
        """How many elements of the line are before that of the first column, but for repeated ones."""
        middle = len(self.columns) // 2
        return middle - self.columns[middle]

    @property
    def source(self) -> Any:
        """The buffer of the image."""
        return loads_of(self.line.body.value)[0].source

    @property
    def dtype(self) -> str:
        """The type of the image and of the output."""
        return str(self.output.body.buffer.dtype)


@lru_cache(maxsize=16)  # a rule's space asks, and then the restatement
def find_interpolation(func: Any) -> Interpolation | None:
    """Find the one interpolation that a PrimFunc consists of, in steps of some outputs along its lines."""
    blocks = [held_block(nest) for nest in nests(func)]
    if len(blocks) != 2 or any(
        b is None or not isinstance(b.body, tirx.BufferStore) or b.init for b in blocks
    ):
        return None
    line, output = blocks
    sch = schedule_to_read(func)
    times = steps_of_reading(sch, str(output.name_hint))
    buffers = [{load.source for load in loads_of(block.body.value)} for block in blocks]
    if times == 1 or len(buffers[0]) != 1 or buffers[1] != {line.body.buffer}:
        return None
    if not _is_plain(line, line.body.indices) or not all(
        _is_plain(output, load.indices[:-1]) for load in loads_of(output.body.value)
    ):
        return None
    columns = _columns(line)
    if not all(can_evaluate(decided(block.body.value)) for block in (line, output)):
        return None
    if not columns or int(output.iter_vars[-1].dom.extent) % times or output.body.buffer.dtype == NO_VECTORS:
        return None
    found = Interpolation(line, output, times, columns)
    return found if all(_is_near(found, step) for step in range(times)) else None


def restate(func: Any, lanes: int) -> Any:
    """Put vectors in the place of an interpolation's elements.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_interpolation` finds one.
    lanes : int
        Columns of the image in a vector, at most a line of it.

    Raises
    ------
    InputError
        There is no such interpolation: a trace may name a form that is not one of its function.
    """
    found = find_interpolation(func)
    if found is None or not 1 < lanes <= found.extents[-1]:
        raise InputError(f"the function interpolates no lines of {lanes} columns or more")
    *outer, length = found.extents
    count = ceil(length / lanes)

    def body(place: list[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        def vectors(start: Any) -> list[Any]:
            return _vectors(found, place, lanes, start)

        starts = [min(number * lanes, length - lanes) for number in range(count)]
        if count <= _MOST_UNROLLED:
            return [statement for start in starts for statement in vectors(start)], {}
        number = tirx.Var("number", "int64")
        inner = tirx.SeqStmt(vectors(number * lanes))
        middle = tirx.For(number, whole(1), whole(count - 2), tirx.ForKind.SERIAL, inner)
        return [*vectors(0), middle, *vectors(starts[-1])], {}

    return with_one_block(func, BLOCK, outer, (found.source, found.output.body.buffer), body)


def _vectors(found: Interpolation, place: Sequence[Any], lanes: int, start: Any) -> list[Any]:
    """Return the statements that compute the outputs of some columns from ``start``, a number or an index.

    An index stands for columns that have neighbours on both sides.
    """
    statements: list[Any] = []
    lines: dict[Any, Any] = {}
    times, output, column = found.times, found.output.body.buffer, tirx.Var("column", "int64")

    def bind(name: str, value: Any) -> Any:
        variable = tirx.Var(name, value.ty.dtype)
        statements.append(tirx.Bind(variable, value))
        return variable

    def line(first: Any) -> Any:
        key = first if isinstance(first, int) else str(first)
        if key not in lines:
            lines[key] = bind("line", _line(found, place, lanes, first))
        return lines[key]

    def neighbours(load: Any) -> Any:
        offset = _offset(load, column)
        assert offset is not None, "find_interpolation has found one"
        if not isinstance(start, int):
            return line(start + (offset - found.before))
        columns = [found.columns[start + offset + lane] for lane in range(lanes)]
        first = min(columns[0], found.extents[-1] - lanes)
        lanes_of = [each - first for each in columns]
        return line(first) if lanes_of == [*range(lanes)] else shuffled([line(first)], lanes_of)

    steps = (_step(found, place, step, column) for step in range(times))
    outputs = [bind("output", evaluated(value, neighbours)) for value in steps]
    for part in range(times):
        numbers = range(part * lanes, (part + 1) * lanes)
        interleaved = shuffled(outputs, [n % times * lanes + n // times for n in numbers])
        statements.append(output.vstore([*place, at_index(start * times + part * lanes)], interleaved))
    return statements


def _line(found: Interpolation, place: Sequence[Any], lanes: int, first: Any) -> Any:
    """Return a vector of the line, of the columns from ``first``."""
    variables = [v.var for v in found.line.iter_vars]
    middle = whole(len(found.columns) // 2)
    given = dict(zip(variables, [*place, middle], strict=True))

    def vector(load: Any) -> Any:
        return load.source.vload([*load.indices[:-1], at_index(first)], f"{load.source.dtype}x{lanes}")

    return evaluated(decided(replaced(found.line.body.value, given)), vector)


def _step(found: Interpolation, place: Sequence[Any], step: int, column: Any) -> Any:
    """Return an output of a step at a column, by its axes but the last."""
    variables = [v.var for v in found.output.iter_vars]
    last = column * found.times + step
    return replaced(found.output.body.value, dict(zip(variables, [*place, last], strict=True)))


def _offset(load: Any, column: Any) -> int | None:
    """Return by how much more than the column the last index of a load is."""
    number = Analyzer().simplify(load.indices[-1] - column)
    return int(number) if isinstance(number, IntImm) else None


def _is_near(found: Interpolation, step: int) -> bool:
    """Tell whether an output of a step is made of its column and neighbours, and as in any other step."""
    column = tirx.Var("column", "int64")
    value = _step(found, [v.var for v in found.output.iter_vars][:-1], step, column)
    offsets: list[int | None] = []

    def number(load: Any) -> Any:
        offsets.append(_offset(load, column))
        return tirx.Var("element", load.ty.dtype)

    weights = evaluated(value, number)
    near = all(offset is not None and abs(offset - found.before) <= 1 for offset in offsets)
    return near and column not in index_variables([weights])


def _columns(line: Any) -> tuple[int, ...]:
    """Return the columns that the elements of a line are made of; nothing where one is made of several."""
    columns: list[int] = []
    for at in range(int(line.iter_vars[-1].dom.extent)):
        value = decided(replaced(line.body.value, {line.iter_vars[-1].var: whole(at)}))
        read = [Analyzer().simplify(load.indices[-1]) for load in loads_of(value)]
        numbers = {int(each) if isinstance(each, IntImm) else None for each in read}
        (number,) = numbers if len(numbers) == 1 else (None,)
        if number is None:
            return ()
        columns.append(number)
    return tuple(columns)


def _is_plain(block: Any, indices: Sequence[Any]) -> bool:
    """Tell whether indices are a block's first axes, one by one."""
    return all(index.same_as(axis.var) for index, axis in zip(indices, block.iter_vars, strict=False))
