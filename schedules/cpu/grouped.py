"""Grouped convolution as a batch of convolutions, one for each group or for a few: rows are pixels.

The function begins in `forms.grouped`, where neighbouring groups with few outputs are one part; the nest and
its rewriting are those of ``register_tile``, for each part. The data of a part is padded, or brought together
from channels first, in one parallel copy before the loops.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from tvm import s_tir

from ...machine.element import element_bits
from ...machine.errors import InputError
from ...machine.facts import Facts, facts
from ..forms.grouped import GroupedConvolution, find_grouped, restate
from ..nests.contraction import find_contraction
from ..rule import ScheduleRule
from ..space import Knob, KnobSpace
from .conv2d import default_tile
from .register_tile import register_tile
from .tile_choice import tile_choice
from .tile_space import tile_space

# Wider vectors with as many zeros more are no faster, and slower on CPUs that work on them in two halves: 32
# groups of 4 channels at 56x56 take 0.83 ms in vectors of 8, 1.18 in vectors of 16, one thread of a Zen 5.
_FILLED_BITS = 256


def schedule_grouped(sch: s_tir.Schedule, *, merge: int, **knobs: int) -> None:
    """Rewrite a grouped convolution whose form has ``merge`` groups in a part: see `register_tile`."""
    del merge
    register_tile(sch, **knobs)


def grouped_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the space of tiles, or None where the PrimFunc is no grouped convolution."""
    found = find_grouped(func)
    if found is None:
        return None
    merge = merged_groups(found, facts(target))
    try:
        nest = find_contraction(restate(func, merge))
    except InputError:
        return None
    if nest is None:
        return None
    choice = tile_choice(nest, target)
    space = tile_space(choice, default_tile(choice))
    return space.in_form(Knob("merge", (merge,), "neighbouring groups in one part"), merge)


def merged_groups(found: GroupedConvolution, machine: Facts) -> int:
    """Choose how many neighbouring groups are one part: as many as take no more multiply-adds than one alone.

    A group of 4 outputs takes vectors of 8 lanes as often as 2 groups together do; of 20 outputs, 3 for each
    group, and 5 for 2 groups, each of which then meets twice the inputs.
    """
    bits = element_bits(found.block.body.buffer.dtype)
    lanes = min(machine.lanes(str(found.block.body.buffer.dtype)), _FILLED_BITS // bits)

    def vectors(merge: int) -> int:
        return ceil(merge * found.outputs / lanes)

    divisors = (m for m in range(found.groups, 0, -1) if found.groups % m == 0)
    return min(divisors, key=vectors)


GROUPED = ScheduleRule(
    name="grouped",
    summary="grouped convolution: register tile of pixels by the output channels of one or more groups",
    rewrite=schedule_grouped,
    open_space=grouped_space,
    algorithm=lambda knobs: f"grouped_{knobs['merge']}",
)
