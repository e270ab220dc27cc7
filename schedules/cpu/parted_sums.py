"""A product of a small result and a long sum, in parts of the sum: each is a product of a batch, of `matmul`.

Before::

    for tiles of rows and columns (parallel):  for k < 16384:  acc += data[row, k] * weight[k, column]

After, in the form of ``forms.parted_sums``::

    for p < 8 (parallel):
        for tiles:  for k < 2048:  acc += data[row, 2048 p + k] * weight[2048 p + k, column]
    for rows (parallel):  y = epilogue of the sum of 8 parts
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import s_tir

from ...machine.element import element_bytes
from ...machine.facts import Facts, facts
from ..algorithms import THEN
from ..analysis import iterations
from ..forms.parted_sums import OUTPUT, find_long_sum, restate
from ..nests.chain import ProductChain
from ..rule import ScheduleRule
from ..space import Knob, Knobs, KnobSpace
from ..transforms import spread, vectorize_last
from .even_parts import divisors
from .matmul import MATMUL

# The weight's part stays in this part of L2, as do the rows that meet it, and is so long that its products
# take longer than adding up. On 2 threads of a Xeon with 2 MiB of L2, time over that of the rules that take
# these otherwise: 64 x 64 by a sum of 16384 0.64, of 4096 0.83, of 2048, which is kept as it is, 0.98; 128 x
# 128 by 4096 0.58, 200 x 200 0.60, 16 x 16 by 16384 0.47, 1 x 64 0.39, 32 x 32 by 65536 0.49; 64 x 512 by
# 8192, in parts of 256, 1.0 to 1.15.
_KEPT, _LEAST_PART, _MOST_PARTS = 1 / 4, 512, 64

# So many results to each product of the sum, at most: 256 x 256 by 4096 1.08, 512 x 128 1.10, 128 x 256
# 0.91. Data that are not contiguous along the sum are read from fewer pages in parts: 256 x 256 0.56.
_MOST_RESULTS, _MOST_RESULTS_ACROSS = 12, 32

# A weight that is contiguous along the sum is turned for so many rows, and each for so many columns; `dots`
# reads it for fewer. 64 rows by 64 columns 0.53, by 10 0.70, by 256 1.14, 32 by 32 0.89; 16 by 128 1.47.
_LEAST_ROWS_TURNED, _MOST_COLUMNS_OF_ROW = 32, 2

# Of a long sum L2 holds no panel of so many vectors: each of many tiles of rows reads it from L3. A part's
# panel keeps to half of L2. On 2 threads of a Zen 5 with 1 MiB, time over that of `matmul`: 512 x 512 by a
# sum of 8192 0.85 (NT 0.90, TN 0.82), 512 x 4096 by 11008 0.88, 128 x 4096 by it 0.90, 1024 x 1024 by 5120
# 0.95, 256 x 2048 by 4608 0.90, 150 x 150 by 4200 0.71, 300 x 300 by 5000 0.92; but 64 x 1024 by 8192 1.03,
# 128 x 4096 by 4096 1.03.
_VECTORS_OF_PANEL, _MANY_ROWS = 4, 128


def schedule_parted_sums(sch: s_tir.Schedule, *, parts: int, **knobs: int) -> None:
    """Rewrite a product in the form of `forms.parted_sums` in place.

    Parameters
    ----------
    sch : Schedule
        A schedule of a PrimFunc named ``main`` in that form.
    parts : int
        Parts of the sum: names the form.
    **knobs : int
        Those of `matmul`.
    """
    output = sch.get_sblock(OUTPUT)
    MATMUL.rewrite(sch, **knobs)
    work = parts * iterations(sch, sch.get_loops(output))
    vectorize_last(sch, output, knobs["lanes"])
    spread(sch, sch.get_loops(output)[:-1], work, 1)


def parted_sums_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the parts and the tiles to choose from; None where the sum is short, or the result large."""
    found, machine = find_long_sum(func), facts(target)
    if found is None or found.nest.constant_weight or not found.nest.is_worth_threads:
        return None
    fitting = (_fitting(found, machine) if _is_small(found) else ()) or _near_parts(found, machine)
    if not fitting:
        return None
    parts = min(fitting, key=lambda p: (p * found.nest.batches % machine.cores, p))
    space = MATMUL.space(restate(func, parts), target)
    if space is None:
        return None
    space = space.in_form(Knob("parts", fitting, "parts of the sum"), parts)
    # Panels of a part come from afar: where tiles ask for the next one, 16 rows by 256 columns of 8192 take
    # 0.75 of the time, 64 by 64 of 16384 0.91 (TN 0.82), 128 by 128 of it 0.97.
    fetched = {**space.default, "fetch": 1}
    return replace(space, default=fetched) if space.allows(fetched) else space


def _is_small(found: ProductChain) -> bool:
    """Tell whether the result is small enough, and the weight read as others would not."""
    nest = found.nest
    rows, across = nest.all_rows, nest.data_channel != nest.data_rank - 1
    if nest.is_turned and (rows < _LEAST_ROWS_TURNED or nest.columns > _MOST_COLUMNS_OF_ROW * rows):
        return False
    return rows * nest.columns <= nest.depth * (_MOST_RESULTS_ACROSS if across else _MOST_RESULTS)


def _fitting(found: ProductChain, machine: Facts) -> tuple[int, ...]:
    """Return in how many parts the weight's keep to L2; none where it does so as a whole."""
    nest = found.nest
    item = element_bytes(nest.weight_dtype)
    longest = _KEPT * machine.l2_bytes / (nest.columns * item)
    most = min(_MOST_PARTS, nest.depth // _LEAST_PART)
    fitting = [p for p in divisors(nest.depth, most) if nest.depth / p <= longest]
    return () if 1 in fitting else tuple(fitting)


def _near_parts(found: ProductChain, machine: Facts) -> tuple[int, ...]:
    """Return in how many parts panels keep to L2, the fewest and some more; none where they do as a whole."""
    nest = found.nest
    item = element_bytes(nest.dtype)
    step = _VECTORS_OF_PANEL * machine.lanes(nest.dtype) * item
    if nest.depth * step <= machine.l2_bytes or nest.all_rows < _MANY_ROWS:
        return ()
    most = min(_MOST_PARTS, nest.depth // _LEAST_PART)
    return tuple(p for p in divisors(nest.depth, most) if 2 * nest.depth // p * step <= machine.l2_bytes)


def _algorithm(knobs: Knobs) -> str:
    name, inner = f"parted_sums_{knobs['parts']}", MATMUL.algorithm
    then = None if inner is None else inner(knobs)
    return name if then is None else f"{name}{THEN}{then}"


PARTED_SUMS = ScheduleRule(
    name="parted_sums",
    summary="a product of a small result and a long sum, in parts of the sum that threads share",
    rewrite=schedule_parted_sums,
    open_space=parted_sums_space,
    algorithm=_algorithm,
)
"""The schedule rule of long sums."""
