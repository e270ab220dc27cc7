"""What is around a sum of products: blocks that make its operands, and blocks that work on its output."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from tvm import s_tir
from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm.tirx import IntImm, Var
from tvm_ffi import structural_map

from ...machine.dot_instructions import WIDE
from ..analysis import block_of, has_condition, is_reduction, static_extents, written_buffer
from ..expressions import index_variables, loads_of
from ..passes.streaming import elements_before
from ..restatement import is_step

WIDE_DATA, WIDE_WEIGHT = "wide_data", "wide_weight"
"""The blocks that widen operands (`forms.widened`)."""


def blocks_around(
    sch: s_tir.Schedule, names: list[str], block: Any, data: Any, weight: Any, plain: bool
) -> tuple[tuple[str, ...], str | None, tuple[str, ...], tuple[str, ...]] | None:
    """Return the blocks before, the one of them that stays a copy, those after of its shape, and others.

    None where something else is padded than the data, or a weight before it is laid out anew.
    """
    names = [name for name in names if not is_step(name)]
    at = names.index(str(block.name_hint))
    prologue, after = tuple(names[:at]), tuple(names[at + 1 :])
    shape = tuple(int(e) for e in block.writes[0].source.shape)
    epilogue = tuple(takewhile(lambda name: static_extents(sch, name) == shape, after))
    padding = [n for n in prologue if has_condition(sch, n) and not _goes_into(sch, n, weight)]
    origin = _origin(sch, prologue, data, plain)
    if len(padding) > 1 or (padding and written_buffer(sch, padding[0]) != origin.name):
        return None
    widening = [name for name in prologue if widens(sch, name, data)]
    copies = [*padding, *widening, *(n for n in prologue if not plain and _brings_together(sch, n, data))]
    return prologue, copies[0] if copies else None, epilogue, after[len(epilogue) :]


def _origin(sch: s_tir.Schedule, prologue: tuple[str, ...], data: Any, plain: bool) -> Any:
    """Return what the data of a plain product are copied from, or the data themselves."""
    blocks = [block_of(sch, name) for name in prologue if plain]
    values = [getattr(block.body, "value", None) for block in blocks if block.body.buffer.same_as(data)]
    return next((value.source for value in values if isinstance(value, TensorLoad)), data)


def _brings_together(sch: s_tir.Schedule, name: str, data: Any) -> bool:
    """Tell whether a block makes elements of the data neighbours that are none where they come from."""
    block = block_of(sch, name)
    last = block.iter_vars[-1].var
    return block.writes[0].source.same_as(data) and any(
        last in index_variables(load.indices) - index_variables(load.indices[-1:])
        for load in loads_of(block.body)
    )


def _goes_into(sch: s_tir.Schedule, name: str, weight: Any) -> bool:
    """Tell whether a block lays the weight out anew, or is read only on the way to one that does."""
    if makes_panels(sch, name, weight):
        return True
    readers = [str(sch.get(reader).name_hint) for reader in sch.get_consumers(sch.get_sblock(name))]
    return len(readers) == 1 and not is_reduction(sch, readers[0]) and _goes_into(sch, readers[0], weight)


def made_of(sch: s_tir.Schedule, name: str) -> list[Any]:
    """Return the buffers that a block reads, or that are read by the blocks which make these."""
    block = sch.get_sblock(name)
    made = {
        str(sch.get(p).writes[0].source.name): str(sch.get(p).name_hint) for p in sch.get_producers(block)
    }
    sources = [region.source for region in sch.get(block).reads]
    return [
        each
        for source in sources
        for each in (made_of(sch, made[str(source.name)]) if str(source.name) in made else [source])
    ]


def makes_panels(sch: s_tir.Schedule, name: str, weight: Any) -> bool:
    """Tell whether a block makes the weight by ordering something otherwise, or widening it."""
    return lays_out_anew(sch, name, weight) or widens(sch, name, weight)


def lays_out_anew(sch: s_tir.Schedule, name: str, weight: Any) -> bool:
    """Tell whether a block makes the weight from something that is ordered otherwise.

    Its reader could neither cache nor pad that: it would read it at indices that are no axes of its own.
    """
    block = block_of(sch, name)
    loads = loads_of(block.body)
    alike = any(
        len(load.indices) == len(weight.shape) and all(map(_is_plain, load.indices)) for load in loads
    )
    return block.writes[0].source.same_as(weight) and bool(loads) and not alike


def lies_in_rows(sch: s_tir.Schedule, name: str) -> bool:
    """Tell whether a block copies elements that lie side by side in memory along its last axis.

    Vectors of them can be read where they come from, whatever their indices are.
    """
    block = block_of(sch, name)
    load = getattr(block.body, "value", None)
    if not isinstance(load, TensorLoad):
        return False
    analyzer, last = Analyzer(), block.iter_vars[-1].var
    for v in block.iter_vars:
        analyzer.bind(v.var, v.dom)
    place = analyzer.simplify(elements_before(load.source, load.indices))
    further = structural_map(place, [(Var, lambda v: v + 1 if v.same_as(last) else v)])
    return bool(analyzer.can_prove_equal(further, place + 1))


def widens(sch: s_tir.Schedule, name: str, operand: Any) -> bool:
    """Tell whether a block makes an operand by widening another, which is worth a copy of its own."""
    block = block_of(sch, name)
    loads = [str(load.source.dtype) for load in loads_of(block.body)]
    made = str(operand.dtype)
    wide = made == WIDE or name in (WIDE_DATA, WIDE_WEIGHT)
    return block.writes[0].source.same_as(operand) and wide and bool(loads) and loads[0] != made


def _is_plain(index: Any) -> bool:
    return isinstance(index, Var | IntImm)
