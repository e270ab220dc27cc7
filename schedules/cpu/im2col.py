"""Convolution of few pixels, channels first, by a large weight: a product by the weight as it lies.

What is under each window is copied (`forms.im2col`), by all threads. The product by that is scheduled by
`dots`, which reads the weight once, where pixels are very few, and else by `matmul`, each of whose panels is
turned in registers just before it is used. To transpose all of the weight before, as channels last want it,
takes longer than the copy does.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import s_tir

from ...machine.facts import facts
from ..analysis import block_of
from ..forms.im2col import OUTPUT, TAPS, WINDOWS, find_im2col, restate
from ..nests.contraction import Contraction, find_contraction, weight_exceeds_l2
from ..restatement import steps_of
from ..rule import ScheduleRule, rule_in_form
from ..space import KnobSpace
from .dots import DOTS, dots_space
from .even_parts import divisors
from .matmul import MATMUL

# So many times fewer pixels than outputs are worth their copies, of a weight that L2 does not hold. Times of
# dots over those of `conv2d_channels_first`, 2 threads of a Zen 4: 7x7 of 512, 3x3 0.78, of 2048 to 512, 1x1
# 0.72, 2 of 7x7 of 512, 3x3 0.98; but 10x10 of 256 0.96 to 1.09, 14x14 of 1024 to 256, 1x1 1.6; 10x10 of 960
# to 320, a little weight, 1.16. Of panels, 2 threads of a Zen 5: 7x7 of 512, 3x3 0.71, 20x20 of 384, 5x5 by 2
# 0.81, 13x13 of 1024, 3x3 0.83; 10x10 of 256 to 512 1.03, 4 of 7x7 of 512 1.02, 14x14 of 256 1.2.
_FEWER_PIXELS, _FEWER_PIXELS_OF_PANELS = 4, 3
# Of so few pixels dots are the faster: 3x3 and 4x4 of 512 take 0.86 and 0.90 of the time of panels, 4x5 1.03,
# 5x5 of 256 1.21, 7x7 of 512 1.4.
_MOST_OF_DOTS = 16
# Dots of more rows than `dots` takes by itself are for as many registers: with AVX2 7x7 of 512 takes 1.05.
_MANY_REGISTERS = 32
# Channels whose pixels stay in L1 while all windows of them are copied.
_CHANNELS_IN_L1 = 16
# Axes of a window that are unrolled; a longer one is that of the channels, where they come last: LLVM takes
# ten seconds for 512 of them.
MOST_TAPS = 16


def schedule_im2col(inner: ScheduleRule, sch: s_tir.Schedule, **knobs: int) -> None:
    """Rewrite a convolution in the form of `forms.im2col` in place.

    Parameters
    ----------
    inner : ScheduleRule
        What schedules a product, by its knobs.
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in that form.
    """
    steps = steps_of(sch)
    images, _, *place = map(int, block_of(sch, OUTPUT).writes[0].source.shape)
    _, *summed = map(int, block_of(sch, TAPS).reads[0].source.shape)
    inner.rewrite(sch, **knobs)
    for name in steps:
        *lines, last = sch.get_loops(sch.get_sblock(name))
        if name == WINDOWS:
            # Loops over single axes, whose places cost no divisions.
            channel, *window = sch.split(last, summed)
            blocks, channel = sch.split(channel, [None, divisors(summed[0], _CHANNELS_IN_L1)[-1]])
            lines = [blocks, *sch.split(lines[0], [images, *place])]
            sch.reorder(*lines, channel, *window)
            for loop, taps in zip(window, summed[1:], strict=True):
                if taps <= MOST_TAPS:
                    sch.unroll(loop)
        sch.parallel(sch.fuse(*lines))


def im2col_space(inner: ScheduleRule, func: Any, target: Any) -> KnobSpace | None:
    """Return the space of `DOTS` on a convolution of channels first, or None where it is not worth it."""
    del inner
    nest, machine = _product(func, target, _FEWER_PIXELS), facts(target)
    if nest is None:
        return None
    many = machine.vector_registers >= _MANY_REGISTERS
    return dots_space(restate(func), target, nest.columns // _FEWER_PIXELS if many else None)


def panels_space(inner: ScheduleRule, func: Any, target: Any) -> KnobSpace | None:
    """Return the space of a tiled product on a convolution of channels first, or None where dots are as good.

    Numbers that are summed as others are widened in registers by dots.
    """
    nest = _product(func, target, _FEWER_PIXELS_OF_PANELS)
    if nest is None or nest.weight_dtype != nest.dtype or nest.row_extent <= _MOST_OF_DOTS:
        return None
    return inner.space(restate(func), target)


def _product(func: Any, target: Any, fewer: int) -> Contraction | None:
    """Find the product by a weight that L2 does not hold, of so many times fewer pixels than outputs."""
    found = find_im2col(func)
    images, outputs, *place = (1, 0) if found is None else map(int, found.output.shape)
    if images * prod(place) > outputs // fewer:
        return None
    nest = find_contraction(restate(func))
    return nest if nest is not None and weight_exceeds_l2(nest, facts(target)) else None


IM2COL = rule_in_form(
    DOTS,
    lambda _: "im2col",
    name="im2col",
    summary="convolution of few pixels, channels first, as dot products by the weight as it lies",
    rewrite=schedule_im2col,
    open_space=im2col_space,
)

IM2COL_PANELS = rule_in_form(
    MATMUL,
    lambda _: "im2col",
    name="im2col_panels",
    summary="convolution of few pixels, channels first, by panels of the weight that are turned when used",
    rewrite=schedule_im2col,
    open_space=panels_space,
)
