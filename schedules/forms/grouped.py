"""A grouped convolution as a batch of convolutions that are contractions, one for each group or for a few.

An output channel o of a grouped convolution reads the K inputs of its group only, ``o // O * K + k``. Both
operands depend on o, and so it is no contraction. With the groups as an axis of their own it is a batch::

    data[g, n, h, w, k] = x[n, h, w, g * K + k]              # a group's image lies together, channels last
    weight[g, i, j, k, o] = w[i, j, k, g * O + o]
    product[n, p, q, g, o] = sum of data[g, n, p + i, q + j, k] * weight[g, i, j, k, o]
    output[n, p, q, c] = product[n, p, q, c // O, c % O]

Few outputs do not fill a vector. Neighbouring groups are then merged into one part, whose weight is zero
where an output would read another group's input: no more multiply-adds than in vectors that are filled in
part, and whole vectors to store. An infinite input makes NaN of all outputs of its part that it meets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

from tvm import s_tir, te, tirx
from tvm.sym import Analyzer
from tvm.tirx import IndexMap, IntImm, IterVar, Var

from ...machine.errors import InputError
from ..analysis import block_names, block_of, one_reduction, schedule_to_read, static_extents
from ..expressions import are_just, index_variables
from ..nests.products import product_operands
from ..restatement import replaced, simplify_reads, summed_term, with_stages
from ..transforms import inline_blocks

DATA, WEIGHT, PRODUCT, OUTPUT = (f"grouped_{step}" for step in ("data", "weight", "product", "output"))
"""The blocks: data and weight by group, their products summed, and these as the convolution's output."""


@dataclass(frozen=True)
class GroupedConvolution:
    """A sum of products in which each output channel reads the input channels of its group.

    Parameters
    ----------
    block : SBlock
        What sums them.
    data, weight : TensorLoad
        Its operands.
    column, channel : Var
        Its axes over all output channels and over the input channels of a group.
    dimension : int
        The dimension of data that is the input channels.
    groups, inputs, outputs : int
        How many groups there are, and the channels of one.
    """

    block: Any
    data: Any
    weight: Any
    column: Any
    channel: Any
    dimension: int
    groups: int
    inputs: int
    outputs: int

    @property
    def kept(self) -> list[Any]:
        """The axes of the output."""
        return [v.var for v in self.block.iter_vars if v.iter_type == IterVar.DataPar]

    @property
    def taps(self) -> list[Any]:
        """The axes of the weight that are not channels."""
        return [v for v in self.weight.indices if v not in (self.column, self.channel)]

    @property
    def extents(self) -> dict[Any, int]:
        """The iterations of each axis."""
        return {v.var: int(v.dom.extent) for v in self.block.iter_vars}


@lru_cache(maxsize=16)  # the space asks, and then the restatement
def find_grouped(func: Any) -> GroupedConvolution | None:
    """Find the one grouped convolution in an unscheduled PrimFunc.

    Returns
    -------
    GroupedConvolution or None
        None where there is none, or where each input channel is by itself: a depthwise one has no sum over
        channels.
    """
    sch = schedule_to_read(func)
    sums = one_reduction(sch)
    if sums is None:
        return None
    block, extents = block_of(sch, sums), static_extents(sch, sums)
    operands = product_operands(block)
    if operands is None or extents is None or len(extents) != len(block.iter_vars):
        return None
    kept = [v.var for v in block.iter_vars if v.iter_type == IterVar.DataPar]
    if not are_just(block.body.indices, kept):
        return None
    found = (_grouped(block, kept, *pair) for pair in (operands, operands[::-1]))
    return next((each for each in found if each is not None), None)


def _grouped(block: Any, kept: list[Any], data: Any, weight: Any) -> GroupedConvolution | None:
    """Return the grouped convolution of two operands; None where they are no data and weight of one."""
    taps = list(weight.indices)
    if not all(isinstance(i, Var) for i in taps) or len(set(taps)) != len(taps):
        return None
    if data.source.same_as(weight.source) or not all(isinstance(e, IntImm) for e in data.source.shape):
        return None
    shared = [v for v in taps if v in kept]
    by_group = [d for d, i in enumerate(data.indices) if shared and shared[0] in index_variables([i])]
    if len(shared) != 1 or len(by_group) != 1:
        return None
    column, dimension = shared[0], by_group[0]
    channel = next(iter(index_variables([data.indices[dimension]]) - {column}), None)
    others = index_variables(i for d, i in enumerate(data.indices) if d != dimension)
    if channel not in taps or channel in others:
        return None
    extents = {v.var: int(v.dom.extent) for v in block.iter_vars}
    inputs, channels = extents[channel], int(data.source.shape[dimension])
    groups, outputs = channels // inputs, extents[column] // max(channels // inputs, 1)
    if inputs == 1 or groups == 1 or inputs * groups != channels or outputs * groups != extents[column]:
        return None
    wanted = tirx.floordiv(column, outputs) * inputs + channel
    if not Analyzer().can_prove_equal(data.indices[dimension], wanted):
        return None
    return GroupedConvolution(block, data, weight, column, channel, dimension, groups, inputs, outputs)


@lru_cache(maxsize=4)  # a space asks, and then the schedule begins with it
def restate(func: Any, merge: int) -> Any:
    """Put a batch of contractions in the place of a grouped convolution; what is around it takes their axes.

    Parameters
    ----------
    func : PrimFunc
        One in which `find_grouped` finds a convolution.
    merge : int
        Neighbouring groups in a part; it divides the groups.

    Raises
    ------
    InputError
        There is no such convolution, or no such part: a trace may name a form that is not one of its
        function. Or what is around it does not take its axes.
    """
    found = find_grouped(func)
    if found is None or merge < 1 or found.groups % merge:
        raise InputError(f"the function has no grouped convolution of groups that merge by {merge}")
    operands = found.data.source, found.weight.source
    stated = with_stages(func, str(found.block.name_hint), operands, _define(found, merge))
    schedule = s_tir.Schedule(stated)
    try:
        _fit_around(schedule, found, merge)
    except s_tir.ScheduleError as error:
        raise InputError("blocks around the grouped convolution do not take its axes") from error
    return schedule.mod["main"]


def _define(found: GroupedConvolution, merge: int) -> list[Any]:
    """Return the TE tensors data, weight and output, with ``merge`` groups in a part."""
    x, w = (
        te.placeholder([int(e) for e in load.source.shape], load.source.dtype, load.source.name)
        for load in (found.data, found.weight)
    )
    product = _product(found, _data(found, x, merge), _weight(found, w, merge), merge)
    at, outputs = found.kept.index(found.column), merge * found.outputs

    def output(*i: Any) -> Any:
        return product(*i[:at], i[at] // outputs, i[at] % outputs, *i[at + 1 :])

    return [x, w, te.compute([found.extents[v] for v in found.kept], output, name=OUTPUT)]


def _data(found: GroupedConvolution, x: Any, merge: int) -> Any:
    """Return data[part, others..., k] = x[others..., part * inputs + k, others...]."""
    at, inputs = found.dimension, merge * found.inputs
    others = [int(e) for d, e in enumerate(x.shape) if d != at]

    def data(part: Any, *index: Any) -> Any:
        *i, k = index
        return x(*i[:at], part * inputs + k, *i[at:])

    return te.compute((found.groups // merge, *others, inputs), data, name=DATA)


def _weight(found: GroupedConvolution, w: Any, merge: int) -> Any:
    """Return weight[part, taps..., k, o], zero where k and o are of different groups."""
    inputs, outputs = merge * found.inputs, merge * found.outputs

    def weight(part: Any, *index: Any) -> Any:
        *taps, k, o = index
        at = dict(zip(found.taps, taps, strict=True))
        at |= {found.channel: k % found.inputs, found.column: part * outputs + o}
        value = w(*(at[v] for v in found.weight.indices))
        if merge == 1:
            return value
        same = tirx.EQ(k // found.inputs, o // found.outputs)
        return tirx.Select(same, value, tirx.const(0, w.dtype))

    taps = [found.extents[v] for v in found.taps]
    return te.compute((found.groups // merge, *taps, inputs, outputs), weight, name=WEIGHT)


def _product(found: GroupedConvolution, data: Any, weight: Any, merge: int) -> Any:
    """Return product[others..., part, o, others...], each term computed in the types that it was."""
    extents = found.extents | {found.channel: merge * found.inputs, found.column: merge * found.outputs}
    sums = {
        v: te.reduce_axis((0, extents[v]), str(v.name).removeprefix("v_"))
        for v in extents
        if v not in found.kept
    }
    kept, at = found.kept, found.kept.index(found.column)
    places = [i for d, i in enumerate(found.data.indices) if d != found.dimension]
    term = summed_term(found.block)

    def product(*index: Any) -> Any:
        new = dict(zip(kept, (*index[:at], *index[at + 1 :]), strict=True))
        new |= {v: axis.var for v, axis in sums.items()}
        image = [replaced(i, new) for i in places]
        weights = [new[v] for v in (*found.taps, found.channel, found.column)]
        operands = {
            found.data: data(index[at], *image, new[found.channel]),
            found.weight: weight(index[at], *weights),
        }
        return te.sum(replaced(term, operands), axis=list(sums.values()))

    shape = [extents[v] for v in kept]
    return te.compute((*shape[:at], found.groups // merge, *shape[at:]), product, name=PRODUCT)


def _fit_around(sch: s_tir.Schedule, found: GroupedConvolution, merge: int) -> None:
    """Compute what comes before in data and weight, and what comes after part by part, as the product is."""
    names = block_names(sch)
    inline_blocks(sch, [name for name in names[: names.index(PRODUCT)] if name not in (DATA, WEIGHT)])
    shape = tuple(found.extents[v] for v in found.kept)
    *after, last = takewhile(lambda name: static_extents(sch, name) == shape, names[names.index(OUTPUT) :])
    inline_blocks(sch, after)
    at, outputs = found.kept.index(found.column), merge * found.outputs

    def parted(*i: Any) -> tuple[Any, ...]:
        return (*i[:at], i[at] // outputs, i[at] % outputs, *i[at + 1 :])

    order = IndexMap.from_func(parted, ndim=len(shape), index_dtype="int64")
    sch.transform_block_layout(sch.get_sblock(last), order)
    simplify_reads(sch, PRODUCT)
