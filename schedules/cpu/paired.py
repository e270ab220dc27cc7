"""Products of bfloat16, neighbouring ones summed in each lane of float32 by one instruction.

The nest is that of ``quantized``, with AVX512_BF16's ``vdpbf16ps`` in the place of VNNI's: panels hold the
weight in pairs along the sum, and a pair of a row of data is broadcast as one number of 32 bits. It rounds as
two multiply-adds do, and takes what is too small for a normal number as zero. TVM knows no vectors of
bfloat16, which it computes in float32: see `DotInstruction.code` and `bfloat16_bits`.

On 2 threads of a Zen 4, time over that of operands widened to float32 first: 1024 cubed 0.47, 128 rows by 768
x 768 0.44, 56x56 pixels of 64 channels, 3x3, 0.49, 28x28 of 512 to 128, 1x1, 0.43, ResNet-50's first layer,
3 channels of 7x7, 0.91. 1024 cubed takes 0.95 of PyTorch's time, which has oneDNN do it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...machine.facts import Facts, facts
from ..nests.contraction import Contraction, find_contraction
from ..rule import ScheduleRule
from ..space import KnobSpace
from .quantized import instruction_space
from .register_tile import register_tile

# Rows from which on panels are worth packing, of weights up to a part of L3 and of others: fewer are left to
# rules that read the weight as it lies. On 2 threads of a Zen 4, 32 MiB of L3, time over theirs: 4 rows by
# 1024 x 1024 0.9 to 1.0, by 3072 x 768 0.86 to 1.0, by 2048 x 2048 1.1 to 1.2, 6 rows 0.87 to 1.02; 6 rows by
# 3072 x 3072 1.16, 8 1.01 to 1.03, 12 0.81, by 4096 x 4096 8 1.2 to 1.26, 16 0.91.
_LEAST_ROWS = {6: 4, 3: 6}
_LEAST_ROWS_FAR = 12


def paired_space(func: Any, target: Any) -> KnobSpace | None:
    """Return the space of tiles; None where products are others, or the CPU sums no such pairs."""
    space = instruction_space(func, target, "float32")
    nest = None if space is None else find_contraction(func)
    if space is None or nest is None:
        return None
    return replace(space, preferred=nest.all_rows >= _least_rows(nest, facts(target)))


def _least_rows(nest: Contraction, machine: Facts) -> int:
    """Return from how many rows on panels are worth it."""
    fitting = (rows for part, rows in _LEAST_ROWS.items() if nest.weight_bytes * part <= machine.kept_by_l3)
    return next(fitting, _LEAST_ROWS_FAR)


PAIRED = ScheduleRule(
    name="paired",
    summary="register tile over packed panels, two products of bfloat16 a lane at once (AVX512_BF16)",
    rewrite=register_tile,
    open_space=paired_space,
)
