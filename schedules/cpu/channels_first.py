"""Convolution of channels first: as it lies where it is 1x1, else by the schedules of channels last.

A 1x1 convolution is a product whose columns are pixels (`forms.flat_pixels`). Others, where `channel_lines`
takes longer, begin in `forms.channels_last`: transpositions are passes of their own, before and after, in
squares as in `transpose`; what is between them is any convolution of channels last, and scheduled as one. On
2 threads of a Zen 4 1x1 layers take 0.75 to 1.0 of that time as they lie.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Any

from tvm import s_tir

from ...machine.facts import facts
from ..analysis import iterations
from ..forms import flat_pixels
from ..forms.channels_last import IMAGE, RESULT, TAPS, restate, squares_of
from ..forms.flat_pixels import find_flat, is_pointwise, pixels_of
from ..nests.channels_first import ChannelsFirst, find_channels_first
from ..restatement import steps_of
from ..rule import ScheduleRule, rule_in_form
from ..space import Knob, KnobSpace
from ..transforms import LEAST_PARALLEL_WORK, enough_to_share
from .conv2d import CONV2D
from .even_parts import LEAST_LANES
from .float32_matrix_unit import FLOAT32_MATRIX_UNIT
from .matmul import MATMUL
from .paired import PAIRED
from .transpose import share_squares
from .transpose_space import SQUARES_OF_BLOCK, STRETCH
from .widened import WIDENED_CONV2D, WIDENED_MATMUL
from .winograd import WINOGRAD

_SQUARES = (4, 8, 16)
_FORM = "channels_last"

# So many images of as many more columns than pixels: 8 of 7x7 of 512 to 2048 channels take 1.33 of the time
# that transposing them takes, 2 of 2048 to 512 0.77, 4 of 9x9 of 256 to 512 0.82 (2 threads of a Xeon).
# Of pairs of bfloat16 one of 7x7 of 512 to 2048 1.22 and 14x14 of 1024 to 256 0.82 (2 threads of a Zen 4). In
# vectors 16 of 7x7 1.0 to 1.25, 16 of 3x3 1.37, 32 of 5x5 1.15; but 4 of 7x7 of 256 to 48 0.52 (there too).
# Groups are not transposed for: 16 of 7x7 of 32 groups take 0.67 of the time so.
_LEAST_IMAGES = {FLOAT32_MATRIX_UNIT: 4, PAIRED: 1, MATMUL: 9}
_MUCH_WASTE = 1.2


def schedule_channels_first(inner: ScheduleRule, sch: s_tir.Schedule, *, squares: int, **knobs: int) -> None:
    """Rewrite a convolution in the form of channels last in place, in squares of up to so many lanes.

    Parameters
    ----------
    inner : ScheduleRule
        What schedules a convolution of channels last, by its knobs.
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in the form that `forms.channels_last.restate` makes.
    squares : int
        Rows and columns of the largest squares.
    """
    names = steps_of(sch)
    inner.rewrite(sch, **knobs)
    # A thread transposes what it reads or wrote itself, as far as it can: its columns of the weight, and
    # of the result the channels or the pixels, whichever the threads share.
    by_channels = knobs.get("split_columns", not knobs.get("share_lines", 0))
    by_columns = {IMAGE: False, TAPS: True, RESULT: not by_channels}
    for name in names:
        share_squares(
            sch, name, squares, squares=SQUARES_OF_BLOCK, stretch=STRETCH, by_columns=by_columns[name]
        )


def channels_first_space(inner: ScheduleRule, func: Any, target: Any) -> KnobSpace | None:
    """Return a schedule's space on a convolution whose channels were first; None where it is none."""
    found = find_channels_first(func)
    if found is None:
        return None
    widest = min(_lanes(found, target), _SQUARES[-1])
    if not {IMAGE, RESULT} & set(squares_of(found, widest)):
        return None
    if inner is FLOAT32_MATRIX_UNIT and is_pointwise(found):
        # Nothing need be transposed where pixels are columns, even if these are of vectors.
        if _flat_lanes(func, target) and not _wastes_columns(inner, found, target):
            return None
    space = inner.space(restate(func, widest), target)
    if space is None:
        return None
    fitting = tuple(s for s in _SQUARES if s <= widest)
    return space.in_form(Knob("squares", fitting, "rows and columns of the largest squares"), widest)


def _of_channels_first(inner: ScheduleRule) -> ScheduleRule:
    return rule_in_form(
        inner,
        lambda knobs: f"{_FORM}_{knobs['squares']}",
        name=f"{inner.name}_channels_first",
        summary=f"as {inner.name}, with image, weight and result transposed in registers",
        rewrite=schedule_channels_first,
        open_space=channels_first_space,
    )


def flat_pixels_space(inner: ScheduleRule, func: Any, target: Any) -> KnobSpace | None:
    """Return a product's space on a 1x1 convolution of channels first whose pixels fill vectors, or None."""
    lanes = _flat_lanes(func, target)
    first = find_flat(func, lanes) if lanes else None
    if first is None or (find_channels_first(func) and _wastes_columns(inner, first, target)):
        return None
    apart = int(int(first.output.shape[0]) > 1)
    space = inner.space(flat_pixels.restate(func, lanes, apart), target)
    if space is None:
        return None
    if apart:
        space = space.in_form(Knob("apart", (1,), "1: each image is a product by itself"), 1)
    return space.in_form(Knob("pixels", (lanes,), "pixels of a vector"), lanes)


def _flat_lanes(func: Any, target: Any) -> int:
    """Return the pixels of a vector, or of a part of one, in which they are columns; 0 where they are not."""
    first = find_flat(func, 1)
    if first is None:
        return 0
    lanes = _lanes(first, target)
    parts = (lanes, lanes // 2, LEAST_LANES, 1) if facts(target).has_masks else (lanes,)
    return next((part for part in parts if find_flat(func, part)), 0)


def _lanes(found: ChannelsFirst, target: Any) -> int:
    """Return the elements of the result in a vector."""
    return facts(target).lanes(str(found.block.writes[0].source.dtype))


def _wastes_columns(inner: ScheduleRule, first: ChannelsFirst, target: Any) -> bool:
    """Tell whether too many columns of tiles are left empty for each of so many images."""
    if inner not in _LEAST_IMAGES:
        return False
    lanes = _lanes(first, target)
    images, pixels = int(first.output.shape[0]), prod(pixels_of(first.output))
    return images >= _LEAST_IMAGES[inner] and ceil(pixels / lanes) * lanes > _MUCH_WASTE * pixels


def schedule_flat_pixels(
    inner: ScheduleRule, sch: s_tir.Schedule, *, pixels: int, apart: int = 0, **knobs: int
) -> None:
    """Rewrite a convolution in the form of `forms.flat_pixels`, in vectors of ``pixels``.

    Parameters
    ----------
    inner : ScheduleRule
        What schedules a matrix product, by its knobs.
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in that form.
    """
    del pixels, apart
    steps = steps_of(sch)
    inner.rewrite(sch, **knobs)
    for name in steps:
        loops = sch.get_loops(sch.get_sblock(name))
        if iterations(sch, loops) >= LEAST_PARALLEL_WORK:
            sch.parallel(sch.fuse(*enough_to_share(sch, loops[:-1])))


def _of_flat_pixels(inner: ScheduleRule, name: str) -> ScheduleRule:
    return rule_in_form(
        inner,
        lambda knobs: f"flat_pixels_{knobs['pixels']}{'_1' if knobs.get('apart') else ''}",
        name=name,
        summary=f"1x1 convolution, channels first: columns are pixels, by {inner.name}",
        rewrite=schedule_flat_pixels,
        open_space=flat_pixels_space,
    )


FLAT_PIXELS = _of_flat_pixels(MATMUL, "flat_pixels")
WIDENED_FLAT_PIXELS = _of_flat_pixels(WIDENED_MATMUL, "widened_flat_pixels")
PAIRED_FLAT_PIXELS = _of_flat_pixels(PAIRED, "paired_flat_pixels")
FLOAT32_MATRIX_UNIT_FLAT_PIXELS = _of_flat_pixels(FLOAT32_MATRIX_UNIT, "float32_matrix_unit_flat_pixels")

CONV2D_CHANNELS_FIRST, WIDENED_CHANNELS_FIRST, WINOGRAD_CHANNELS_FIRST, FLOAT32_MATRIX_UNIT_CHANNELS_FIRST = (
    map(_of_channels_first, (CONV2D, WIDENED_CONV2D, WINOGRAD, FLOAT32_MATRIX_UNIT))
)
