"""Windows of maxima or sums in two steps: down the columns first, then along the lines.

A window of 3 x 3 is 9 elements an output. Its columns are shared by neighbours, and in two steps it is 6::

    down[.., p, w] = max of x[.., p * s + i, w] over i
    y[.., p, q]    = max of down[.., p, q * s + j] over j

All that is read in the first step lies in memory as it is computed, also where windows stride. The order of
a sum changes, as it does in every schedule that sums in parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tvm import te, tirx
from tvm.ir import TensorLoad
from tvm.tirx import FloatImm, IntImm

from ...machine.errors import InputError
from ..analysis import Reduction, plain_reduction
from ..expressions import index_variables, loads_of, step_along
from ..restatement import replaced, with_stages

DOWN, ALONG = "separable_down", "separable_along"
"""The blocks of the form: each column of a window reduced, and these along the line."""

_Step = tirx.Add | tirx.Max | tirx.Min


@dataclass(frozen=True)
class SeparableWindow(Reduction):
    """A reduction over windows of one operand, whose contiguous axis is reduced by an axis of its own.

    Parameters
    ----------
    load : TensorLoad
        What it reads.
    term : PrimExpr
        What becomes of each element before it is reduced: itself, or itself in another type.
    step : type
        How two are made one: an addition, the greater, the smaller.
    """

    load: Any
    term: Any
    step: type[Any]

    @property
    def along(self) -> Any:
        """The axis that is reduced along the line."""
        used = index_variables(self.load.indices[-1:])
        return next(v for v in self.reduced if v.var in used)

    @property
    def down(self) -> list[Any]:
        """The axes that are reduced in the first step."""
        return [v for v in self.reduced if not v.same_as(self.along)]

    @property
    def moves_by_one(self) -> bool:
        """Tell whether the next window along the line begins one element on."""
        return step_along(self.load.indices[-1], self.kept[-1].var) == 1

    @property
    def axis(self) -> int:
        """The dimension of the operand that is the line: its last."""
        return len(self.load.indices) - 1


@lru_cache(maxsize=16)  # the space asks, and then the restatement
def find_separable(func: Any) -> SeparableWindow | None:
    """Find the one window in an unscheduled PrimFunc that can be reduced in two steps; None without one."""
    found = plain_reduction(func)
    if found is None:
        return None
    block, kept, reduced = found.block, [v.var for v in found.kept], {v.var for v in found.reduced}
    neutral, value = getattr(block.init, "value", None), block.body.value
    if not isinstance(value, _Step) or not isinstance(neutral, FloatImm | IntImm):
        return None
    before, term = value.a, value.b
    if not isinstance(before, TensorLoad) or not before.source.same_as(block.body.buffer):
        return None
    if isinstance(value, tirx.Add) and neutral.value != 0:
        return None
    loads = loads_of(term)
    if len(loads) != 1 or index_variables([replaced(term, {loads[0]: neutral})]):
        return None
    line, others = index_variables(loads[0].indices[-1:]), index_variables(loads[0].indices[:-1])
    if len(line & reduced) != 1 or line - reduced != {kept[-1]} or others & line or not others & reduced:
        return None
    return SeparableWindow(block, loads[0], term, type(value))


def restate(func: Any, axis: int) -> Any:
    """Put the two steps in the place of a window.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_separable` finds a window.
    axis : int
        The dimension of its operand that is reduced in the second step: the last.

    Raises
    ------
    InputError
        There is no such window: a trace may name a form that is not one of its function.
    """
    found = find_separable(func)
    if found is None or found.axis != axis:
        raise InputError(f"the function has no window that is reduced along dimension {axis} last")
    return with_stages(func, found.name, [found.load.source], _define(found))


def _define(found: SeparableWindow) -> list[Any]:
    """Return the TE tensors operand and output."""
    dtype, neutral = found.block.body.buffer.dtype, found.block.init.value
    reduced = te.comm_reducer(lambda a, b: found.step(a, b), lambda _: tirx.const(neutral.value, dtype))
    source, others = found.load.source, list(found.load.indices[:-1])
    x = te.placeholder([int(e) for e in source.shape], source.dtype, source.name)
    extents = found.extents
    sums = {v.var: te.reduce_axis((0, int(v.dom.extent)), f"i{n}") for n, v in enumerate(found.down)}
    along = te.reduce_axis((0, int(found.along.dom.extent)), "j")

    def down(*index: Any) -> Any:
        new = dict(zip((v.var for v in found.kept[:-1]), index[:-1], strict=True))
        new |= {v: axis.var for v, axis in sums.items()}
        element = x(*(replaced(i, new) for i in others), index[-1])
        return reduced(replaced(found.term, {found.load: element}), axis=list(sums.values()))

    columns = te.compute([*extents[:-1], int(source.shape[-1])], down, name=DOWN)

    def line(*index: Any) -> Any:
        at = replaced(found.load.indices[-1], {found.kept[-1].var: index[-1], found.along.var: along.var})
        return reduced(columns(*index[:-1], at), axis=[along])

    return [x, te.compute(extents, line, name=ALONG)]
