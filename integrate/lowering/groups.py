"""Grouped convolutions: a few large groups are convolutions of their own, which have a schedule."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax import op

from .rewriting import Rewriter, extents, rewritten, with_attrs

_CONV2D = "relax.nn.conv2d"
# More groups are too many calls; groups of fewer channels than half a vector fill no tile.
_MOST_GROUPS, _LEAST_CHANNELS = 8, 8


@tvm.transform.module_pass(opt_level=0, name="SplitGroups")
class SplitGroups:
    """Compute each group of a convolution by itself, and put their channels side by side.

    What this copies, the input's parts and the output, costs less than loops over groups: they are no
    sum of products that the schedules of contractions know.
    """

    def transform_module(self, mod: Any, _context: Any) -> Any:
        """Rewrite ``main``."""
        return rewritten({_CONV2D: _split}, mod)


def _split(rewriter: Rewriter, call: Any) -> Any:
    data, weight = call.args
    groups = int(call.attrs.groups)
    channel, kept = str(call.attrs.data_layout).index("C"), str(call.attrs.kernel_layout)
    inputs, outputs = extents(weight)[kept.index("I")], extents(weight)[kept.index("O")] // groups
    if not 1 < groups <= _MOST_GROUPS or min(inputs, outputs) < _LEAST_CHANNELS:
        return None
    images = rewriter.emit(op.split(data, groups, channel))
    weights = rewriter.emit(op.split(weight, groups, kept.index("O")))
    parts = [
        rewriter.emit(with_attrs(call, [rewriter.emit(images[i]), rewriter.emit(weights[i])], groups=1))
        for i in range(groups)
    ]
    return op.concat(relax.Tuple(parts), channel)
