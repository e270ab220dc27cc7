"""Convolution of few pixels, channels first, by a large weight: dot products by the weight as it lies.

What is under each window is copied (`forms.im2col`), by all threads; the product is scheduled by `dots`,
which reads the weight once. Its transposition, as channels last want it, takes longer than the copy does.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import s_tir

from ...machine.facts import facts
from ..analysis import block_of
from ..forms.im2col import OUTPUT, TAPS, WINDOWS, find_im2col, restate
from ..nests.contraction import find_contraction, weight_exceeds_l2
from ..restatement import steps_of
from ..rule import ScheduleRule
from ..space import KnobSpace
from .dots import DOTS, dots_space

# So many times fewer pixels than outputs are worth their copies, of a weight that L2 does not hold. Times
# over those of `conv2d_channels_first`, 2 threads of a Zen 4: 7x7 of 512, 3x3 0.78, of 2048 to 512, 1x1 0.72,
# 2 of 7x7 of 512, 3x3 0.98; but 10x10 of 256 0.96 to 1.09, 14x14 of 1024 to 256, 1x1 1.6; 10x10 of 960 to
# 320, a little weight, 1.16.
_FEWER_PIXELS = 4
# Dots of more rows than `dots` takes by itself are for as many registers: with AVX2 7x7 of 512 takes 1.05.
_MANY_REGISTERS = 32
# Axes of a window that are unrolled; a longer one is that of the channels, where they come last: LLVM takes
# ten seconds for 512 of them.
_MOST_TAPS = 16


def schedule_im2col(sch: s_tir.Schedule, **knobs: int) -> None:
    """Rewrite a convolution in the form of `forms.im2col` in place: see `DOTS`."""
    steps = steps_of(sch)
    images, _, *place = map(int, block_of(sch, OUTPUT).writes[0].source.shape)
    _, *summed = map(int, block_of(sch, TAPS).reads[0].source.shape)
    DOTS.rewrite(sch, **knobs)
    for name in steps:
        *lines, last = sch.get_loops(sch.get_sblock(name))
        if name == WINDOWS:
            # Loops over single axes, whose places cost no divisions.
            lines = sch.split(lines[0], [images, *place])
            _, *window = sch.split(last, summed)
            for loop, taps in zip(window, summed[1:], strict=True):
                if taps <= _MOST_TAPS:
                    sch.unroll(loop)
        sch.parallel(sch.fuse(*lines))


def im2col_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the space of `DOTS` on a convolution of channels first, or None where it is not worth it."""
    found = find_im2col(func)
    if found is None:
        return None
    images, outputs, *place = map(int, found.output.shape)
    most, machine = outputs // _FEWER_PIXELS, facts(target)
    if images * prod(place) > most:
        return None
    restated = restate(func)
    nest = find_contraction(restated)
    if nest is None or not weight_exceeds_l2(nest, machine):
        return None
    return dots_space(restated, target, most if machine.vector_registers >= _MANY_REGISTERS else None)


IM2COL = ScheduleRule(
    name="im2col",
    summary="convolution of few pixels, channels first, as dot products by the weight as it lies",
    rewrite=schedule_im2col,
    open_space=im2col_space,
    algorithm=lambda _: "im2col",
)
